-- One kind of lease. UNIQUE (name, epoch) makes the epoch a key: taking over conflicts with the fence's KEY SHARE,
-- renewing does not.
CREATE TABLE site.lease (
    name       text        PRIMARY KEY,
    holder     uuid        NOT NULL,
    epoch      bigint      NOT NULL,
    expires_at timestamptz NOT NULL,
    UNIQUE (name, epoch)
);

-- The last statement of every fenced transaction, sent together with COMMIT.
CREATE FUNCTION site.fence(of_name text, of_epoch bigint, of_holder uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM site.lease
     WHERE name = of_name AND epoch = of_epoch AND holder = of_holder AND expires_at > clock_timestamp()
       FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % is no longer held with epoch %', of_name, of_epoch USING ERRCODE = 'TL001';
    END IF;
END $$;

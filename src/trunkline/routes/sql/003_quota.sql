-- The slots of each tenant's quota (trunkline.routes.quota): those up to `upto`, in unix seconds, are gone.
-- Not logged: a bucket that is lost is a full one. Rows are few and change often: pages stay almost empty, for quick updates.
CREATE UNLOGGED TABLE routes.bucket (
    org        text COLLATE "C" NOT NULL,
    app        text COLLATE "C" NOT NULL,
    per_second double precision,
    stamp      double precision NOT NULL,
    upto       double precision NOT NULL,
    PRIMARY KEY (org, app)
) WITH (fillfactor = 10);

-- The same as trunkline.routes.quota.grab; the clock is read when the row is locked.
CREATE FUNCTION routes.take_slots(
    of_org text, of_app text, asked_quota double precision, asked_stamp double precision, wanted bigint,
    OUT quota double precision, OUT stamp double precision, OUT count bigint, OUT first double precision)
LANGUAGE plpgsql AS $$
DECLARE
    bucket routes.bucket;
    now_at double precision;
    slot   double precision;
    turn   double precision;
    behind double precision;
    ahead  double precision;
BEGIN
    LOOP
        SELECT * INTO bucket FROM routes.bucket b WHERE b.org = of_org AND b.app = of_app FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO routes.bucket VALUES (of_org, of_app, asked_quota, asked_stamp, '-infinity') ON CONFLICT DO NOTHING;
    END LOOP;
    now_at := extract(epoch FROM clock_timestamp());
    IF asked_stamp > bucket.stamp THEN
        bucket.per_second := asked_quota;
        bucket.stamp := asked_stamp;
        bucket.upto := least(bucket.upto, now_at);
    END IF;
    quota := bucket.per_second;
    stamp := bucket.stamp;
    count := 0;
    first := 0;
    IF quota > 0 THEN
        slot := 1 / quota;
        turn := greatest(0.1, slot);
        bucket.upto := least(greatest(bucket.upto, now_at - greatest(1, slot)), now_at + 50 * turn);
        first := bucket.upto + slot - now_at;
        behind := greatest(0, now_at - bucket.upto);
        ahead := greatest(0, bucket.upto - now_at);
        count := greatest(0, least(wanted, floor((behind + least(turn, 50 * turn - ahead)) * quota + 1e-6)::bigint));
        bucket.upto := bucket.upto + count * slot;
    END IF;
    UPDATE routes.bucket b SET per_second = bucket.per_second, stamp = bucket.stamp, upto = bucket.upto
     WHERE b.org = of_org AND b.app = of_app;
END $$;

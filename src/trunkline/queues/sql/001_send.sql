-- Sending: what applications append, and what the stamper makes of it.
CREATE SCHEMA queues;
CREATE SCHEMA trunkline;

-- Every site ever seen; a site that is offline for a month stays known.
CREATE TABLE queues.site (
    name       text        PRIMARY KEY,
    first_seen timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE queues.client (
    name      text   PRIMARY KEY,
    first_seq bigint NOT NULL
);

-- Which role may send under which client's name; '*' is any client. Owners of this schema may always.
CREATE TABLE queues.client_grant (
    client     text        NOT NULL,
    role       text        NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (client, role)
);

-- Sets of destinations, sorted and without repetition, each kept once. Only the stamper adds to them: a transaction
-- that is the first to use a set carries it inline, and waits for nobody (H08).
CREATE TABLE queues.destination_set (
    id     int    GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea  NOT NULL UNIQUE,
    sites  text[] NOT NULL
);

-- Of sites in order (byte by byte) and without repetition. The text of an array is quoted: no two sets share one.
CREATE FUNCTION queues.set_digest(sites text[]) RETURNS bytea LANGUAGE sql STABLE STRICT
RETURN sha256(convert_to(sites::text, 'UTF8'));

-- LRQ_Send_LogEntries. A message is kept once, whatever the number of destinations; no foreign keys, so that no
-- transmit ever waits for another transaction. Its partitions are a ring of slots: rows go into the stamper's present
-- slot, and a slot whose rows have all had their time is emptied whole. Until then no row changes: there is nothing to
-- vacuum.
-- A row with `ends` is a pack: several small messages of one call, without headers, one after the other in `payload`;
-- `ends` says where each of them ends. Packs fill a page, and so are kept in the row.
CREATE TABLE queues.send_log (
    slot            smallint NOT NULL,
    xid             xid8     NOT NULL DEFAULT pg_current_xact_id(),
    id              bigint   GENERATED ALWAYS AS IDENTITY (CACHE 100),
    first           boolean  NOT NULL,
    client          text     NOT NULL,
    destination_set int,
    destinations    text[],
    headers         jsonb,
    ends            int[],
    payload         bytea    NOT NULL,
    CHECK (num_nonnulls(destination_set, destinations) = 1)
) PARTITION BY LIST (slot);
ALTER TABLE queues.send_log ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX send_log_of_transaction ON queues.send_log (xid);
DO $$
BEGIN
    FOR slot IN 0..15 LOOP
        EXECUTE format('CREATE TABLE queues.send_log_%s PARTITION OF queues.send_log FOR VALUES IN (%s) '
            'WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off, toast_tuple_target = 8160)', slot, slot);
    END LOOP;
END $$;

-- How many messages a row of the send log is.
CREATE FUNCTION queues.messages(ends int[]) RETURNS int LANGUAGE sql IMMUTABLE
RETURN coalesce(cardinality(ends), 1);

-- Every message for itself, for whoever looks; `nth` counts those of one row.
CREATE VIEW queues.sent_message AS
SELECT l.slot, l.xid, l.id, m.nth, l.first AND m.nth = 1 AS first, l.client, l.destination_set, l.destinations, l.headers,
       CASE WHEN l.ends IS NULL THEN l.payload
            ELSE substring(l.payload FROM coalesce(l.ends[m.nth - 1], 0) + 1 FOR l.ends[m.nth] - coalesce(l.ends[m.nth - 1], 0))
       END AS payload
  FROM queues.send_log l, generate_series(1, queues.messages(l.ends)) AS m(nth);

-- A ticket is drawn at commit, so tickets are in commit order wherever two transactions depend on each other.
-- (A transaction that says SET CONSTRAINTS ... IMMEDIATE draws it there and gives up that order, never an entry.)
CREATE SEQUENCE queues.ticket_number CACHE 1;
CREATE TABLE queues.ticket (
    ticket bigint   PRIMARY KEY,
    xid    xid8     NOT NULL UNIQUE,
    slot   smallint
);

-- One ticket per transaction, even where RESET ALL made it forget that it had a first row: its rows may then be in
-- more than one slot, the ticket says none, and they are counted anew.
CREATE FUNCTION queues.draw_ticket() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    its_slot smallint;
BEGIN
    INSERT INTO queues.ticket AS t (ticket, xid, slot) VALUES (nextval('queues.ticket_number'), NEW.xid, NEW.slot)
    ON CONFLICT (xid) DO UPDATE SET slot = NULL RETURNING t.slot INTO its_slot;
    IF its_slot IS NULL THEN
        PERFORM queues.check_whole(NEW.xid);
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER draw_ticket AFTER INSERT ON queues.send_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.first) EXECUTE FUNCTION queues.draw_ticket();
-- Also for a session that loads with session_replication_role = replica: a row without a ticket would be lost.
ALTER TABLE queues.send_log ENABLE ALWAYS TRIGGER draw_ticket;

-- The log: one narrow row per round. Its entries are the messages of `xids`, in that order and then by id; `counts`
-- and `bytes` are per transaction, `slots` are those that hold any of these rows. Beside them: what the round brought to
-- which destination set (its last seq, rounded up to the transaction's end), and where the stamper stood after it. Rows are only added, and deleted by trimming: a row that every round changes would
-- grow a tail of dead versions behind any transaction that stays open.
CREATE TABLE queues.stamp (
    first_seq   bigint      PRIMARY KEY,
    last_seq    bigint      NOT NULL UNIQUE,
    mark        bigint      NOT NULL,
    xids        xid8[]      NOT NULL,
    slots       smallint[]  NOT NULL,
    counts      int[]       NOT NULL,
    bytes       int[]       NOT NULL,
    sets        int[]       NOT NULL,
    set_clients text[]      NOT NULL,
    set_counts  int[]       NOT NULL,
    set_bytes   bigint[]    NOT NULL,
    set_lasts   bigint[]    NOT NULL,
    cursor      bigint      NOT NULL,
    holes       bigint[]    NOT NULL,
    hole_bounds xid8[]      NOT NULL,
    stamped_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What changes seldom: the log's identity, how far it was trimmed, and the slot that new rows go into.
CREATE TABLE queues.stamper (
    one         boolean     PRIMARY KEY DEFAULT true CHECK (one),
    log_id      uuid        NOT NULL DEFAULT gen_random_uuid(),
    lowest      bigint      NOT NULL DEFAULT 0,
    lowest_mark bigint      NOT NULL DEFAULT 0,
    slot        smallint    NOT NULL DEFAULT 0,
    slot_since  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO queues.stamper DEFAULT VALUES;

-- The last seq per destination set and client, of rounds that were trimmed.
CREATE TABLE queues.trimmed (
    destination_set int    NOT NULL,
    client          text   NOT NULL,
    last_seq        bigint NOT NULL,
    PRIMARY KEY (destination_set, client)
);

-- How far every destination says it is; a newer generation of the destination replaces, whatever its position.
CREATE TABLE queues.acknowledged (
    destination text        NOT NULL,
    client      text        NOT NULL,
    generation  bigint      NOT NULL,
    seq         bigint      NOT NULL,
    mark        bigint      NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (destination, client)
);

-- Destinations that have more unacknowledged entries than they may, or that a trim left behind: nothing is kept for
-- them any more, and a snapshot brings them back (H22).
CREATE TABLE queues.needs_snapshot (
    destination text        NOT NULL,
    client      text        NOT NULL,
    over_cap    boolean     NOT NULL,
    since       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (destination, client)
);

-- What people know it by: the tags of the design, one per entry and destination; underscores as in queues.queue.name.
CREATE VIEW queues.send_log_tags AS
SELECT 'lrq_logentry_' || replace(site, '_', '__') || '_' || replace(l.client, '_', '__') AS tag, l.xid, l.id, l.nth
  FROM queues.sent_message l LEFT JOIN queues.destination_set s ON s.id = l.destination_set,
       unnest(coalesce(l.destinations, s.sites)) AS site;

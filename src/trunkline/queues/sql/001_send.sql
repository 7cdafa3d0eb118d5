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

-- LRQ_Send_LogEntries. One row per message, whatever the number of destinations; no foreign keys, so that no
-- transmit ever waits for another transaction.
CREATE TABLE queues.send_log (
    xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    first        boolean     NOT NULL,
    client       text        NOT NULL,
    destinations text[]      NOT NULL,
    headers      jsonb       NOT NULL,
    payload      bytea       NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (xid, id)
);

-- A ticket is drawn at commit, so tickets are in commit order wherever two transactions depend on each other.
-- (A transaction that says SET CONSTRAINTS ... IMMEDIATE draws it there and gives up that order, never an entry.)
CREATE SEQUENCE queues.ticket_number CACHE 1;
CREATE TABLE queues.ticket (
    ticket bigint PRIMARY KEY,
    xid    xid8   NOT NULL
);

-- One ticket per transaction, even where RESET ALL made it forget that it had a first row.
CREATE FUNCTION queues.draw_ticket() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM queues.send_log l WHERE l.xid = NEW.xid AND l.id < NEW.id AND l.first) THEN
        INSERT INTO queues.ticket (ticket, xid) VALUES (nextval('queues.ticket_number'), NEW.xid);
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER draw_ticket AFTER INSERT ON queues.send_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.first) EXECUTE FUNCTION queues.draw_ticket();
-- Also for a session that loads with session_replication_role = replica: a row without a ticket would be lost.
ALTER TABLE queues.send_log ENABLE ALWAYS TRIGGER draw_ticket;

-- The log: one narrow row per round. Its entries are the send_log rows of `xids`, in that order and then by id.
CREATE TABLE queues.stamp (
    first_seq  bigint      PRIMARY KEY,
    last_seq   bigint      NOT NULL UNIQUE,
    mark       bigint      NOT NULL,
    xids       xid8[]      NOT NULL,
    counts     int[]       NOT NULL,
    stamped_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE queues.stamper (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    log_id      uuid    NOT NULL DEFAULT gen_random_uuid(),
    cursor      bigint  NOT NULL DEFAULT 0,
    holes       bigint[] NOT NULL DEFAULT '{}',
    hole_bounds xid8[]  NOT NULL DEFAULT '{}',
    head        bigint  NOT NULL DEFAULT 0,
    mark        bigint  NOT NULL DEFAULT 0
);
INSERT INTO queues.stamper DEFAULT VALUES;

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

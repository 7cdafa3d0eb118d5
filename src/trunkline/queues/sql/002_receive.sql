-- Receiving: one table for all receive queues, and the positions that commit together with what arrived.

-- `head` is the last position given, `tail` the last one that every consumer has passed; `received_bytes` and
-- `passed_bytes` are the payload bytes up to there. An underscore in a name is doubled in `name`, so that no two
-- queues share one.
CREATE TABLE queues.queue (
    id             int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    client         text        NOT NULL,
    remote         text        NOT NULL,
    name           text        NOT NULL
                   GENERATED ALWAYS AS ('LRQ_Recv_' || replace(client, '_', '__') || '_' || replace(remote, '_', '__')) STORED,
    head           bigint      NOT NULL DEFAULT 0,
    tail           bigint      NOT NULL DEFAULT 0,
    received_bytes bigint      NOT NULL DEFAULT 0,
    passed_bytes   bigint      NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (client, remote),
    UNIQUE (name)
);

-- `position` is dense per queue, from 1, in order of arrival. `type`: 1 log entry, 2 snapshot, 3 last of a snapshot,
-- 4 start of a snapshot, 5 lost entries. `seq` is the origin's number (of snapshot records: the base), `index` counts
-- the records of one snapshot (whose `request` it is), from its start, which is 0, `total` the payload bytes of the queue up to and with this row.
-- Partitions are a ring of slots, as in queues.send_log.
CREATE TABLE queues.receive (
    slot        smallint    NOT NULL,
    queue       int         NOT NULL,
    position    bigint      NOT NULL,
    type        smallint    NOT NULL,
    seq         bigint      NOT NULL,
    index       int         NOT NULL,
    total       bigint      NOT NULL,
    request     uuid,
    headers     jsonb,
    payload     bytea       NOT NULL
) PARTITION BY LIST (slot);
ALTER TABLE queues.receive ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX receive_place ON queues.receive (queue, position);
DO $$
BEGIN
    FOR slot IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE queues.receive_%s PARTITION OF queues.receive FOR VALUES IN (%s)
             WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)', slot, slot);
    END LOOP;
END $$;

CREATE TABLE queues.receiver (
    one        boolean     PRIMARY KEY DEFAULT true CHECK (one),
    slot       smallint    NOT NULL DEFAULT 0,
    slot_since timestamptz NOT NULL DEFAULT now()
);
INSERT INTO queues.receiver DEFAULT VALUES;

-- The highest position per queue in a slot that is no longer written to, as far as it could be seen when it was left:
-- says when to try to empty it. Whether it may be emptied is asked of the slot itself, under its lock.
CREATE TABLE queues.closed_slot (
    slot      smallint    NOT NULL,
    queue     int         NOT NULL,
    last      bigint      NOT NULL,
    closed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (slot, queue)
);

-- This site's sessions as a destination, per origin and client: its log position (seq, mark), and its snapshot.
-- `state`: new (to be negotiated), snapshot (one is being received), log. Only a session in state log takes entries.
-- A row of the client '' is written by a reset: it says which log the next positions will be of.
CREATE TABLE queues.session (
    origin       text        NOT NULL,
    client       text        NOT NULL,
    log_id       text        NOT NULL,
    seq          bigint      NOT NULL,
    mark         bigint      NOT NULL,
    state        text        NOT NULL DEFAULT 'log' CHECK (state IN ('new', 'snapshot', 'log')),
    reason       text        NOT NULL DEFAULT '',
    request      uuid,
    forced       boolean     NOT NULL DEFAULT false,
    base         bigint,
    base_mark    bigint,
    chunk        int         NOT NULL DEFAULT 0,
    records      int         NOT NULL DEFAULT 0,
    started_at   timestamptz,
    completed_at timestamptz,
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (origin, client)
);

-- Who reads a client's queues. `seen_at` moves while it reads; one that is idle too long is detached, and nothing is
-- kept for it any more (H23).
CREATE TABLE queues.consumer (
    client      text        NOT NULL,
    name        text        NOT NULL,
    attached_at timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now(),
    detached_at timestamptz,
    PRIMARY KEY (client, name)
);

-- A queue without a row here is read from its beginning.
CREATE TABLE queues.consumed (
    client     text        NOT NULL,
    consumer   text        NOT NULL,
    queue      int         NOT NULL,
    position   bigint      NOT NULL,
    tries      int         NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (client, consumer, queue)
);

-- What a consumer refused for good. One that is to be tried again has `replay_at`.
CREATE TABLE queues.dead_letter (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    client     text        NOT NULL,
    consumer   text        NOT NULL,
    remote     text        NOT NULL,
    position   bigint      NOT NULL,
    type       smallint    NOT NULL,
    seq        bigint      NOT NULL,
    index      int         NOT NULL,
    request    uuid,
    message_id text        NOT NULL,
    headers    jsonb,
    payload    bytea       NOT NULL,
    tries      int         NOT NULL,
    reason     text        NOT NULL,
    refused_at timestamptz NOT NULL DEFAULT now(),
    replay_at  timestamptz
);
CREATE INDEX dead_letter_replay ON queues.dead_letter (client, consumer, id) WHERE replay_at IS NOT NULL;

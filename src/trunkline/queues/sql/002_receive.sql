-- Receiving: one table for all receive queues, and the positions that commit together with what arrived.
CREATE TABLE queues.queue (
    id     int    GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    client text   NOT NULL,
    remote text   NOT NULL,
    name   text   NOT NULL GENERATED ALWAYS AS ('LRQ_Recv_' || client || '_' || remote) STORED,
    head   bigint NOT NULL DEFAULT 0,
    UNIQUE (client, remote),
    UNIQUE (name)
);

-- `position` is dense per queue, from 1, in order of arrival; `seq` is the origin's number.
CREATE TABLE queues.receive (
    queue       int         NOT NULL,
    position    bigint      NOT NULL,
    seq         bigint      NOT NULL,
    headers     jsonb       NOT NULL,
    payload     bytea       NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, position)
);

-- The destination's position per origin and client: (seq, mark) in that log. A row of the client '' is
-- written by a reset: it says which log the next positions will be of.
CREATE TABLE queues.session (
    origin     text        NOT NULL,
    client     text        NOT NULL,
    log_id     text        NOT NULL,
    seq        bigint      NOT NULL,
    mark       bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (origin, client)
);

-- What the bridge keeps for itself.
CREATE SCHEMA bridge;

-- Taken in and not yet applied. `key` is '' for a complete bundle, so that at most one waits per site and type; for an
-- append bundle it is the bundle's id. Intake and workers lock rows in the order of the primary key.
CREATE TABLE bridge.inbox (
    site                   text        NOT NULL,
    type                   text        NOT NULL,
    key                    text        NOT NULL,
    incarnation            bigint      NOT NULL,
    generation             bigint      NOT NULL,
    dependency_type        text,
    dependency_incarnation bigint,
    dependency_generation  bigint,
    headers                jsonb       NOT NULL,
    data                   bytea       NOT NULL,
    queue                  text        NOT NULL,
    position               bigint      NOT NULL,
    arrived_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, type, key)
);

-- The newest version applied; it never goes back.
CREATE TABLE bridge.ledger (
    site        text        NOT NULL,
    type        text        NOT NULL,
    incarnation bigint      NOT NULL,
    generation  bigint      NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, type)
);

-- Refused on arrival, or failed at every try. The columns of a version are empty where there was no telling.
CREATE TABLE bridge.quarantine (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    site           text        NOT NULL,
    type           text,
    key            text,
    incarnation    bigint,
    generation     bigint,
    headers        jsonb       NOT NULL,
    payload        bytea       NOT NULL,
    reason         text        NOT NULL,
    queue          text        NOT NULL,
    position       bigint      NOT NULL,
    quarantined_at timestamptz NOT NULL DEFAULT now()
);

-- The batch that was promised to Spark and is not yet taken in: at most one per reader group.
CREATE TABLE bridge.plan (
    reader_group text        PRIMARY KEY,
    epoch        bigint      NOT NULL,
    from_offsets jsonb       NOT NULL,
    to_offsets   jsonb       NOT NULL,
    revision     bigint,
    planned_at   timestamptz NOT NULL DEFAULT now()
);

-- received = conflated + rejected + stale + applied + quarantined + what is in the inbox.
CREATE TABLE bridge.counter (
    site          text   PRIMARY KEY,
    received      bigint NOT NULL DEFAULT 0,
    conflated     bigint NOT NULL DEFAULT 0,
    rejected      bigint NOT NULL DEFAULT 0,
    stale         bigint NOT NULL DEFAULT 0,
    applied       bigint NOT NULL DEFAULT 0,
    quarantined   bigint NOT NULL DEFAULT 0,
    rows_received bigint NOT NULL DEFAULT 0,
    rows_written  bigint NOT NULL DEFAULT 0
);

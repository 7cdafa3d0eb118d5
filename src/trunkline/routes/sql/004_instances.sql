-- Processes of this site that hold its routing table. One that is alive renews `heartbeat_at`; `runs` is what it can run.
CREATE TABLE site.instance (
    id           text        PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN ('node', 'pipeline')),
    runs         text[]      NOT NULL DEFAULT '{}',
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What people see of a session, at either end; written by the leader now and then, read by anybody.
CREATE TABLE queues.status (
    role       text        NOT NULL CHECK (role IN ('source', 'sink')),
    remote     text        NOT NULL,
    client     text        NOT NULL,
    status     jsonb       NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (role, remote, client)
);

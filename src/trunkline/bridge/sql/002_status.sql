-- What users see. `updated_at` is when the hub wrote the row; a row that did not change is not written.
CREATE SCHEMA status;

-- Offsets, stored in the transaction that takes their bundles in. `payload` is {"next": position to read next}.
CREATE TABLE status.transport (
    reader_group text        NOT NULL,
    queue        text        NOT NULL,
    payload      jsonb       NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (reader_group, queue)
);

CREATE TABLE status.cluster (
    site       text        NOT NULL,
    name       text        NOT NULL,
    health     text        NOT NULL,
    revision   bigint      NOT NULL,
    changed_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (site, name)
);

CREATE TABLE status.compliance (
    site       text        NOT NULL,
    cluster    text        NOT NULL,
    policy     text        NOT NULL,
    state      text        NOT NULL,
    changed_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (site, cluster, policy)
);

CREATE TABLE status.event (
    site       text        NOT NULL,
    id         text        NOT NULL,
    kind       text        NOT NULL,
    subject    text        NOT NULL,
    severity   text        NOT NULL,
    at         timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (site, id)
);

-- Snapshots at their source: who provides them, who asked, and the data on its way.

CREATE TABLE queues.provider (
    client        text        PRIMARY KEY,
    owner         text        NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now(),
    seen_at       timestamptz NOT NULL DEFAULT now()
);

-- wanted → ready (the stamper exported its snapshot; base is its head) → providing → complete → done,
-- or from any of them: superseded, cancelled, failed. Destinations may join while it is `wanted`, and leave at any time.
-- From `ready` on, nothing after `base` is trimmed until it is over (H18). A request has one base for ever: what must
-- begin anew is another request.
CREATE TABLE queues.request (
    id           uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    client       text        NOT NULL,
    destinations text[]      NOT NULL,
    reason       text        NOT NULL,
    forced       boolean     NOT NULL DEFAULT false,
    state        text        NOT NULL DEFAULT 'wanted'
                 CHECK (state IN ('wanted', 'ready', 'providing', 'complete', 'done', 'superseded', 'cancelled', 'failed')),
    base         bigint,
    base_mark    bigint,
    snapshot     text,
    incarnation  bigint,
    provider     text,
    chunks       int         NOT NULL DEFAULT 0,
    records      int         NOT NULL DEFAULT 0,
    bytes        bigint      NOT NULL DEFAULT 0,
    progress     smallint    CHECK (progress BETWEEN 0 AND 100),
    error        text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX request_open ON queues.request (client) WHERE state IN ('wanted', 'ready', 'providing', 'complete');

-- LRQ_Send_SnapSync. Chunks are dense from 0; `body` is what travels: msgpack of [[headers, payload], ...].
CREATE TABLE queues.send_snapshot (
    request uuid  NOT NULL,
    chunk   int   NOT NULL,
    records int   NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (request, chunk)
);
ALTER TABLE queues.send_snapshot ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE queues.delivery (
    request     uuid        NOT NULL,
    destination text        NOT NULL,
    done_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (request, destination)
);

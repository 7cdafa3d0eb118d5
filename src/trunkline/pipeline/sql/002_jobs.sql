-- Route jobs (trunkline.pipeline.jobs): the live routes of each receiver group, and how far its events are routed. Everything
-- here is written under the lease of the group.

-- `revision` counts the changes of the group's set of routes, `moves` the batches that are done. Both only grow. `looked`: no
-- new plan names an older revision than this one.
CREATE TABLE pipeline.job (
    reader_group text   COLLATE "C" PRIMARY KEY,
    revision     bigint NOT NULL DEFAULT 0,
    moves        bigint NOT NULL DEFAULT 0,
    looked       bigint NOT NULL DEFAULT 0
);

-- The routes of a group by revision: one was live from `since` on, up to and without `until`. So any revision that a plan
-- names can be read, and going from one to the next costs what changed between them. `needs`: what an event must hold to get
-- through its first filters; by that it is found, and only one that is found has to be compiled.
CREATE TABLE pipeline.job_route (
    reader_group text   COLLATE "C" NOT NULL,
    hash         text   COLLATE "C" NOT NULL,
    org          text   COLLATE "C" NOT NULL,
    app          text   COLLATE "C" NOT NULL,
    id           text   COLLATE "C" NOT NULL,
    body         json   NOT NULL,
    needs        json   NOT NULL,
    since        bigint NOT NULL,
    until        bigint,
    PRIMARY KEY (reader_group, hash, since)
);
CREATE INDEX job_route_since ON pipeline.job_route (reader_group, since);
CREATE INDEX job_route_until ON pipeline.job_route (reader_group, until) WHERE until IS NOT NULL;

-- The batch that was promised to Spark and is not done: at most one per group (H29). `moves` is the batch it follows,
-- `body` what it reads, `waiting` the routes that only append to their outbox while it runs.
CREATE TABLE pipeline.job_plan (
    reader_group text        COLLATE "C" PRIMARY KEY,
    epoch        bigint      NOT NULL,
    revision     bigint      NOT NULL,
    moves        bigint      NOT NULL,
    body         jsonb       NOT NULL,
    waiting      text[]      NOT NULL,
    planned_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Batches that are done, for whoever asks when a record was routed, and by which revision; kept for a day.
CREATE TABLE pipeline.job_batch (
    reader_group text        COLLATE "C" NOT NULL,
    moves        bigint      NOT NULL,
    revision     bigint      NOT NULL,
    body         jsonb       NOT NULL,
    events       bigint      NOT NULL,
    planned_at   timestamptz NOT NULL,
    done_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (reader_group, moves)
);
CREATE INDEX job_batch_done ON pipeline.job_batch (done_at);

-- What filters of a route remember and hold back. `due`: when they would give something though no event comes, in unix seconds.
CREATE TABLE pipeline.job_state (
    reader_group text             COLLATE "C" NOT NULL,
    hash         text             COLLATE "C" NOT NULL,
    state        json             NOT NULL,
    due          double precision,
    version      bigint           NOT NULL,
    PRIMARY KEY (reader_group, hash)
);

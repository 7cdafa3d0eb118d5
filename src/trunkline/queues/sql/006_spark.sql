-- What Spark's queries leave here, so that one which dies, or whose checkpoint is another's, neither skips nor repeats.

-- The batch that a query reads as a named consumer: {queue: position to read next}, before and after it.
CREATE TABLE queues.spark_plan (
    client       text        NOT NULL,
    consumer     text        NOT NULL,
    from_offsets jsonb       NOT NULL,
    to_offsets   jsonb       NOT NULL,
    planned_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (client, consumer)
);

-- How many rows of a batch's partition are in the send log, and the digest of them in their order.
CREATE TABLE queues.spark_append (
    query      text        NOT NULL,
    run        text        NOT NULL,
    batch      bigint      NOT NULL,
    partition  int         NOT NULL,
    written    bigint      NOT NULL DEFAULT 0,
    digest     bytea       NOT NULL DEFAULT '',
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (query, run, batch, partition)
);

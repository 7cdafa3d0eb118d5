-- What the pipeline keeps of the Kafka topics it reads. All of it changes in the transaction that takes a batch in.
CREATE SCHEMA pipeline;

-- Where every reader group stands. A topic's id is its identity: the same name with another id is another topic.
CREATE TABLE pipeline.kafka_offset (
    reader_group text        NOT NULL,
    topic        text        NOT NULL,
    partition    int         NOT NULL,
    topic_id     text        NOT NULL,
    next_offset  bigint      NOT NULL CHECK (next_offset >= 0),
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (reader_group, topic, partition)
);

-- The batch that was promised to Spark and is not yet taken in: at most one per reader group. `stand` names the offsets it
-- begins at; `moves` are the partitions it covers, `changes` the topics that are no longer what they were.
CREATE TABLE pipeline.kafka_plan (
    reader_group text        PRIMARY KEY,
    epoch        bigint      NOT NULL,
    stand        text        NOT NULL,
    moves        jsonb       NOT NULL,
    changes      jsonb       NOT NULL,
    revision     bigint,
    planned_at   timestamptz NOT NULL DEFAULT now()
);

-- Records that the broker trimmed before they were read: from_offset up to and without to_offset.
CREATE TABLE pipeline.kafka_gap (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reader_group text        NOT NULL,
    topic        text        NOT NULL,
    partition    int         NOT NULL,
    topic_id     text        NOT NULL,
    from_offset  bigint      NOT NULL,
    to_offset    bigint      NOT NULL CHECK (to_offset > from_offset),
    at           timestamptz NOT NULL DEFAULT now()
);

-- Topics that were made anew under their name, or deleted (new_id is empty), and where their readers stood.
CREATE TABLE pipeline.kafka_change (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reader_group text        NOT NULL,
    topic        text        NOT NULL,
    old_id       text        NOT NULL,
    new_id       text,
    stood        jsonb       NOT NULL,
    at           timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON pipeline.kafka_change (reader_group, old_id);

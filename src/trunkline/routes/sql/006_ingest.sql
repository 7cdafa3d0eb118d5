-- Ingest: events that nodes took and a pipeline routes. One row per receiver: `head` is the position of its last event, `total`
-- the bytes of all up to there, and everything up to `position` is routed. Whoever appends locks the row, so positions are dense
-- and in the order of the commits. `source` says where the receiver's events come from.
CREATE TABLE routes.ingest (
    receiver text COLLATE "C" PRIMARY KEY,
    org      text COLLATE "C" NOT NULL,
    app      text COLLATE "C" NOT NULL,
    source   text COLLATE "C" NOT NULL,
    head     bigint           NOT NULL,
    total    bigint           NOT NULL,
    position bigint           NOT NULL DEFAULT 0
);

-- The events that are not routed. `total`: bytes of all events of the receiver up to and with this one.
CREATE TABLE routes.ingest_event (
    receiver text COLLATE "C" NOT NULL,
    position bigint           NOT NULL,
    total    bigint           NOT NULL,
    event    json             NOT NULL,
    PRIMARY KEY (receiver, position)
);

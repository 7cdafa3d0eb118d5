-- What a site that reports its status keeps for itself.
CREATE SCHEMA reporter;

-- The incarnation of the reporter that sends as this client; raised at each start, and never below the unix time (H02).
CREATE TABLE reporter.run (
    client      text        PRIMARY KEY,
    incarnation bigint      NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now()
);

-- The newest bundle of each type, written in the transaction that sends it. Whoever sends has the row locked, so generations
-- are in the order of what they hold. `digest` tells whether anything has changed since.
CREATE TABLE reporter.sent (
    client      text        NOT NULL,
    type        text        NOT NULL,
    incarnation bigint      NOT NULL DEFAULT 0,
    generation  bigint      NOT NULL DEFAULT 0,
    digest      text        NOT NULL DEFAULT '',
    sent_at     timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (client, type)
);

-- Types that the hub has asked for and that are not sent yet.
CREATE TABLE reporter.wanted (
    client    text        NOT NULL,
    type      text        NOT NULL,
    wanted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (client, type)
);

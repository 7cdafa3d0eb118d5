-- What deltas, runs of senders, chunks, resyncs and silent sites need.

-- `arrival` is the order in which bundles came: the order of deltas and hybrids. `value` is what dependents name. `restores`: with
-- this bundle a resync begins, so that what came before it no longer matters. For delta and hybrid bundles `key` is the id.
CREATE SEQUENCE bridge.arrival;
ALTER TABLE bridge.inbox
    ADD COLUMN mode       text        NOT NULL DEFAULT 'complete',
    ADD COLUMN value      bigint,
    ADD COLUMN restores   boolean     NOT NULL DEFAULT false,
    ADD COLUMN arrival    bigint      NOT NULL DEFAULT nextval('bridge.arrival'),
    ADD COLUMN event_time timestamptz;
CREATE INDEX inbox_order ON bridge.inbox (site, type, arrival) WHERE mode <> 'complete';

-- `value` is what dependents name. `event_time` is when the site sent what was applied last.
ALTER TABLE bridge.ledger ADD COLUMN value bigint, ADD COLUMN event_time timestamptz;
UPDATE bridge.ledger SET value = generation;
ALTER TABLE bridge.ledger ALTER COLUMN value SET NOT NULL;

-- Open until a newer bundle is applied (cleared), or somebody tries it again (retried) or gives it up (dropped).
ALTER TABLE bridge.quarantine
    ADD COLUMN mode       text,
    ADD COLUMN value      bigint,
    ADD COLUMN state      text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'cleared', 'retried', 'dropped')),
    ADD COLUMN settled_at timestamptz;
CREATE INDEX quarantine_open ON bridge.quarantine (site, type) WHERE state = 'open';

-- discarded: deltas whose base is gone. joined: chunks that became part of a bundle. expired: chunks whose rest never came.
-- received = conflated + rejected + stale + applied + quarantined + discarded + joined + expired + what is in inbox and chunk.
ALTER TABLE bridge.counter
    ADD COLUMN discarded bigint NOT NULL DEFAULT 0,
    ADD COLUMN joined    bigint NOT NULL DEFAULT 0,
    ADD COLUMN expired   bigint NOT NULL DEFAULT 0;

-- The run of a sender that keeps no incarnation (H39): counted here, by its session or by a generation that begins at 0 again.
-- `began_with` is the id of the bundle that began it: the same bundle again begins nothing.
CREATE TABLE bridge.run (
    site        text   NOT NULL,
    type        text   NOT NULL,
    incarnation bigint NOT NULL,
    session     text   NOT NULL,
    began_with  text   NOT NULL,
    PRIMARY KEY (site, type)
);

-- Parts of bundles that are not whole yet. `message` tells bundles of one site and type apart; ids cannot, for some senders
-- give every part its own.
CREATE TABLE bridge.chunk (
    site       text        NOT NULL,
    type       text        NOT NULL,
    message    text        NOT NULL,
    size       bigint      NOT NULL,
    end_byte   bigint      NOT NULL,
    body       bytea       NOT NULL,
    headers    jsonb       NOT NULL,
    queue      text        NOT NULL,
    position   bigint      NOT NULL,
    arrived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, type, message, size, end_byte)
);
CREATE INDEX chunk_age ON bridge.chunk (arrived_at);

-- Wanted from a site: all it has of `type`. Asked for again and again until it is applied. `holds` is the type whose bundles
-- wait for it, because one before them was lost (H37).
CREATE TABLE bridge.resync (
    site      text        NOT NULL,
    type      text        NOT NULL,
    holds     text,
    reason    text        NOT NULL,
    wanted_at timestamptz NOT NULL DEFAULT now(),
    asked_at  timestamptz,
    asks      int         NOT NULL DEFAULT 0,
    PRIMARY KEY (site, type)
);

-- Every site that was heard. `last_seen` is the time its newest bundle says it was sent, never the hub's own clock.
CREATE TABLE bridge.site (
    site        text        PRIMARY KEY,
    transport   text        NOT NULL,
    first_seen  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL,
    state       text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'silent')),
    state_since timestamptz NOT NULL DEFAULT now()
);

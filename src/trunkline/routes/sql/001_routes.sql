-- The routing table of this site: routes, their configurations, tenants and fragments (trunkline.routes.storage).
CREATE SCHEMA routes;

-- One row. Whoever changes a route locks it first: so revisions are given in the order of the commits, each once (H40), and
-- everything that a change looks at stays as it is until it is done.
CREATE TABLE routes.counter (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision bigint  NOT NULL
);
INSERT INTO routes.counter (revision) VALUES (0);

-- Each configuration once; `json` keeps the text as it was written, so that it is read as it was hashed.
CREATE TABLE routes.config (
    hash text COLLATE "C" PRIMARY KEY,
    body json NOT NULL
);

-- No foreign key to the configuration: under the counter's lock nobody else adds or drops one, and a check for each row
-- would cost more than the row.
CREATE TABLE routes.route (
    org      text COLLATE "C" NOT NULL,
    app      text COLLATE "C" NOT NULL,
    id       text COLLATE "C" NOT NULL,
    hash     text COLLATE "C" NOT NULL,
    notes    text             NOT NULL,
    revision bigint           NOT NULL,
    created  timestamptz      NOT NULL,
    modified timestamptz      NOT NULL,
    PRIMARY KEY (org, app, id)
);
CREATE INDEX route_hash ON routes.route (hash);

-- Routes that are gone, for as long as an instance may still hold one.
CREATE TABLE routes.removal (
    org        text COLLATE "C" NOT NULL,
    app        text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    revision   bigint           NOT NULL,
    removed_at timestamptz      NOT NULL,
    PRIMARY KEY (org, app, id)
);

CREATE TABLE routes.tenant (
    org               text COLLATE "C" NOT NULL,
    app               text COLLATE "C" NOT NULL,
    events_per_second double precision,
    clients           text[]           NOT NULL,
    open_events       boolean          NOT NULL,
    modified          timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org, app)
);

CREATE TABLE routes.fragment (
    org      text COLLATE "C" NOT NULL,
    app      text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    body     json             NOT NULL,
    modified timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org, app, name)
);

-- One change, as a whole or not at all, as one statement: a client that is paused or killed in between holds no lock.
--   hashes      of each route; '' removes it
--   texts       their notes, as JSON
--   expects     the revision it must be at, 0 if it must not be there, -1 whatever is there
--   new_hashes  the configurations that the routes name, each once, with their bodies
-- First row: the revision and the moment of routes that were not there before. Then one row for each put route of which this
-- is not true, with its place in the arrays.
-- TL201: a route is not as expected; the detail is its place and the revision it is at.
-- Plans are made for the arrays at hand: one route and a hundred thousand want different ones.
CREATE FUNCTION routes.change(
    orgs text[], apps text[], ids text[], hashes text[], texts text[], expects bigint[], new_hashes text[], new_bodies text[]
) RETURNS TABLE (place bigint, revision bigint, created timestamptz, modified timestamptz)
LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    mine   bigint;
    moment timestamptz;
    off    record;
    left_  text[];
    puts   bigint;
    added  bigint;
    moved  bigint := 0;
    gone   bigint := 0;
BEGIN
    SELECT c.revision + 1 INTO STRICT mine FROM routes.counter c FOR UPDATE;
    moment := clock_timestamp();

    IF 0 <= ANY (expects) THEN
        SELECT w.place, coalesce(r.revision, 0) AS found INTO off
          FROM unnest(orgs, apps, ids, expects) WITH ORDINALITY AS w (org, app, id, expect, place)
          LEFT JOIN routes.route r USING (org, app, id)
         WHERE w.expect >= 0 AND w.expect <> coalesce(r.revision, 0) ORDER BY w.place LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a route is not as expected' USING ERRCODE = 'TL201', DETAIL = off.place || ' ' || off.found;
        END IF;
    END IF;

    INSERT INTO routes.config (hash, body)
    SELECT n.hash, n.body::json FROM unnest(new_hashes, new_bodies) AS n (hash, body) ON CONFLICT DO NOTHING;

    INSERT INTO routes.route (org, app, id, hash, notes, revision, created, modified)
    SELECT w.org, w.app, w.id, w.hash, w.notes, mine, moment, moment
      FROM unnest(orgs, apps, ids, hashes, texts) AS w (org, app, id, hash, notes) WHERE w.hash <> ''
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    puts := cardinality(hashes) - cardinality(array_positions(hashes, ''));

    -- What was there before, and is to be changed or removed.
    IF added < cardinality(hashes) THEN
        left_ := ARRAY(
            SELECT DISTINCT r.hash FROM unnest(orgs, apps, ids, hashes) AS w (org, app, id, hash)
              JOIN routes.route r USING (org, app, id) WHERE r.hash <> w.hash);
    END IF;
    IF added < puts THEN
        UPDATE routes.route r SET hash = w.hash, notes = w.notes, revision = mine, modified = moment
          FROM unnest(orgs, apps, ids, hashes, texts) AS w (org, app, id, hash, notes)
         WHERE w.hash <> '' AND (r.org, r.app, r.id) = (w.org, w.app, w.id) AND (r.hash, r.notes) <> (w.hash, w.notes);
        GET DIAGNOSTICS moved = ROW_COUNT;
    END IF;
    IF puts < cardinality(hashes) THEN
        WITH gone AS (
            DELETE FROM routes.route r USING unnest(orgs, apps, ids, hashes) AS w (org, app, id, hash)
             WHERE w.hash = '' AND (r.org, r.app, r.id) = (w.org, w.app, w.id) RETURNING r.org, r.app, r.id)
        INSERT INTO routes.removal (org, app, id, revision, removed_at)
        SELECT g.org, g.app, g.id, mine, moment FROM gone g;
        GET DIAGNOSTICS gone = ROW_COUNT;
    END IF;

    IF added > 0 AND EXISTS (SELECT FROM routes.removal) THEN
        DELETE FROM routes.removal x USING unnest(orgs, apps, ids, hashes) AS w (org, app, id, hash)
         WHERE w.hash <> '' AND (x.org, x.app, x.id) = (w.org, w.app, w.id);
    END IF;
    IF left_ <> '{}' THEN
        DELETE FROM routes.config c WHERE c.hash = ANY (left_)
           AND NOT EXISTS (SELECT FROM routes.route r WHERE r.hash = c.hash);
    END IF;
    IF added + moved + gone > 0 THEN
        UPDATE routes.counter SET revision = mine;
    END IF;

    RETURN QUERY SELECT 0::bigint, mine, moment, moment;
    IF added < puts THEN
        RETURN QUERY
            SELECT w.place, r.revision, r.created, r.modified
              FROM unnest(orgs, apps, ids, hashes) WITH ORDINALITY AS w (org, app, id, hash, place)
              JOIN routes.route r USING (org, app, id) WHERE w.hash <> '' AND (r.created <> moment OR r.revision <> mine);
    END IF;
END $$;

-- TL202: it still has routes; the detail is their number.
CREATE FUNCTION routes.remove_tenant(of_org text, of_app text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM FROM routes.counter FOR UPDATE;
    SELECT count(*) INTO number FROM routes.route WHERE (org, app) = (of_org, of_app);
    IF number > 0 THEN
        RAISE EXCEPTION 'the tenant has routes' USING ERRCODE = 'TL202', DETAIL = number;
    END IF;
    DELETE FROM routes.fragment WHERE (org, app) = (of_org, of_app);
    DELETE FROM routes.tenant WHERE (org, app) = (of_org, of_app);
    RETURN FOUND;
END $$;

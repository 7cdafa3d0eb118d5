-- Live routes with messages that wait for another try (H33). Whoever appends locks the lane, so its messages are numbered in
-- the order of the commits. `plugin` is the sender's; `tries` counts those in vain since the last success, `reason` says why;
-- `holder` drains it until `held_until`.
CREATE TABLE routes.lane (
    hash       text COLLATE "C" PRIMARY KEY,
    org        text COLLATE "C" NOT NULL,
    app        text COLLATE "C" NOT NULL,
    route      text COLLATE "C" NOT NULL,
    plugin     text             NOT NULL,
    messages   bigint           NOT NULL,
    tries      integer          NOT NULL DEFAULT 0,
    reason     text             NOT NULL,
    since      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    next_at    timestamptz      NOT NULL DEFAULT clock_timestamp(),
    holder     text             NOT NULL DEFAULT '',
    held_until timestamptz      NOT NULL DEFAULT '-infinity'
);

-- What waits in a lane, in order of `seq`: JSON of a message for its sender or, of a dead letter that is tried again, of an event
-- for the filter `step`. `came`: when the event came in, in unix seconds.
CREATE TABLE routes.outbox (
    hash       text COLLATE "C" NOT NULL,
    seq        bigint           GENERATED ALWAYS AS IDENTITY,
    step       text             NOT NULL DEFAULT 'sender',
    message_id text             NOT NULL,
    source     text             NOT NULL,
    message    json             NOT NULL,
    reason     text             NOT NULL,
    came       double precision NOT NULL,
    at         timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (hash, seq)
);

-- What no route could bring to its end. `step`: the filter that could not process it, or where it failed behind the filters;
-- `content`: JSON of the message if that was the sender, else of the event as it came there.
CREATE TABLE routes.dead_letter (
    id         bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org        text COLLATE "C" NOT NULL,
    app        text COLLATE "C" NOT NULL,
    route      text COLLATE "C" NOT NULL,
    hash       text COLLATE "C" NOT NULL,
    plugin     text             NOT NULL,
    step       text             NOT NULL,
    message_id text             NOT NULL,
    source     text             NOT NULL,
    content    json             NOT NULL,
    reason     text             NOT NULL,
    came       double precision NOT NULL,
    tries      integer          NOT NULL,
    at         timestamptz      NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX dead_letter_of_route ON routes.dead_letter (org, app, route, id);

-- Ids of messages that were sent once, written in the transaction that sent them; kept for a week.
CREATE TABLE routes.sent (
    message_id text        PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX sent_at ON routes.sent (at);

-- Appends messages to a lane; gives how many found room below its cap. The others are dead letters.
CREATE FUNCTION routes.keep(
    lane text, of_org text, of_app text, of_route text, of_plugin text, cap bigint,
    ids text[], sources text[], texts text[], reasons text[], times double precision[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    wanted bigint := cardinality(ids);
    room   bigint;
BEGIN
    INSERT INTO routes.lane AS l (hash, org, app, route, plugin, messages, reason)
    VALUES (lane, of_org, of_app, of_route, of_plugin, wanted, reasons[1])
    ON CONFLICT (hash) DO UPDATE SET messages = l.messages + wanted
    RETURNING greatest(0, least(wanted, cap - (l.messages - wanted))) INTO room;
    INSERT INTO routes.outbox (hash, message_id, source, message, reason, came)
    SELECT lane, u.id, u.source, u.body::json, u.reason, u.came
      FROM unnest(ids, sources, texts, reasons, times) WITH ORDINALITY AS u (id, source, body, reason, came, place)
     WHERE u.place <= room ORDER BY u.place;
    IF room < wanted THEN
        UPDATE routes.lane l SET messages = l.messages - (wanted - room) WHERE l.hash = lane;
        INSERT INTO routes.dead_letter (org, app, route, hash, plugin, step, message_id, source, content, reason, came, tries)
        SELECT of_org, of_app, of_route, lane, of_plugin, 'sender', u.id, u.source, u.body::json,
               'the route''s outbox is full; ' || u.reason, u.came, 0
          FROM unnest(ids, sources, texts, reasons, times) WITH ORDINALITY AS u (id, source, body, reason, came, place)
         WHERE u.place > room ORDER BY u.place;
    END IF;
    RETURN room;
END $$;

-- What became of a lane's first messages: those that are gone, those that are dead letters. A failure waits until the next try.
-- Nothing happens unless `me` still holds the lane. Gives how many are left; the lane goes with its last message.
CREATE FUNCTION routes.drained(
    lane text, me text, gone bigint[], dead bigint[], whys text[], failure text, pause double precision, hold double precision
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    mine    routes.lane;
    removed bigint;
BEGIN
    SELECT * INTO mine FROM routes.lane l WHERE l.hash = lane AND l.holder = me FOR UPDATE;
    IF NOT FOUND THEN
        RETURN -1;
    END IF;
    WITH away AS (
        DELETE FROM routes.outbox o WHERE o.hash = lane AND o.seq = ANY (gone || dead) RETURNING o.*),
    letters AS (
        INSERT INTO routes.dead_letter (org, app, route, hash, plugin, step, message_id, source, content, reason, came, tries)
        SELECT mine.org, mine.app, mine.route, lane, mine.plugin, a.step, a.message_id, a.source, a.message, w.why, a.came,
               mine.tries + 1
          FROM away a JOIN unnest(dead, whys) AS w (seq, why) USING (seq) ORDER BY a.seq)
    SELECT count(*) INTO removed FROM away;
    IF mine.messages <= removed THEN
        DELETE FROM routes.lane l WHERE l.hash = lane;
        RETURN 0;
    END IF;
    UPDATE routes.lane l
       SET messages = l.messages - removed,
           tries = CASE WHEN failure = '' THEN 0 ELSE l.tries + 1 END,
           reason = CASE WHEN failure = '' THEN l.reason ELSE failure END,
           next_at = clock_timestamp() + make_interval(secs => pause),
           held_until = clock_timestamp() + make_interval(secs => hold),
           holder = CASE WHEN hold > 0 THEN me ELSE '' END
     WHERE l.hash = lane;
    RETURN mine.messages - removed;
END $$;

-- A route was updated: what waits in its old lane goes behind what waits in the new one.
CREATE FUNCTION routes.move_lane(old text, lane text, of_org text, of_app text, of_route text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    from_lane routes.lane;
BEGIN
    PERFORM FROM routes.lane l WHERE l.hash IN (old, lane) ORDER BY l.hash FOR UPDATE;
    SELECT * INTO from_lane FROM routes.lane l WHERE l.hash = old;
    IF NOT FOUND OR old = lane THEN
        RETURN 0;
    END IF;
    INSERT INTO routes.lane AS l (hash, org, app, route, plugin, messages, reason)
    VALUES (lane, of_org, of_app, of_route, from_lane.plugin, from_lane.messages, from_lane.reason)
    ON CONFLICT (hash) DO UPDATE SET messages = l.messages + from_lane.messages;
    WITH away AS (DELETE FROM routes.outbox o WHERE o.hash = old RETURNING o.*)
    INSERT INTO routes.outbox (hash, step, message_id, source, message, reason, came, at)
    SELECT lane, a.step, a.message_id, a.source, a.message, a.reason, a.came, a.at FROM away a ORDER BY a.seq;
    DELETE FROM routes.lane l WHERE l.hash = old;
    RETURN from_lane.messages;
END $$;

-- A lane that no route will ever send becomes dead letters.
CREATE FUNCTION routes.bury_lane(lane text, why text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    mine   routes.lane;
    number bigint;
BEGIN
    SELECT * INTO mine FROM routes.lane l WHERE l.hash = lane FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    WITH away AS (DELETE FROM routes.outbox o WHERE o.hash = lane RETURNING o.*)
    INSERT INTO routes.dead_letter (org, app, route, hash, plugin, step, message_id, source, content, reason, came, tries)
    SELECT mine.org, mine.app, mine.route, lane, mine.plugin, a.step, a.message_id, a.source, a.message,
           why || '; ' || a.reason, a.came, mine.tries
      FROM away a ORDER BY a.seq;
    GET DIAGNOSTICS number = ROW_COUNT;
    DELETE FROM routes.lane l WHERE l.hash = lane;
    RETURN number;
END $$;

-- Dead letters are tried again: they go behind what waits in their lanes. Gives how many there were.
CREATE FUNCTION routes.replay(letters bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM FROM routes.dead_letter d WHERE d.id = ANY (letters) ORDER BY d.id FOR UPDATE;
    INSERT INTO routes.lane AS l (hash, org, app, route, plugin, messages, reason)
    SELECT d.hash, min(d.org), min(d.app), min(d.route), min(d.plugin), count(*), 'it was a dead letter'
      FROM routes.dead_letter d WHERE d.id = ANY (letters) GROUP BY d.hash ORDER BY d.hash
    ON CONFLICT (hash) DO UPDATE SET messages = l.messages + excluded.messages;
    WITH away AS (DELETE FROM routes.dead_letter d WHERE d.id = ANY (letters) RETURNING d.*)
    INSERT INTO routes.outbox (hash, step, message_id, source, message, reason, came)
    SELECT a.hash, a.step, a.message_id, a.source, a.content, a.reason, a.came FROM away a ORDER BY a.id;
    GET DIAGNOSTICS number = ROW_COUNT;
    RETURN number;
END $$;

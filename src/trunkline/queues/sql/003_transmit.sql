-- transmit: appends to the send log inside the caller's own transaction. It touches no row that another transaction
-- may touch and notifies nobody (H08, H09). What it must remember of this transaction is a transaction-local setting,
-- which a rolled-back savepoint undoes together with the rows: "<xid> <slot> <entries> <bytes>".
--
-- Refusals (each fails the statement, before anything is written):
--   TL101 client name   TL102 no destination   TL103 unknown destination   TL104 message too large
--   TL105 too many entries   TL106 too many bytes in one transaction   TL107 headers
--   TL108 a payload is missing, or packs are not as long as their messages
--   TL109 no destination has room   TL110 this role may not send as that client
-- A transaction is carried whole: TL105 and TL106 stay below the credit and the buffers of every link (H10).
--
-- The functions of schema trunkline run as its owner, so that a role needs nothing but USAGE of that schema, EXECUTE of
-- them, and its row in queues.client_grant. Steps that every message takes are assignments: unlike PERFORM, they need
-- no query of their own.

CREATE FUNCTION queues.refuse(code text, why text, next_step text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', why USING ERRCODE = code, HINT = next_step;
END $$;

-- current_user is the owner here: see above. Returns the client.
CREATE FUNCTION queues.check_client(of_client text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF of_client IS NULL OR of_client !~ '^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$' THEN
        PERFORM queues.refuse('TL101', format('client name %L is not a name', of_client),
            'use 1 to 63 lower-case letters, digits, ''.'', ''_'' or ''-''');
    END IF;
    IF pg_has_role(session_user, current_user, 'MEMBER') THEN
        RETURN of_client;
    END IF;
    PERFORM FROM queues.client_grant g JOIN pg_roles r ON r.rolname = g.role
      WHERE g.client IN (of_client, '*') AND pg_has_role(session_user, r.oid, 'MEMBER');
    IF NOT FOUND THEN
        PERFORM queues.refuse('TL110', format('role %I may not send as client %s', session_user, of_client),
            format('let an owner run: trunkline queues grant %s %s', of_client, session_user));
    END IF;
    RETURN of_client;
END $$;

-- A set of destinations as it is stored: in order, without repetition.
CREATE FUNCTION queues.in_order(destinations text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    IF destinations = ARRAY[destinations[1]] THEN
        RETURN destinations;
    END IF;
    RETURN ARRAY(SELECT DISTINCT d COLLATE "C" FROM unnest(destinations) AS d ORDER BY 1);
END $$;

-- One destination over the cap stops nobody: it will get a snapshot. Only where all of them are, there is no room (H22).
-- '*' is never over it.
CREATE FUNCTION queues.is_room(of_client text, sites text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM unnest(sites) AS d WHERE NOT EXISTS (
        SELECT FROM queues.needs_snapshot n WHERE n.over_cap AND n.client = of_client AND n.destination = d));
END $$;

CREATE FUNCTION queues.check_sites(sites text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    unknown text;
BEGIN
    IF cardinality(sites) = 0 THEN
        PERFORM queues.refuse('TL102', 'no destination is given', 'name at least one site, or ''*'' for all');
    END IF;
    SELECT coalesce(d, 'NULL') INTO unknown FROM unnest(sites) AS d
     WHERE d IS DISTINCT FROM '*' AND NOT EXISTS (SELECT FROM queues.site s WHERE s.name = d) LIMIT 1;
    IF FOUND THEN
        PERFORM queues.refuse('TL103', format('destination %L is not a known site', unknown),
            'correct its name, or wait until this site has heard of it (table queues.site)');
    END IF;
END $$;

-- The set's number, or NULL for one that no round has interned yet. Sites are never forgotten, so the members of a set
-- that is interned need no second look.
CREATE FUNCTION queues.address(of_client text, sites text[]) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    known   int;
    is_over boolean;
BEGIN
    SELECT (SELECT s.id FROM queues.destination_set s WHERE s.digest = queues.set_digest(address.sites)),
           EXISTS (SELECT FROM queues.needs_snapshot n WHERE n.over_cap AND n.client = of_client)
      INTO known, is_over;
    IF known IS NULL THEN
        PERFORM queues.check_sites(sites);
    END IF;
    IF is_over AND NOT queues.is_room(of_client, sites) THEN
        PERFORM queues.refuse('TL109', format('%s: more is unacknowledged than may be', array_to_string(sites, ', ')),
            'send it again when they have caught up: trunkline.has_room() says when');
    END IF;
    RETURN known;
END $$;

-- An element may be NULL. Returns the bytes that they count for.
CREATE FUNCTION queues.check_headers(headers jsonb[], messages int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    fit     boolean;
    largest int;
    bytes   bigint;
BEGIN
    IF cardinality(headers) <> messages THEN
        PERFORM queues.refuse('TL107', format('%s headers for %s payloads', cardinality(headers), messages),
            'send one for each, or NULL');
    END IF;
    SELECT bool_and(jsonb_typeof(h) = 'object' AND NOT jsonb_path_exists(h, 'strict $.* ? (@.type() != "string")')),
           max(pg_column_size(h)), sum(pg_column_size(h)) INTO fit, largest, bytes
      FROM (SELECT unnest(headers) AS h) WHERE h <> '{}';
    IF NOT fit THEN
        PERFORM queues.refuse('TL107', 'headers are not an object of strings', 'send {"name": "value"} pairs');
    END IF;
    IF largest > 16384 THEN
        PERFORM queues.refuse('TL107', format('headers of %s bytes are over 16 KiB', largest), 'move them into the payload');
    END IF;
    RETURN coalesce(bytes, 0);
END $$;

-- Returns it.
CREATE FUNCTION queues.check_size(payload_bytes int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF payload_bytes > 1048576 THEN
        PERFORM queues.refuse('TL104', format('a payload of %s bytes is over 1 MiB', payload_bytes),
            'split it, or send a reference to it');
    END IF;
    RETURN payload_bytes;
END $$;

-- All messages at once; returns the bytes that they count for: payloads, headers, and a few for each.
CREATE FUNCTION queues.check_messages(payloads bytea[], headers jsonb[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    present int;
    largest int;
    bytes   bigint;
BEGIN
    IF array_dims(payloads) = '[1:1]' THEN
        largest := octet_length(payloads[1]);
        present := num_nonnulls(largest);
        bytes := largest + 8;
    ELSE
        SELECT count(p), max(octet_length(p)), sum(octet_length(p) + 8) INTO present, largest, bytes
          FROM (SELECT unnest(payloads) AS p);
    END IF;
    IF present < cardinality(payloads) THEN
        PERFORM queues.refuse('TL108', 'a payload is NULL', 'send an empty payload instead');
    END IF;
    largest := queues.check_size(largest);
    IF headers IS NOT NULL THEN
        bytes := bytes + queues.check_headers(headers, cardinality(payloads));
    END IF;
    RETURN bytes;
END $$;

-- What one transaction may hold. Returns true.
CREATE FUNCTION queues.check_bounds(entries bigint, bytes bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF entries > 1000 THEN
        PERFORM queues.refuse('TL105', format('%s entries in one transaction are over 1000', entries),
            'commit more often');
    END IF;
    IF bytes > 4194304 THEN
        PERFORM queues.refuse('TL106', format('%s bytes in one transaction are over 4 MiB', bytes),
            'commit more often');
    END IF;
    RETURN true;
END $$;

-- For a transaction that has forgotten what it sent before.
CREATE FUNCTION queues.check_whole(of_xid xid8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queues.check_bounds(
        sum(queues.messages(l.ends)),
        sum(octet_length(l.payload) + 8 * queues.messages(l.ends) + coalesce(pg_column_size(l.headers), 0))::bigint)
       FROM queues.send_log l WHERE l.xid = of_xid;
END $$;

-- Counts the messages into this transaction; true when they are its first. The first ones choose the slot for all.
CREATE FUNCTION queues.admit(entries bigint, bytes bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    me      text    := pg_current_xact_id()::text;
    sent    text[]  := string_to_array(current_setting('trunkline.sent', true), ' ');
    more    boolean := coalesce(sent[1] = me, false);
    slot    text    := sent[2];
    checked boolean;
    kept    text;
BEGIN
    IF more THEN
        entries := entries + sent[3]::bigint;
        bytes := bytes + sent[4]::bigint;
    ELSE
        SELECT s.slot INTO slot FROM queues.stamper s;
    END IF;
    checked := queues.check_bounds(entries, bytes);
    kept := set_config('trunkline.sent', concat_ws(' ', me, slot, entries, bytes), true);
    RETURN NOT more;
END $$;

CREATE FUNCTION queues.admitted_slot() RETURNS smallint LANGUAGE plpgsql AS $$
BEGIN
    RETURN split_part(current_setting('trunkline.sent'), ' ', 2)::smallint;
END $$;

-- Returns how many they were.
CREATE FUNCTION queues.append(of_client text, payloads bytea[], destinations text[], headers jsonb[])
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    sender     text   := queues.check_client(of_client);
    sites      text[] := queues.in_order(destinations);
    known      int    := queues.address(sender, sites);
    messages   int    := coalesce(cardinality(payloads), 0);
    are_first  boolean;
    their_slot smallint;
BEGIN
    IF messages = 0 THEN
        RETURN 0;
    END IF;
    IF known IS NOT NULL THEN
        sites := NULL;
    END IF;
    are_first := queues.admit(messages, queues.check_messages(payloads, headers));
    their_slot := queues.admitted_slot();
    INSERT INTO queues.send_log (slot, first, client, destination_set, destinations, headers, payload)
    SELECT their_slot, are_first AND nth = 1, sender, known, sites, nullif(h, '{}'), p
      FROM unnest(payloads, append.headers) WITH ORDINALITY AS message(p, h, nth);
    RETURN messages;
END $$;

-- The same for one message, which most transactions send: its usual course is two statements and no call. Whatever is
-- unusual is left to the functions above.
CREATE FUNCTION trunkline.transmit(client text, payload bytea, destinations text[], headers jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    me         text    := pg_current_xact_id()::text;
    sent       text[]  := string_to_array(current_setting('trunkline.sent', true), ' ');
    more       boolean := coalesce(sent[1] = me, false);
    to_sites   text[]  := destinations;
    entries    bigint  := 1;
    bytes      bigint  := octet_length(payload) + 8;
    known      int;
    is_over    boolean;
    their_slot smallint;
    kept       text;
BEGIN
    IF client IS NULL OR client !~ '^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$'
       OR NOT pg_has_role(session_user, current_user, 'MEMBER') THEN
        kept := queues.check_client(client);
    END IF;
    IF cardinality(to_sites) > 1 THEN
        to_sites := queues.in_order(to_sites);
    END IF;
    SELECT (SELECT s.id FROM queues.destination_set s WHERE s.digest = queues.set_digest(to_sites)),
           EXISTS (SELECT FROM queues.needs_snapshot n WHERE n.over_cap AND n.client = transmit.client),
           (SELECT s.slot FROM queues.stamper s)
      INTO known, is_over, their_slot;
    IF known IS NULL OR is_over THEN
        to_sites := queues.in_order(to_sites);
        known := queues.address(client, to_sites);
    END IF;
    IF headers = '{}' THEN
        headers := NULL;
    END IF;
    IF payload IS NULL OR bytes > 1048584 OR headers IS NOT NULL THEN
        bytes := queues.check_messages(ARRAY[payload], CASE WHEN headers IS NOT NULL THEN ARRAY[headers] END);
    END IF;
    IF more THEN
        their_slot := sent[2]::smallint;
        entries := entries + sent[3]::bigint;
        bytes := bytes + sent[4]::bigint;
        more := queues.check_bounds(entries, bytes);
    END IF;
    kept := set_config('trunkline.sent', concat_ws(' ', me, their_slot, entries, bytes), true);
    INSERT INTO queues.send_log (slot, first, client, destination_set, destinations, headers, payload)
    VALUES (their_slot, NOT more, client, known, CASE WHEN known IS NULL THEN to_sites END, headers, payload);
END $$;

-- The same destinations for all messages of a call; `headers` is NULL or has one element per payload.
CREATE FUNCTION trunkline.transmit_many(client text, payloads bytea[], destinations text[], headers jsonb[] DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    sent int := queues.append(client, payloads, destinations, headers);
BEGIN
END $$;

-- The same for many small messages without headers, which come in packs (see queues.send_log): `payloads` is all of
-- them, one after the other. Pack by pack, `starts` says where it begins, and `lasts` which message is its last. `ends`
-- says where each message ends in its pack. One value is passed on with fewer copies than an array of many.
CREATE FUNCTION trunkline.transmit_packs(
    client text, payloads bytea, starts int[], lasts int[], ends int[], destinations text[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    sender     text    := queues.check_client(client);
    to_sites   text[]  := queues.in_order(destinations);
    known      int     := queues.address(sender, to_sites);
    messages   int     := coalesce(cardinality(ends), 0);
    fits       boolean := starts[1] = 0 AND lasts[cardinality(lasts)] = messages AND cardinality(starts) = cardinality(lasts)
                          AND array_position(ends, NULL) IS NULL;
    largest    int;
    are_first  boolean;
    their_slot smallint;
BEGIN
    IF fits THEN
        SELECT bool_and(last > before AND start + ends[last] = next) AND (
                   SELECT bool_and(e >= 0 AND (e >= previous OR nth - 1 = ANY (lasts)))
                     FROM unnest(ends, 0 || ends) WITH ORDINALITY AS message(e, previous, nth)
               ), max(ends[last]) INTO fits, largest
          FROM (SELECT start, last, lag(last, 1, 0) OVER nth AS before, lead(start, 1, octet_length(payloads)) OVER nth AS next
                  FROM unnest(starts, lasts) WITH ORDINALITY AS pack(start, last, nth) WINDOW nth AS (ORDER BY nth));
    END IF;
    IF fits IS NOT TRUE THEN
        PERFORM queues.refuse('TL108', 'the packs are not as long as their messages', 'send them by transmit_many');
    END IF;
    largest := queues.check_size(largest);
    IF known IS NOT NULL THEN
        to_sites := NULL;
    END IF;
    are_first := queues.admit(messages, octet_length(payloads) + 8 * messages);
    their_slot := queues.admitted_slot();
    INSERT INTO queues.send_log (slot, first, client, destination_set, destinations, ends, payload)
    SELECT their_slot, are_first AND nth = 1, sender, known, to_sites, CASE WHEN last - before > 1 THEN ends[before + 1:last] END,
           substring(payloads FROM start + 1 FOR ends[last])
      FROM (SELECT start, last, lag(last, 1, 0) OVER (ORDER BY nth) AS before, nth
              FROM unnest(starts, lasts) WITH ORDINALITY AS pack(start, last, nth));
END $$;

-- Each message has its own destinations: a JSON array of arrays of names, one per payload.
CREATE FUNCTION trunkline.transmit_messages(
    client text, payloads bytea[], destinations jsonb, headers jsonb[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    messages   int := coalesce(cardinality(payloads), 0);
    are_first  boolean;
    their_slot smallint;
BEGIN
    PERFORM queues.check_client(client);
    IF messages = 0 THEN
        RETURN;
    END IF;
    IF jsonb_path_query_first(destinations, 'strict $.size()', silent => true) IS DISTINCT FROM to_jsonb(messages)
       OR jsonb_path_exists(destinations, 'strict $[*] ? (@.type() != "array")') THEN
        PERFORM queues.refuse('TL102', format('there is not one list of destinations for each of %s payloads', messages),
            'send a JSON array with as many arrays of names');
    END IF;
    are_first := queues.admit(messages, queues.check_messages(payloads, headers));
    their_slot := queues.admitted_slot();
    WITH named AS MATERIALIZED (
        SELECT list, sites, queues.address(transmit_messages.client, sites) AS known
          FROM (SELECT list, queues.in_order(ARRAY(SELECT jsonb_array_elements_text(list))) AS sites
                  FROM (SELECT DISTINCT jsonb_array_elements(transmit_messages.destinations) AS list))
    ), message AS (
        SELECT * FROM ROWS FROM (unnest(payloads), unnest(transmit_messages.headers),
                                 jsonb_array_elements(transmit_messages.destinations)) WITH ORDINALITY AS m(p, h, list, nth)
    )
    INSERT INTO queues.send_log (slot, first, client, destination_set, destinations, headers, payload)
    SELECT their_slot, are_first AND nth = 1, transmit_messages.client, known, CASE WHEN known IS NULL THEN sites END,
           nullif(h, '{}'), p
      FROM message JOIN named USING (list) ORDER BY nth;
END $$;

-- For a client that would rather wait than be refused; to be asked before its transaction begins.
CREATE FUNCTION trunkline.has_room(client text, destinations text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM queues.check_client(client);
    PERFORM queues.check_sites(queues.in_order(destinations));
    RETURN queues.is_room(client, destinations);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA queues, trunkline FROM PUBLIC;

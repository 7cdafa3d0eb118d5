-- transmit: appends to the send log inside the caller's own transaction. It touches no row that another transaction
-- may touch and notifies nobody. What it must remember of this transaction is a transaction-local setting, which a
-- rolled-back savepoint undoes together with the rows: "<xid> <entries> <bytes>".
--
-- Refusals (each fails the statement, before anything is written):
--   TL101 client name   TL102 no destination   TL103 unknown destination   TL104 message too large
--   TL105 too many entries   TL106 too many bytes in one transaction   TL107 headers   TL108 missing payload
-- A transaction is carried whole: the last two bounds stay below the credit and the buffers of every link.

CREATE FUNCTION queues.refuse(code text, why text, next_step text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', why USING ERRCODE = code, HINT = next_step;
END $$;

CREATE FUNCTION queues.check_addresses(of_client text, destinations text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    unknown text;
BEGIN
    IF of_client IS NULL OR of_client !~ '^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$' THEN
        PERFORM queues.refuse('TL101', format('client name %L is not a name', of_client),
            'use 1 to 63 lower-case letters, digits, ''.'', ''_'' or ''-''');
    END IF;
    IF coalesce(cardinality(destinations), 0) = 0 THEN
        PERFORM queues.refuse('TL102', 'no destination is given', 'name at least one site, or ''*'' for all');
    END IF;
    SELECT coalesce(d, 'NULL') INTO unknown FROM unnest(destinations) AS d
     WHERE d IS DISTINCT FROM '*' AND NOT EXISTS (SELECT FROM queues.site s WHERE s.name = d) LIMIT 1;
    IF FOUND THEN
        PERFORM queues.refuse('TL103', format('destination %L is not a known site', unknown),
            'correct its name, or wait until this site has heard of it (table queues.site)');
    END IF;
END $$;

CREATE FUNCTION queues.check_message(payload bytea, headers jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF payload IS NULL THEN
        PERFORM queues.refuse('TL108', 'a payload is NULL', 'send an empty payload instead');
    END IF;
    IF octet_length(payload) > 1048576 THEN
        PERFORM queues.refuse('TL104', format('a payload of %s bytes is over 1 MiB', octet_length(payload)),
            'split it, or send a reference to it');
    END IF;
    IF headers = '{}' THEN
        RETURN;
    END IF;
    IF jsonb_typeof(headers) <> 'object' OR jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")') THEN
        PERFORM queues.refuse('TL107', 'headers are not an object of strings', 'send {"name": "value"} pairs');
    END IF;
    IF pg_column_size(headers) > 16384 THEN
        PERFORM queues.refuse('TL107', format('headers of %s bytes are over 16 KiB', pg_column_size(headers)),
            'move them into the payload');
    END IF;
END $$;

-- Counts the messages into this transaction; true when they are its first.
CREATE FUNCTION queues.admit(entries bigint, bytes bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    me   text   := pg_current_xact_id()::text;
    sent text[] := string_to_array(current_setting('trunkline.sent', true), ' ');
    more boolean := coalesce(sent[1] = me, false);
BEGIN
    IF more THEN
        entries := entries + sent[2]::bigint;
        bytes := bytes + sent[3]::bigint;
    END IF;
    IF entries > 1000 THEN
        PERFORM queues.refuse('TL105', format('%s entries in one transaction are over 1000', entries),
            'commit more often');
    END IF;
    IF bytes > 4194304 THEN
        PERFORM queues.refuse('TL106', format('%s bytes in one transaction are over 4 MiB', bytes),
            'commit more often');
    END IF;
    PERFORM set_config('trunkline.sent', concat_ws(' ', me, entries, bytes), true);
    RETURN NOT more;
END $$;

CREATE FUNCTION trunkline.transmit(client text, payload bytea, destinations text[], headers jsonb DEFAULT '{}')
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    headers := coalesce(headers, '{}');
    PERFORM queues.check_addresses(client, destinations);
    PERFORM queues.check_message(payload, headers);
    INSERT INTO queues.send_log (first, client, destinations, headers, payload)
    VALUES (queues.admit(1, octet_length(payload) + pg_column_size(headers)), client, destinations, headers, payload);
END $$;

-- The same destinations for all messages of a call; `headers` is NULL or has one element per payload.
CREATE FUNCTION trunkline.transmit_many(
    client text, payloads bytea[], destinations text[], headers jsonb[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    bytes     bigint;
    are_first boolean;
BEGIN
    IF coalesce(cardinality(payloads), 0) = 0 THEN
        RETURN;
    END IF;
    IF headers IS NOT NULL AND cardinality(headers) <> cardinality(payloads) THEN
        PERFORM queues.refuse('TL107', format('%s headers for %s payloads', cardinality(headers), cardinality(payloads)),
            'send one for each, or NULL');
    END IF;
    PERFORM queues.check_addresses(client, destinations);
    PERFORM queues.check_message(p, coalesce(h, '{}')) FROM unnest(payloads, headers) AS m(p, h);
    SELECT sum(octet_length(p) + pg_column_size(coalesce(h, '{}'))) INTO bytes FROM unnest(payloads, headers) AS m(p, h);
    are_first := queues.admit(cardinality(payloads), bytes);
    INSERT INTO queues.send_log (first, client, destinations, headers, payload)
    SELECT are_first AND nth = 1, transmit_many.client, transmit_many.destinations, coalesce(h, '{}'), p
      FROM unnest(payloads, transmit_many.headers) WITH ORDINALITY AS m(p, h, nth)
     ORDER BY nth;
END $$;

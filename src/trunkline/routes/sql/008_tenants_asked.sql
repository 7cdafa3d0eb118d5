-- routes.change, where some tenants must be there: nobody removes one while this has the counter.
-- TL203: a tenant is not there; the detail is its place in the first two arrays.
CREATE FUNCTION routes.change_of(
    must_orgs text[], must_apps text[],
    orgs text[], apps text[], ids text[], hashes text[], texts text[], expects bigint[], new_hashes text[], new_bodies text[]
) RETURNS TABLE (place bigint, revision bigint, created timestamptz, modified timestamptz)
LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    off bigint;
BEGIN
    PERFORM FROM routes.counter FOR UPDATE;
    SELECT m.place INTO off FROM unnest(must_orgs, must_apps) WITH ORDINALITY AS m (org, app, place)
     WHERE NOT EXISTS (SELECT FROM routes.tenant t WHERE (t.org, t.app) = (m.org, m.app)) ORDER BY m.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a tenant is not there' USING ERRCODE = 'TL203', DETAIL = off;
    END IF;
    RETURN QUERY SELECT * FROM routes.change(orgs, apps, ids, hashes, texts, expects, new_hashes, new_bodies);
END $$;

-- `looked`: the revision of the routing table up to which the instance has looked at all routes. `refused`: those of them that it
-- has not as they are stored: by organisation/application/id the revision that it refused, the one that it has, and why.
ALTER TABLE site.instance
    ADD COLUMN looked  bigint,
    ADD COLUMN refused jsonb;

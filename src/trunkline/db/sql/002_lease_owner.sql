-- Who holds it, in words for people: the holder is a uuid per acquisition and says nothing to them.
ALTER TABLE site.lease ADD COLUMN owner text NOT NULL DEFAULT '';

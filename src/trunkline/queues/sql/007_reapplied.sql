-- Of a snapshot whose provider read elsewhere: entries after its base and up to here may be in it already.
ALTER TABLE queues.request ADD COLUMN reapplied_to bigint NOT NULL DEFAULT 0;

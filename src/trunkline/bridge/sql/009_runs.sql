-- Where a run began (a message before that place is of a run before it), the session before it, and the newest of it that was
-- heard: a sender without sessions whose generation does not grow while its time goes on was started anew.
ALTER TABLE bridge.run
    ADD COLUMN before     text   NOT NULL DEFAULT '',
    ADD COLUMN queue      text   NOT NULL DEFAULT '',
    ADD COLUMN position   bigint NOT NULL DEFAULT 0,
    ADD COLUMN generation bigint NOT NULL DEFAULT 0,
    ADD COLUMN sent_at    timestamptz;

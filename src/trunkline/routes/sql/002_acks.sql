-- What instances made of the deltas they heard: `revision` is that they have now, `reason` why they refused it ('': they did as
-- told). Rows are kept for a day.
CREATE TABLE routes.ack (
    session   text        NOT NULL,
    instance  text        NOT NULL,
    operation text        NOT NULL,
    item      text        NOT NULL,
    org       text        NOT NULL,
    app       text        NOT NULL,
    id        text        NOT NULL,
    revision  bigint      NOT NULL,
    reason    text        NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, instance, item, org, app, id)
);
CREATE INDEX ack_of_route ON routes.ack (org, app, id, instance, at);
CREATE INDEX ack_at ON routes.ack (at);

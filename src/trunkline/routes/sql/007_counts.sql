-- What routes on Spark came to since their instance started: each pipeline writes its own rows, every few seconds, and only those
-- that changed. Nodes show them beside what they count themselves. `receiver` and `sender` are the names of the plugins; `seconds`
-- is the time from coming in to being sent, of all that were sent. Rows of an instance that is gone are kept for a day, and then
-- added to the row without instance and route of the same plugins, so that sums per plugin never go down.
CREATE TABLE routes.count (
    instance   text COLLATE "C" NOT NULL,
    org        text COLLATE "C" NOT NULL,
    app        text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    receiver   text COLLATE "C" NOT NULL,
    sender     text COLLATE "C" NOT NULL,
    received   bigint           NOT NULL,
    matched    bigint           NOT NULL,
    dropped    bigint           NOT NULL,
    sent       bigint           NOT NULL,
    kept       bigint           NOT NULL,
    dead       bigint           NOT NULL,
    failed     bigint           NOT NULL,
    seconds    double precision NOT NULL,
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org, app, id, instance, receiver, sender)
);

-- Receiver groups at pipelines. `name` is that of the group's lease, `holds` whether the instance has it now; `behind` is how many
-- events wait for the next batch, `seconds` how long all batches took, `failing` why it does not read, if it does not.
CREATE TABLE routes.group_count (
    instance   text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    holds      boolean          NOT NULL,
    events     bigint           NOT NULL,
    batches    bigint           NOT NULL,
    seconds    double precision NOT NULL,
    behind     bigint           NOT NULL,
    failing    text             NOT NULL,
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, instance)
);

-- What `metric` filters of routes on Spark counted.
CREATE TABLE routes.custom_count (
    instance   text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    count      bigint           NOT NULL,
    updated_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, instance)
);

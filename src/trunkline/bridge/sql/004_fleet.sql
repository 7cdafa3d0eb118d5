-- What a fleet of clusters tells. `updated_at` is when the hub wrote the row; a row that did not change is not written.
CREATE SCHEMA fleet;

-- From best to worst: the worst state of a day is the greatest.
CREATE TYPE fleet.compliance_state AS ENUM ('compliant', 'pending', 'unknown', 'non_compliant');

CREATE TABLE fleet.heartbeat (
    site       text        PRIMARY KEY,
    sent_at    timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE TABLE fleet.hub_info (
    site        text        PRIMARY KEY,
    cluster_id  text        NOT NULL,
    console_url text        NOT NULL,
    grafana_url text        NOT NULL,
    mch_version text        NOT NULL,
    updated_at  timestamptz NOT NULL
);

-- `incarnation` and `generation` are the version of the bundle that changed the row last (H36). A row that is gone at the site
-- stays, with the time since when.
CREATE TABLE fleet.managed_cluster (
    site        text             NOT NULL,
    cluster_id  text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    payload     jsonb            NOT NULL,
    incarnation bigint           NOT NULL,
    generation  bigint           NOT NULL,
    deleted_at  timestamptz,
    updated_at  timestamptz      NOT NULL,
    PRIMARY KEY (site, cluster_id)
);
CREATE INDEX managed_cluster_name ON fleet.managed_cluster (site, name);

CREATE TABLE fleet.policy (
    site        text             NOT NULL,
    policy_id   text COLLATE "C" NOT NULL,
    namespace   text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    payload     jsonb            NOT NULL,
    standard    text GENERATED ALWAYS AS
                (payload #>> '{metadata,annotations,policy.open-cluster-management.io/standards}') STORED,
    category    text GENERATED ALWAYS AS
                (payload #>> '{metadata,annotations,policy.open-cluster-management.io/categories}') STORED,
    control     text GENERATED ALWAYS AS
                (payload #>> '{metadata,annotations,policy.open-cluster-management.io/controls}') STORED,
    incarnation bigint           NOT NULL,
    generation  bigint           NOT NULL,
    deleted_at  timestamptz,
    updated_at  timestamptz      NOT NULL,
    PRIMARY KEY (site, policy_id)
);
CREATE INDEX policy_name ON fleet.policy (site, name) WHERE deleted_at IS NULL;

-- `cluster_id` is empty until the cluster of that name is known; the second index holds only such rows. `state` is in no index and
-- pages are filled by half, so that a change of state stays on its page and no index learns of it.
CREATE TABLE fleet.compliance (
    site         text                   NOT NULL,
    policy_id    text COLLATE "C"       NOT NULL,
    cluster_name text COLLATE "C"       NOT NULL,
    cluster_id   text COLLATE "C",
    state        fleet.compliance_state NOT NULL,
    updated_at   timestamptz            NOT NULL,
    PRIMARY KEY (site, policy_id, cluster_name)
) WITH (fillfactor = 50);
CREATE INDEX compliance_no_cluster ON fleet.compliance (site, cluster_name) WHERE cluster_id IS NULL;

-- Events, by month. The default partition takes what no month was made for.
CREATE TABLE fleet.cluster_event (
    site                 text             NOT NULL,
    event_name           text COLLATE "C" NOT NULL,
    event_namespace      text             NOT NULL,
    message              text             NOT NULL,
    reason               text             NOT NULL,
    type                 text             NOT NULL,
    cluster_name         text COLLATE "C" NOT NULL,
    cluster_id           text COLLATE "C" NOT NULL,
    reporting_controller text             NOT NULL,
    reporting_instance   text             NOT NULL,
    created_at           timestamptz      NOT NULL,
    updated_at           timestamptz      NOT NULL,
    PRIMARY KEY (site, event_name, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE fleet.cluster_event_other PARTITION OF fleet.cluster_event DEFAULT;

CREATE TABLE fleet.root_policy_event (
    site            text             NOT NULL,
    event_name      text COLLATE "C" NOT NULL,
    count           int              NOT NULL,
    created_at      timestamptz      NOT NULL,
    event_namespace text             NOT NULL,
    message         text             NOT NULL,
    reason          text             NOT NULL,
    source          jsonb,
    policy_id       text COLLATE "C" NOT NULL,
    state           fleet.compliance_state,
    updated_at      timestamptz      NOT NULL,
    PRIMARY KEY (site, event_name, count, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE fleet.root_policy_event_other PARTITION OF fleet.root_policy_event DEFAULT;

CREATE TABLE fleet.policy_event (
    site            text             NOT NULL,
    event_name      text COLLATE "C" NOT NULL,
    count           int              NOT NULL,
    created_at      timestamptz      NOT NULL,
    event_namespace text             NOT NULL,
    message         text             NOT NULL,
    reason          text             NOT NULL,
    source          jsonb,
    policy_id       text COLLATE "C" NOT NULL,
    state           fleet.compliance_state,
    cluster_name    text COLLATE "C" NOT NULL,
    cluster_id      text COLLATE "C" NOT NULL,
    updated_at      timestamptz      NOT NULL,
    PRIMARY KEY (site, event_name, count, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE fleet.policy_event_other PARTITION OF fleet.policy_event DEFAULT;
CREATE INDEX policy_event_story ON fleet.policy_event (site, policy_id, cluster_name, created_at);

-- A day (of UTC) of a policy at a cluster, as its events tell it: the worst state of the day, and how often the state changed from
-- one event of the day to the next.
CREATE TABLE fleet.compliance_history (
    site         text                   NOT NULL,
    policy_id    text COLLATE "C"       NOT NULL,
    cluster_name text COLLATE "C"       NOT NULL,
    day          date                   NOT NULL,
    cluster_id   text COLLATE "C"       NOT NULL,
    state        fleet.compliance_state NOT NULL,
    changes      int                    NOT NULL,
    updated_at   timestamptz            NOT NULL,
    PRIMARY KEY (site, policy_id, cluster_name, day)
) PARTITION BY RANGE (day);
CREATE TABLE fleet.compliance_history_other PARTITION OF fleet.compliance_history DEFAULT;

CREATE TABLE fleet.alert_count (
    site       text        NOT NULL,
    source     text        NOT NULL,
    low        int         NOT NULL,
    medium     int         NOT NULL,
    high       int         NOT NULL,
    critical   int         NOT NULL,
    detail_url text        NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (site, source)
);

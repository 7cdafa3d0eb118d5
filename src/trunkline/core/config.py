"""What a process is told: one YAML file, checked by these models before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from trunkline.core.consistency import Written, inconsistencies
from trunkline.core.document import read_document
from trunkline.core.environment import overrides
from trunkline.core.layers import Layers
from trunkline.core.mistakes import Mistake, Mistakes, in_order
from trunkline.core.reasons import examine
from trunkline.core.references import References
from trunkline.core.routing import RouteSecrets, RoutingConfig
from trunkline.core.scalars import (
    AreaName,
    ClientName,
    Cost,
    Dialled,
    Listen,
    LocalPath,
    NodeName,
    Number,
    SiteName,
    TokenHash,
    Url,
    Whole,
)
from trunkline.core.secret import ConnectionString, Secret
from trunkline.core.section import Model

FEW_EVENTS = 2_000  # to start tasks takes as long as to route about so many


class TlsConfig(Model):
    """Files of this node's identity; the certificate's URI SAN is trunkline://<site>/<node>. A changed file is read again."""

    ca: LocalPath = Field(examples=["tls/ca.pem"], description="the fleet's authority, as `trunkline ca init` writes it")
    certificate: LocalPath = Field(
        examples=["tls/certificate.pem"], description="this node's certificate, as `trunkline ca issue` writes it"
    )
    key: LocalPath = Field(examples=["tls/key.pem"], description="its private key")
    revoked: LocalPath | None = Field(
        default=None, examples=["tls/revoked.pem"], description="the authority's list of revoked certificates"
    )


class LinkConfig(Model):
    """Peers of this node. Only `links` and `follows` carry records; seeds serve to be found and to find addresses."""

    listen: Listen = Field(
        default="127.0.0.1:0", description="<host>:<port> where other nodes reach this one; port 0 takes a free one"
    )
    advertise: tuple[Dialled, ...] = Field(
        default=(),
        examples=[["hub.example.com:7400"]],
        description="addresses told to other nodes, tried in this order; none: the one this node listens at",
    )
    seeds: tuple[Dialled, ...] = Field(
        default=(),
        examples=[["hub.example.com:7400"]],
        description="addresses of some nodes of the fleet; one that answers is enough",
    )
    links: tuple[SiteName, ...] = Field(
        default=(), examples=[["hub"]], description="sites this site exchanges records with directly"
    )
    follows: tuple[SiteName, ...] = Field(
        default=(),
        examples=[["weather"]],
        description="sites this site takes records from directly, without giving them any unless they name it in their links",
    )
    heartbeat_seconds: Number = Field(default=0.5, gt=0, le=60, description="silence of four heartbeats closes a link")
    handshake_seconds: Number = Field(default=5.0, gt=0, le=60, description="a connection that is not up by then is closed")


class StoreConfig(Model):
    """The replicated store. Every node is in the areas `fleet` and `site:<its site>`; keys never cross from one to another."""

    areas: tuple[AreaName, ...] = Field(
        default=(), examples=[["plant-1"]], description="further areas this node joins; only nodes that share one see its keys"
    )
    key_ttl_seconds: Number = Field(
        default=300.0,
        ge=5,
        le=86_400,
        description="how long the keys of a node that is gone stay; a living one refreshes each at a quarter of that",
    )
    compare_seconds: Number = Field(
        default=30.0, ge=1, le=3_600, description="how often digests are compared with one peer, in turn"
    )
    flood_per_second: Number | None = Field(
        default=None,
        gt=0,
        examples=[100.0],
        description="changes sent on per second; what comes faster is joined by key. Needs flood_burst; none: as they come",
    )
    flood_burst: Number | None = Field(
        default=None, ge=1, examples=[200.0], description="how many may go at once after a pause. Needs flood_per_second"
    )
    max_peers: Whole = Field(
        default=8,
        ge=0,
        le=64,
        description="nodes dialled only because the store knows them, besides those of the own and of linked sites",
    )
    start_seconds: Number = Field(
        default=2.0,
        ge=0,
        le=60,
        description="with seeds, links or follows: how long a start waits for the first peer before it counts as alone",
    )


class TopologyConfig(Model):
    """From which neighbour this site takes each other site's records."""

    tie: Literal["first", "hash"] = Field(
        default="first",
        description="of equally short paths, first takes the neighbour that was connected first, hash spreads the load",
    )
    rebalance: bool = Field(
        default=False, description="true: one of equally short paths is left for one that fewer sites use, seldom and by chance"
    )
    hold_seconds: Number = Field(
        default=1.5,
        ge=0,
        le=3_600,
        description="how long a shorter path must stay before it is taken; a lost one is left at once",
    )
    publish_rows: Literal["auto", "always", "never"] = Field(
        default="auto", description="whether the store shows this site's choices to all; auto: in a fleet of at most 64 sites"
    )
    no_relay: bool = Field(default=False, description="true: nobody takes third sites' records through this site")
    costs: dict[SiteName, Cost] = Field(
        default_factory=dict,
        examples=[{"hub": 5}],
        description="how many hops the link with a site of links or follows counts for, where it is not 1",
    )


class TrunkConfig(Model):
    """How records are carried."""

    handover: Literal["exact", "seamless"] = Field(
        default="exact",
        description="when a shorter path is taken: exact stops the old stream first, so that nothing comes twice; "
        "seamless starts the new one first, so that nothing waits",
    )


class QueuesConfig(Model):
    """How long and how much the queues keep."""

    keep_hours: Number = Field(
        default=168.0, gt=0, le=87_600, description="sent entries older than this go, needed or not; a snapshot makes up for it"
    )
    keep_bytes: Whole = Field(
        default=10 << 30, ge=1 << 20, description="when the sent entries take more room than this, the oldest go likewise"
    )
    unacknowledged_entries: Whole = Field(
        default=1_000_000,
        ge=1,
        description="a destination with more entries than this before it is no longer waited for; a snapshot makes up for it",
    )
    queue_entries: Whole = Field(
        default=1_000_000, ge=1, description="a receive queue with so many entries takes no more until they are read"
    )
    queue_bytes: Whole = Field(default=4 << 30, ge=1 << 20, description="the same by payload bytes")
    consumer_idle_hours: Number = Field(
        default=168.0,
        gt=0,
        le=87_600,
        description="a consumer that has not been seen for so long is detached: nothing is kept for it",
    )


class Role(StrEnum):
    """Each includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class TokenConfig(Model):
    """A token of the API. Only its hash is kept; `trunkline token new` makes both."""

    name: str = Field(min_length=1, max_length=63, examples=["ci"], description="appears in the log instead of the token")
    sha256: TokenHash = Field(examples=["secret://env/CI_TOKEN_SHA256"], description="hex of the token's SHA-256")
    role: Role = Field(default=Role.READ, description="read, write or admin; each includes the ones before")
    tenant: str | None = Field(default=None, examples=["team-a"], description="what the token may touch; none: everything")


class ApiConfig(Model):
    """The REST API. Without tokens it listens on loopback only."""

    listen: Listen = Field(default="127.0.0.1:0", description="<host>:<port>; port 0 takes a free one")
    tokens: tuple[TokenConfig, ...] = Field(default=(), description="with any, every request needs one")
    max_body_bytes: Whole = Field(default=1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="larger requests are refused")
    requests_per_second: Number = Field(
        default=500.0, gt=0, description="per token or, without, per address; bursts of twice that"
    )
    request_seconds: Number = Field(default=10.0, gt=0, le=300, description="a request that takes longer is answered with 503")


class LogConfig(Model):
    """What this process writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="what is below it is not written")
    format: Literal["text", "json"] = Field(default="text", description="one line per event, for people or for machines")


class OtlpConfig(Model):
    """Traces over OTLP/HTTP; without this section there are none."""

    endpoint: Url = Field(examples=["http://127.0.0.1:4318/v1/traces"], description="URL that takes traces")
    headers: dict[str, Secret] = Field(
        default_factory=dict,
        examples=[{"authorization": "secret://env/OTLP_AUTHORIZATION"}],
        description="sent with every export, such as an authorization",
    )
    sample: Number = Field(default=1.0, ge=0, le=1, description="share of the traces that are kept")


class BridgeKafkaConfig(Model):
    """Status that comes over Kafka: a topic per site, or topics that sites share."""

    bootstrap: str = Field(min_length=1, examples=["kafka.example.com:9092"], description="<host>:<port> of some brokers")
    topics: str = Field(
        default=r"status\.(?P<site>.+)",
        description="a regular expression for topics of one site each; its group `site` is whose",
    )
    shared: tuple[str, ...] = Field(
        default=(), examples=[["status"]], description="topics of several sites; the key of a record is whose it is"
    )
    control: str = Field(default="status-control", min_length=1, description="the topic where sites are asked for a resync")
    client: dict[str, Secret] = Field(
        default_factory=dict,
        examples=[{"security.protocol": "SSL"}],
        description="settings of librdkafka, for security and tuning",
    )


class BridgeConfig(Model):
    """Only at a hub: the status bridge, run by `trunkline pipeline` or `trunkline bridge`."""

    client: ClientName | None = Field(
        default="status", description="the queue whose entries are status bundles; none: queues are not read"
    )
    kafka: BridgeKafkaConfig | None = Field(default=None, description="without it Kafka is not read")
    types: tuple[str, ...] = Field(
        default=(),
        examples=[["status-types.yaml"]],
        description="files that declare further bundle types",
    )
    workers: Whole = Field(default=4, ge=1, le=64, description="database workers that apply bundles")
    trigger_seconds: Number = Field(default=0.2, ge=0.1, description="how often Spark looks for new bundles")
    linger_seconds: Number = Field(
        default=0.0, ge=0, le=60, description="how long a bundle waits at least for others to be applied with it"
    )
    statement_seconds: Number = Field(default=30.0, ge=1, le=3_600, description="a statement that takes longer is tried again")
    silent_seconds: Number = Field(
        default=300.0,
        ge=1,
        description="a site unheard for so long, by the times its bundles carry, is silent: its rows are hidden",
    )
    chunk_seconds: Number = Field(default=600.0, ge=1, description="a chunk whose rest has not come by then goes")
    resync_seconds: Number = Field(default=60.0, ge=1, description="how long an answer to a resync request is waited for")
    waiting_deltas: Whole = Field(
        default=10_000, ge=1, description="of one site and type; when more wait they go, and a resync makes up for them"
    )
    keep_months: Whole | None = Field(
        default=None,
        ge=1,
        examples=[18],
        description="months of events and of the history of compliance to keep, before this one; none: all stay",
    )
    quarantine_days: Number = Field(
        default=30.0, ge=0, description="how long bundles of the quarantine that were dealt with are kept"
    )
    quarantine_bundles: Whole = Field(
        default=100, ge=1, description="in quarantine, of one site and type; when there are more the oldest go, open ones last"
    )
    waiting_rows: Whole = Field(
        default=200_000,
        ge=1,
        description="deltas and events of all sites; while more wait for workers nothing new is taken in,"
        " and of those that wait for a resync no more are kept",
    )


class SparkConfig(Model):
    """Where the Spark of a site's pipeline runs: its routes and, at a hub, the status bridge."""

    master: str = Field(
        default="", examples=["spark://hub:7077"], description="Spark's master; none: this machine, with all its cores"
    )
    settings: dict[str, str] = Field(
        default_factory=dict, examples=[{"spark.executor.memory": "2g"}], description="further settings of Spark"
    )
    few_events: Whole = Field(
        default=FEW_EVENTS,
        ge=0,
        description="a batch of routes with so many events at most is routed by the driver: tasks would take longer",
    )


class ProcessConfig(Model):
    """One process of one site: a node, a pipeline, or both from the same file."""

    site: SiteName = Field(examples=["hub"], description="the site's name, the same for all its processes")
    node: NodeName = Field(default="node-1", description="this node's name, unique within its site")
    database: ConnectionString = Field(
        examples=["secret://env/DATABASE_URL"],
        description="connection string of the site's Postgres, or where it is: secret://env/NAME, secret://file/path",
    )
    tls: TlsConfig | None = Field(default=None, description="without it there are no links")
    link: LinkConfig = LinkConfig()
    store: StoreConfig = StoreConfig()
    topology: TopologyConfig = TopologyConfig()
    trunk: TrunkConfig = TrunkConfig()
    queues: QueuesConfig = QueuesConfig()
    api: ApiConfig = ApiConfig()
    routes: LocalPath | None = Field(
        default=None,
        examples=["routes.yaml"],
        description="YAML file whose routes are put into the site's table at each start; what leaves the file stays there",
    )
    routing: RoutingConfig = RoutingConfig()
    route_secrets: RouteSecrets = Field(
        default_factory=dict,
        examples=[{"acme": {"shop": {"kafka.password": "secret://env/KAFKA_PASSWORD"}}}],
        description="what secret://kafka.password in a route stands for: organisation, application, key; all: of every one",
    )
    bridge: BridgeConfig | None = None
    spark: SparkConfig = SparkConfig()
    log: LogConfig = LogConfig()
    otlp: OtlpConfig | None = None
    stop_seconds: Number = Field(default=10.0, gt=0, le=300, description="a stop that takes longer is cut short")
    runtime: LocalPath = Field(
        default=Path("."),
        validate_default=True,
        description="folder for scratch and for files that say where this process listens",
    )


@dataclass(frozen=True)
class Reading:
    """A file with what is wrong in it; `config` is there exactly when nothing is."""

    config: ProcessConfig | None
    mistakes: tuple[Mistake, ...]
    layers: Layers
    references: References


def read_config(path: Path, environ: Mapping[str, str], follow_secrets: bool = True) -> Reading:
    """Raises only when the file cannot be read or is not YAML."""
    document = read_document(path, f"configuration {path}", "give --config an existing file")
    found, mistakes = overrides(environ, ProcessConfig)
    layers, references = Layers(document, found), References(path.absolute().parent, environ, follow_secrets)
    config, wrong = examine(ProcessConfig, layers, references)
    mistakes += layers.twice() + wrong + inconsistencies(Written(layers, references))
    return Reading(None if mistakes else config, in_order(mistakes), layers, references)


def valid(path: Path, reading: Reading) -> ProcessConfig:
    if reading.config is None:
        raise Mistakes(f"configuration {path}", reading.mistakes, f"mend these, then: trunkline config lint {path}")
    return reading.config


def load_config(path: Path, environ: Mapping[str, str] = os.environ) -> ProcessConfig:
    """The checked configuration; all that is wrong with it comes in one error."""
    return valid(path, read_config(path, environ))


def json_schema() -> dict[str, Any]:
    """For editors: what it accepts may still be wrong, what it refuses is."""
    schema = ProcessConfig.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Configuration of a Trunkline process",
    }

"""What a process is told: one YAML file, checked by these models before anything starts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trunkline.core.errors import Invalid
from trunkline.core.ids import check_name
from trunkline.core.secret import ConnectionString, Secret


def _name(kind: str) -> AfterValidator:
    def check(value: str) -> str:
        try:
            return check_name(kind, value)
        except Invalid as error:
            raise ValueError(error.why) from None

    return AfterValidator(check)


SiteName = Annotated[str, _name("site")]
NodeName = Annotated[str, _name("node")]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsConfig(Model):
    """Files of this node's identity; the certificate's URI SAN is trunkline://<site>/<node>. A changed file is read again."""

    ca: Path = Field(description="the fleet's authority, as `trunkline ca init` writes it")
    certificate: Path = Field(description="this node's certificate, as `trunkline ca issue` writes it")
    key: Path = Field(description="its private key")
    revoked: Path | None = Field(default=None, description="the authority's list of revoked certificates")


class LinkConfig(Model):
    """Peers of this node. Only `links` carry records; seeds serve to be found and to find addresses."""

    listen: str = Field(
        default="127.0.0.1:0", description="<host>:<port> where other nodes reach this one; port 0 takes a free one"
    )
    advertise: tuple[str, ...] = Field(
        default=(), description="addresses told to other nodes, tried in this order; none: the one this node listens at"
    )
    seeds: tuple[str, ...] = Field(default=(), description="addresses of some nodes of the fleet; one that answers is enough")
    links: tuple[SiteName, ...] = Field(default=(), description="sites this site exchanges records with directly")
    heartbeat_seconds: float = Field(default=0.5, gt=0, le=60, description="silence of four heartbeats closes a link")
    handshake_seconds: float = Field(default=5.0, gt=0, le=60, description="a connection that is not up by then is closed")


class Role(StrEnum):
    """Each includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class TokenConfig(Model):
    """A token of the API. Only its hash is kept; `trunkline token new` makes both."""

    name: str = Field(min_length=1, max_length=63, description="appears in the log instead of the token")
    sha256: Secret = Field(description="hex of the token's SHA-256")
    role: Role = Field(default=Role.READ, description="read, write or admin; each includes the ones before")
    tenant: str | None = Field(default=None, description="what the token may touch; none: everything")


class ApiConfig(Model):
    """The REST API. Without tokens it listens on loopback only."""

    listen: str = Field(default="127.0.0.1:0", description="<host>:<port>; port 0 takes a free one")
    tokens: tuple[TokenConfig, ...] = Field(default=(), description="with any, every request needs one")
    max_body_bytes: int = Field(default=1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="larger requests are refused")
    requests_per_second: float = Field(
        default=500.0, gt=0, description="per token or, without, per address; bursts of twice that"
    )
    request_seconds: float = Field(default=10.0, gt=0, le=300, description="a request that takes longer is answered with 503")


class LogConfig(Model):
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="what is below it is not written")
    format: Literal["text", "json"] = Field(default="text", description="one line per event, for people or for machines")


class OtlpConfig(Model):
    """Traces over OTLP/HTTP; without this section there are none."""

    endpoint: str = Field(description="URL that takes traces, such as http://127.0.0.1:4318/v1/traces")
    headers: dict[str, Secret] = Field(default_factory=dict, description="sent with every export, such as an authorization")
    sample: float = Field(default=1.0, ge=0, le=1, description="share of the traces that are kept")


class BridgeConfig(Model):
    """Only at a hub: the status bridge, run by `trunkline pipeline`."""

    client: str = Field(default="status", description="the queue whose entries are status bundles")
    workers: int = Field(default=4, ge=1, le=64, description="database workers that apply bundles")
    trigger_seconds: float = Field(default=0.2, ge=0.1, description="how often Spark looks for new bundles")


class ProcessConfig(Model):
    """One process of one site: a node, a pipeline, or both from the same file."""

    site: SiteName = Field(description="the site's name, the same for all its processes")
    node: NodeName = Field(default="node-1", description="this node's name, unique within its site")
    database: ConnectionString = Field(
        description="connection string of the site's Postgres, or where it is: secret://env/NAME, secret://file/path"
    )
    tls: TlsConfig | None = Field(default=None, description="without it there are no links")
    link: LinkConfig = LinkConfig()
    api: ApiConfig = ApiConfig()
    routes: Path | None = Field(default=None, description="YAML file with this site's static routes")
    bridge: BridgeConfig | None = None
    log: LogConfig = LogConfig()
    otlp: OtlpConfig | None = None
    stop_seconds: float = Field(default=10.0, gt=0, le=300, description="a stop that takes longer is cut short")
    runtime: Path = Field(default=Path("."), description="folder for scratch and for files that say where this process listens")


def load_config(path: Path) -> ProcessConfig:
    """The checked configuration; all that is wrong with it comes in one error."""
    try:
        raw: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise Invalid(f"configuration {path}", error.strerror or str(error), "give --config an existing file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"configuration {path}", f"not YAML: {error}", "mend the line it names") from None
    try:
        return ProcessConfig.model_validate(raw)
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
        raise Invalid(f"configuration {path}", reasons, "mend these keys") from None

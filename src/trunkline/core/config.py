"""What a process is told: one YAML file, checked by these models before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trunkline.core.errors import Invalid
from trunkline.core.ids import check_name


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
    """Files of this node's identity; the certificate's URI SAN is trunkline://<site>/<node>."""

    ca: Path
    certificate: Path
    key: Path


class LinkConfig(Model):
    """Peers of this node. Only `links` carry records; seeds serve to be found and to find addresses."""

    listen: str = "127.0.0.1:0"
    seeds: tuple[str, ...] = ()
    links: tuple[SiteName, ...] = ()
    heartbeat_seconds: float = Field(default=0.5, gt=0, description="silence of four heartbeats closes a link")


class ApiConfig(Model):
    listen: str = "127.0.0.1:0"


class BridgeConfig(Model):
    """Only at a hub. Clients are the queues whose entries are status bundles."""

    client: str = "status"
    workers: int = Field(default=4, ge=1, le=64)
    trigger_seconds: float = Field(default=0.2, ge=0.1)


class ProcessConfig(Model):
    site: SiteName
    node: NodeName = "node-1"
    database: str = Field(description="libpq connection string of the site's Postgres; a passfile= keeps the secret out")
    tls: TlsConfig | None = None
    link: LinkConfig = LinkConfig()
    api: ApiConfig = ApiConfig()
    routes: Path | None = Field(default=None, description="YAML file with this site's static routes")
    bridge: BridgeConfig | None = None
    runtime: Path = Field(
        default=Path("."), description="folder for files that say where this process listens, and for scratch"
    )


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

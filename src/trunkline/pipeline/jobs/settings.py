"""What a route job is told, and how it travels through Spark's options."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from trunkline.core.config import FEW_EVENTS
from trunkline.core.jsoncodec import dumps, loads
from trunkline.core.secret import Secret
from trunkline.db.lease import Grant
from trunkline.routes.groups import Group
from trunkline.routes.secrets import Sections


@dataclass(frozen=True)
class JobSettings:
    """`secrets`: of the site's routes. The limits are per batch. A source that says nothing for `patience_seconds` makes a
    batch fail. `few_events`: the driver routes batches of up to so many itself."""

    dsn: str
    site: str
    instance: str
    of: Group
    grant: Grant
    tasks: int
    secrets: Sections = field(default_factory=dict, hash=False, compare=False)
    max_rows: int = 100_000
    max_bytes: int = 64 << 20
    patience_seconds: float = 15.0
    few_events: int = FEW_EVENTS

    @property
    def group(self) -> str:
        return self.of.lease

    def options(self) -> dict[str, str]:
        """The name `secrets` is one that Spark shows nobody."""
        told = {
            org: {app: {key: [secret.reveal(), secret.shown] for key, secret in keys.items() if secret.known}
                  for app, keys in apps.items()} for org, apps in self.secrets.items()
        }  # fmt: skip
        return {
            "dsn": self.dsn,
            "site": self.site,
            "instance": self.instance,
            "plugin": self.of.plugin,
            "cluster": self.of.cluster,
            "lease": self.grant.name,
            "holder": str(self.grant.holder),
            "epoch": str(self.grant.epoch),
            "tasks": str(self.tasks),
            "secrets": dumps(told).decode(),
            "max_rows": str(self.max_rows),
            "max_bytes": str(self.max_bytes),
            "patience_seconds": str(self.patience_seconds),
        }

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> JobSettings:
        told = loads(options["secrets"], "option secrets")
        secrets = {
            org: {app: {key: Secret(*secret) for key, secret in keys.items()} for app, keys in apps.items()}
            for org, apps in told.items()
        }
        return cls(
            options["dsn"],
            options["site"],
            options["instance"],
            Group(options["plugin"], options["cluster"]),
            Grant(options["lease"], uuid.UUID(options["holder"]), int(options["epoch"])),
            int(options["tasks"]),
            secrets,
            int(options["max_rows"]),
            int(options["max_bytes"]),
            float(options["patience_seconds"]),
        )

"""Routes, tenants and fragments as the API shows them: in the shape EARS users know, and never with a secret."""

from __future__ import annotations

from typing import Any

from trunkline.core.mistakes import Mistake
from trunkline.routes.awaited import Outcome
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import RELOADED
from trunkline.routes.manager import Status
from trunkline.routes.redaction import ModelOf, redacted, redacted_plugin
from trunkline.routes.registry import Kind, Registry
from trunkline.routes.storage.base import Body, Fragment, RouteConfig, TenantConfig


def models_of(plugins: Registry) -> ModelOf:
    def model_of(kind: str, name: str) -> Any:
        plugin = plugins.find(Kind(kind), name)
        return plugin.config if plugin else None

    return model_of


def shown_tenant(tenant: Tenant) -> dict[str, str]:
    return {"orgId": tenant.org, "appId": tenant.app}


def shown_key(key: RouteKey) -> dict[str, Any]:
    return {"id": key.id, "tenant": shown_tenant(key.tenant)}


def shown_route(config: RouteConfig, model_of: ModelOf) -> dict[str, Any]:
    notes = {name: value for name, value in config.notes.items() if name != RELOADED}
    return {
        **redacted(config.body, model_of),
        **redacted(notes, model_of),
        **shown_key(config.key),
        "inactive": bool(config.body.get("inactive")),
        "status": "stopped" if config.body.get("inactive") else "running",
        "created": int(config.created),
        "modified": int(config.modified),
        "hash": config.hash,
        "revision": config.revision,
    }


def shown_status(status: Status) -> dict[str, Any]:
    """Of this instance."""
    if status.refused:
        state = "refused"
    elif not status.revision:
        state = "absent"
    else:
        state = "live" if status.live else "rests"
    return {"state": state, "revision": status.revision, "refused": status.refused, "reason": status.reason}


def shown_outcome(session: str, outcome: Outcome | None) -> dict[str, Any]:
    """What the other instances made of a change."""
    if outcome is None:
        return {"session": session, "complete": not session, "acked": {}, "refused": {}, "missing": []}
    return {
        "session": session,
        "complete": outcome.complete,
        "acked": outcome.acked,
        "refused": outcome.refused,
        "missing": list(outcome.missing),
    }


def shown_mistake(mistake: Mistake) -> dict[str, str]:
    return {"key": mistake.key, "reason": mistake.reason, "next": mistake.next_step}


def shown_tenant_config(config: TenantConfig) -> dict[str, Any]:
    return {
        "tenant": shown_tenant(config.tenant),
        "quota": {"eventsPerSec": config.events_per_second},
        "clientIds": list(config.clients),
        "openEventApi": config.open_events,
        "modified": int(config.modified),
    }


def shown_fragment(fragment: Fragment, model_of: ModelOf, kinds: list[Kind]) -> dict[str, Any]:
    """`kinds`: what its plugin can be, with such a configuration; what is hidden in one of them is hidden."""
    shown: Body = fragment.body
    for kind in kinds:
        shown = redacted_plugin(kind.value, shown, model_of)
    if not kinds:
        shown = redacted_plugin(Kind.FILTER.value, {**shown, "plugin": ""}, model_of) | {"plugin": shown.get("plugin", "")}
    return {**shown, "name": fragment.name, "tenant": shown_tenant(fragment.tenant), "modified": int(fragment.modified)}

"""Values, peers and events of the store in the form in which people and programs read them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from trunkline.store.peers import Peer
from trunkline.store.values import INFINITE, Reason, Value
from trunkline.store.watch import KeyEvent, Missed, WatchEvent

COUNTERS: Final = (
    "comparisons", "expired_key_vals", "finalized_syncs", "full_syncs", "full_syncs_failed", "full_syncs_ok", "inconsistencies",
    "late_answers", "looped_publications", "overruns", "questions_answered", "rate_limited", "received_key_vals",
    "received_publications", "received_redundant_publications", "updated_key_vals", *(f"refused_{reason}" for reason in Reason),
)  # fmt: skip
"""Shown from the start, so that a rate has a beginning."""


def shown_value(value: Value, with_bytes: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "version": value.version,
        "originator": value.originator,
        "ttl_ms": None if value.ttl_ms == INFINITE else value.ttl_ms,
        "ttl_version": value.ttl_version,
        "hash": f"{value.hash:016x}",
        "bytes": len(value.data or b""),
    }
    if with_bytes and value.data is not None:
        shown |= _bytes(value.data)
    return shown


def _bytes(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def shown_peer(peer: Peer, now: float) -> dict[str, Any]:
    return {
        "state": peer.state.value,
        "seconds": round(now - peer.since, 3),
        "flaps": max(0, peer.flaps),
        "failures": peer.failures,
        "reason": peer.reason,
        "linked": peer.linked,
        "addresses": list(peer.addresses),
        "pending": len(peer.pending),
    }


def shown_event(event: WatchEvent) -> dict[str, Any]:
    match event:
        case KeyEvent():
            value = shown_value(event.value, True) if event.value is not None else {}
            return {"event": event.kind.value, "key": event.key, "skipped": event.skipped, **value}
        case Missed():
            return {"event": "missed", "changes": event.changes}
        case _:
            return {"event": event.kind.value, "peer": event.peer}

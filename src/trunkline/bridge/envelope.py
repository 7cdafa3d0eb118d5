"""Other envelopes become ours (`trunkline.core.bundle`): structured CloudEvents, and what Global Hub agents send.

V1  A structured CloudEvent (content type application/cloudevents+json) becomes a binary one: its attributes become ce_ headers.
V2  A Global Hub type becomes ours, with the mode ours has. Its version "generation.value" gives generation and value; such a
    sender keeps no incarnation, so that is "auto". Its dependency names a value of whatever run the base is of.
V3  A message that is ours already is left as it is, so doing it twice is doing it once.
V4  Nothing raises: what cannot be understood is left for `parse_bundle` to refuse, with its reason.
V5  A Global Hub type that is known, and kept nowhere, is no mistake of its sender: it is discarded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from trunkline.bridge.fleettypes import GLOBAL_HUB, GLOBAL_HUB_PREFIX, GLOBAL_HUB_UNKEPT
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import BundleType, Types
from trunkline.core.bundle import AUTO
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads

Headers = dict[str, str]

_STRUCTURED = "application/cloudevents+json"
_PLAIN = "application/octet-stream"


def normalise(headers: Mapping[str, str], payload: bytes, types: Types = SHIPPED) -> tuple[Headers, bytes]:
    given, payload = _binary(dict(headers), payload)
    kind = given.get("ce_type", "")
    ours = GLOBAL_HUB.get(kind.removeprefix(GLOBAL_HUB_PREFIX)) if kind.startswith(GLOBAL_HUB_PREFIX) else None
    if ours is None or ours not in types:
        return given, payload
    return _translated(given, types[ours]), _listed(given, payload)


def is_unkept(headers: Mapping[str, str]) -> bool:
    kind = headers.get("ce_type", "")
    return kind.startswith(GLOBAL_HUB_PREFIX) and kind.removeprefix(GLOBAL_HUB_PREFIX) in GLOBAL_HUB_UNKEPT


def _binary(headers: Headers, payload: bytes) -> tuple[Headers, bytes]:
    named = [name for name, kind in headers.items() if name.lower() == "content-type" and _is_structured(kind)]
    if not named:
        return headers, payload
    try:
        event = loads(payload)
        if not isinstance(event, dict):
            return headers, payload
        data = _data(event)
        attributes = {f"ce_{name}": _attribute(value) for name, value in event.items() if name not in _NO_HEADERS}
    except (Invalid, ValueError, TypeError):
        return headers, payload
    kind = str(event.get("datacontenttype") or "application/json")
    return headers | attributes | dict.fromkeys(named, _PLAIN if _is_structured(kind) else kind), data


_NO_HEADERS = ("data", "data_base64", "datacontenttype")


def _is_structured(kind: str) -> bool:
    return kind.strip().lower().startswith(_STRUCTURED)


def _attribute(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


def _data(event: Mapping[str, Any]) -> bytes:
    if "data_base64" in event:
        return base64.b64decode(str(event["data_base64"]), validate=True)
    if "data" not in event:
        return b""
    data = event["data"]
    is_json = "json" in str(event.get("datacontenttype") or "json").lower()
    return dumps(data) if is_json or not isinstance(data, str) else data.encode()


def _translated(given: Headers, declared: BundleType) -> Headers:
    translated = given | {"ce_type": declared.name, "ce_mode": str(declared.mode)}
    for foreign, into in _FOREIGN.items():
        if given.get(foreign):
            translated |= into(given, declared)
    return translated


def _version(given: Headers, declared: BundleType) -> Headers:
    generation, _, value = given["ce_extversion"].partition(".")
    return {"ce_incarnation": AUTO, "ce_generation": generation, "ce_value": value} if value else {}


def _dependency(given: Headers, declared: BundleType) -> Headers:
    if declared.depends_on is None:
        return {}
    said = given["ce_extdependencyversion"]
    _, _, value = said.partition(".")
    return {"ce_dependency": f"{declared.depends_on}@0.{value or said}"}


def _chunk(given: Headers, declared: BundleType) -> Headers:
    return {"ce_chunk": f"{given.get('ce_extoffset', '')}/{given['ce_extsize']}"}


def _session(given: Headers, declared: BundleType) -> Headers:
    return {"ce_session": given["ce_sessionid"]}


_FOREIGN: dict[str, Callable[[Headers, BundleType], Headers]] = {
    "ce_extversion": _version,
    "ce_extdependencyversion": _dependency,
    "ce_extsize": _chunk,
    "ce_sessionid": _session,
}


def _listed(given: Headers, payload: bytes) -> bytes:
    """A single object, sent by itself, is a list of one."""
    is_single = given.get("ce_sendmode") == "single" and not given.get("ce_extsize")
    return b"[" + payload + b"]" if is_single and payload.strip().startswith(b"{") else payload

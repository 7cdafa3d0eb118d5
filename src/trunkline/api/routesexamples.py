"""One tenant and one route for all examples of the API's description."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

OK: Json = {"code": 200, "message": "OK"}
TENANT = {"orgId": "acme", "appId": "shop"}
ROUTE: Json = {
    "userId": "ada",
    "receiver": {"plugin": "http", "config": {"path": "/alarms"}},
    "filterChain": [{"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm"}}}],
    "sender": {"plugin": "debug"},
}
SHOWN: Json = ROUTE | {
    "id": "alarms", "tenant": TENANT, "inactive": False, "status": "running", "created": 1893456000, "modified": 1893456000,
    "hash": "5b8fd4a4d0c3cf7a1f0d9b6a3c2e1d00", "revision": 17,
}  # fmt: skip
HERE: Json = {"state": "live", "revision": 17, "refused": 0, "reason": ""}
CHANGE: Json = {
    "session": "node-1_0f3a-7", "complete": True, "acked": {"node-2_9c1e": 17}, "refused": {}, "missing": [],
}  # fmt: skip
CHANGED: Json = {"status": OK, "item": SHOWN, "warnings": [], "here": HERE, "change": CHANGE}
ONE: Json = {"status": OK, "item": SHOWN}
REMOVED: Json = {"status": OK, "item": "alarms", "change": CHANGE}
LIST: Json = {"status": OK, "items": [SHOWN], "next": None}
RELOADED: Json = {"status": OK, "items": ["acme/shop/alarms"], "change": CHANGE}

TENANT_BODY: Json = {"quota": {"eventsPerSec": 100}, "openEventApi": False}
TENANT_SHOWN: Json = {
    "tenant": TENANT, "quota": {"eventsPerSec": 100.0}, "clientIds": [], "openEventApi": False, "modified": 1893456000,
}  # fmt: skip
TENANT_ONE: Json = {"status": OK, "item": TENANT_SHOWN}
TENANT_CHANGED: Json = {"status": OK, "item": TENANT_SHOWN, "warnings": []}
TENANT_REMOVED: Json = {"status": OK, "item": TENANT}
TENANTS: Json = {"status": OK, "items": [TENANT_SHOWN]}

FRAGMENT_BODY: Json = {"name": "toHub", "plugin": "debug", "config": {"destination": "stdout"}}
FRAGMENT_SHOWN: Json = FRAGMENT_BODY | {"tenant": TENANT, "modified": 1893456000}
FRAGMENT: Json = {"status": OK, "item": FRAGMENT_SHOWN}
FRAGMENT_REMOVED: Json = {"status": OK, "item": "toHub"}
FRAGMENTS: Json = {"status": OK, "items": [FRAGMENT_SHOWN]}

_RUNNING: Json = {
    "name": "debug", "plugin": "debug", "config": {"destination": "devnull"}, "referenceCount": 1, "successCount": 120,
    "errorCount": 0, "filterCount": 0, "lastEventTs": 1893456000, "tenant": TENANT,
}  # fmt: skip
RUNNING: Json = {"status": OK, "item": _RUNNING}
RUNNINGS: Json = {"status": OK, "items": [_RUNNING]}
_DECLARED: Json = {"kind": "filter", "name": "block", "about": "Lets no event pass.", "runs": "both", "package": ""}
DECLARED: Json = {"status": OK, "items": [_DECLARED]}
DECLARATION: Json = {"status": OK, "item": _DECLARED | {"schema": {"type": "object", "properties": {}}}}

STANDING: Json = {
    "instance": "node-1_0f3a", "instances": ["node-1_0f3a", "node-2_9c1e"], "ready": True, "next": None,
    "routes": [
        {"id": "alarms", "tenant": TENANT, "revision": 17, "instances": [
            {"instance": "node-1_0f3a", "state": "live", "revision": 17, "refused": 0, "reason": "", "at": None},
            {"instance": "node-2_9c1e", "state": "acked", "revision": 17, "refused": 0, "reason": "", "at": 1893456000.5}]}
    ],
}  # fmt: skip
REPAIR: Json = {
    "at": 1893456000.5, "revision": 17, "repaired": [{"id": "alarms", "tenant": TENANT, "what": "missing"}], "refused": [],
}  # fmt: skip
REPAIRS: Json = {"repairs": [REPAIR]}
APPLY: Json = {
    "changes": [{"put": ROUTE | {"id": "alarms", "tenant": TENANT}, "revision": 0},
                {"remove": {"tenant": TENANT, "id": "old"}}],
    "dry_run": False,
}  # fmt: skip
APPLIED: Json = {
    "dry_run": False, "change": CHANGE,
    "routes": [
        {"id": "alarms", "tenant": TENANT, "what": "added", "hash": SHOWN["hash"], "revision": 17, "warnings": [],
         "here": HERE},
        {"id": "old", "tenant": TENANT, "what": "removed", "hash": "", "revision": 0, "warnings": [],
         "here": {"state": "absent", "revision": 0, "refused": 0, "reason": ""}},
    ],
}  # fmt: skip

_TOOK: Json = {"id": "alarms", "outcome": "sent", "sent": 1, "kept": 0, "letters": []}
EVENT: Json = {"kind": "alarm", "level": 3}
EVENT_DONE: Json = {
    "status": OK,
    "item": {"routeId": "alarms", "tx.traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "outcome": "acked", "routes": [_TOOK]},
}
POSTED: Json = {
    "status": OK, "item": {"tx.traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "outcome": "acked", "routes": [_TOOK]},
}  # fmt: skip
EXPLAIN: Json = {"tenant": TENANT, "payload": {"kind": "heartbeat"}}
_EXPLAINED: Json = {
    "id": "alarms", "tenant": TENANT, "verdict": "dropped", "receiver": "http", "step": "filterChain[0] match",
    "reason": 'payload.kind is "heartbeat", wanted "alarm"', "messages": [], "faults": [],
    "steps": [{"step": "filterChain[0] match", "came": 1, "went": 0}],
}  # fmt: skip
EXPLAINED: Json = {"routes": [_EXPLAINED], "next": None}
TEST: Json = {"tenant": TENANT, "id": "alarms", "events": [{"payload": {"kind": "heartbeat"}}]}
TESTED: Json = {"id": "alarms", "tenant": TENANT, "events": [_EXPLAINED], "flushed": []}

_LETTER: Json = {
    "id": 7, "tenant": TENANT, "route": "alarms", "sender": "debug", "step": "filterChain[0] split", "tries": 0,
    "reason": "payload is a map, wanted an array", "came": 1893456000.5, "at": 1893456000.7,
}  # fmt: skip
LETTERS: Json = {"letters": [_LETTER], "next": None}
LETTER: Json = _LETTER | {"content": {"payload": {"kind": "alarm"}, "metadata": {}}}
LETTER_TRIED: Json = {"id": 7, "tried_again": True}
LETTER_DROPPED: Json = {"id": 7, "dropped": True}

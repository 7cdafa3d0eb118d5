"""Routes as people write them, for tests."""

from __future__ import annotations

from typing import Any

EARS: dict[str, Any] = {
    "id": "acct-feed-1",
    "tenant": {"orgId": "myorg", "appId": "myapp"},
    "userId": "boris",
    "region": "us-west-2",
    "inactive": True,
    "status": "stopped",
    "routeType": "trigger",
    "name": "accountFeed",
    "desc": "accounts for everybody",
    "origin": "flow-17",
    "receiver": {
        "plugin": "kafka",
        "name": "acctIn",
        "config": {"brokers": "secret://acct.brokers", "topic": "in", "groupId": "g", "password": "secret://acct.password"},
    },
    "filterChain": [
        {"plugin": "match", "name": "m1", "config": {"matcher": "patternregex", "pattern": {"TopicArn": ".*_ACCOUNT$"}}},
        {"plugin": "decode", "name": "d1", "config": {"fromPath": ".Message"}},
        {"plugin": "transform", "name": "t1", "config": {"transformation": {"body": "{.Message.body}"}}},
    ],
    "sender": {"plugin": "kafka", "name": "acctOut", "config": {"brokers": "k1:9092", "topic": "acct"}},
    "deliveryMode": "at_least_once",
    "debug": True,
    "created": 1700000000,
    "modified": 1700000001,
}


def written(**changes: Any) -> dict[str, Any]:
    """The least that a route must have, with changes."""
    return {"id": "r", "receiver": {"plugin": "nop"}, "sender": {"plugin": "nop"}, **changes}

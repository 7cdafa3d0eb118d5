"""What Python does with each bundle inside a transaction is done awake, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from bridge_hub import Hub, auto
from fleet_words import TIME, cluster, part, policy_event, work

from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Mode
from trunkline.db import awake

MANY = 20


class Listening(psycopg.Connection[Any]):
    """Counts how often its client says that it is awake."""

    words = 0

    def execute(self, query: Any, *args: Any, **more: Any) -> Any:
        self.words += query == "SELECT"
        return super().execute(query, *args, **more)


@pytest.fixture
def conn(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    monkeypatch.setattr(awake, "WORD_SECONDS", 0.0)
    with Listening.connect(hub.dsn) as conn:
        yield conn


def test_h01_intake_is_awake_while_it_looks_at_runs_and_resyncs_and_tells_of_each_bundle(hub: Hub, conn: Listening) -> None:
    sent = [auto("a", "managed-clusters", Mode.HYBRID, n, n, {"resync": []}) for n in range(1, MANY + 1)]
    plan, arrived = hub.plan(sent)
    hub.conn = conn
    hub.write(plan, arrived)
    looks = ("whether it is sound", "its run", "its run, above what is known", "which is newest", "restores", "what waits")
    assert conn.words == MANY * len(looks)


@pytest.mark.parametrize(
    ("type_", "items"),
    [
        ("managed-clusters", {"create": [cluster(str(n)) for n in range(MANY)]}),
        ("policy-events", [policy_event(f"e{n}", "compliant", TIME) for n in range(MANY)]),
        ("hub-info", [{"clusterId": str(n)} for n in range(MANY)]),
    ],
)
def test_h01_a_handler_is_awake_with_each_object_of_a_long_bundle(conn: Listening, type_: str, items: Any) -> None:
    handler = SHIPPED[type_].handler
    assert handler is not None
    handler.write(conn, SHIPPED[type_], [work("a", part(items))])
    assert conn.words >= MANY

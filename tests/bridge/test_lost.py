"""Records that are gone: what a site is known to send is wanted again, and nothing that needs them is applied before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bridge_hub import Hub, auto, clusters, events

from trunkline.bridge.inbox import Arrived, Batch, Lost, write_batch
from trunkline.core.bundle import Bundle, Dependency, Mode, Version

QUEUE = "status.h1@0"


def write(hub: Hub, bundles: Sequence[Bundle], lost: Sequence[Lost] = (), first: int = 100) -> None:
    arrived = [Arrived(bundle, QUEUE, first + n) for n, bundle in enumerate(bundles)]
    write_batch(hub.conn, hub.types, Batch(arrived, [], Counter(b.source for b in bundles), lost, "kafka"))
    hub.conn.commit()


def of(site: str, type_: str, mode: Mode, needs: str | None = None) -> Bundle:
    return auto(site, type_, mode, 0, 1, [], needs=Dependency(needs, Version(0, 1)) if needs else None)


def test_all_that_a_site_is_known_to_send_is_wanted_and_what_is_ordered_is_held(hub: Hub) -> None:
    known = [
        of("h1", "managed-clusters", Mode.HYBRID),
        of("h1", "clusters-per-policy", Mode.COMPLETE),
        of("h1", "compliance-delta", Mode.DELTA, "complete-compliance"),
        of("h1", "policy-events", Mode.APPEND),
        clusters("h2", 1),
    ]
    write(hub, known)
    write(hub, [], [Lost("h1", "offsets 100 to 500 of status.h1@0 are gone")])
    reason = "offsets 100 to 500 of status.h1@0 are gone"
    assert hub.rows("SELECT site, type, holds, reason FROM bridge.resync ORDER BY type") == [
        ("h1", "clusters-per-policy", None, reason),
        ("h1", "complete-compliance", "compliance-delta", reason),
        ("h1", "managed-clusters", "managed-clusters", reason),
    ]


def test_what_comes_in_the_same_batch_is_known_too(hub: Hub) -> None:
    write(hub, [of("h1", "policies", Mode.HYBRID)], [Lost("h1", "gone")])
    assert hub.rows("SELECT type, holds FROM bridge.resync") == [("policies", "policies")]
    assert hub.rows("SELECT type FROM bridge.inbox") == [("policies",)]


def test_what_was_applied_is_known_and_a_site_of_which_nothing_is_known_is_asked_for_nothing(hub: Hub) -> None:
    hub.take_in(clusters("a", 1), events("a", 1))
    assert hub.apply("a", "clusters") == Version(1, 1)
    write(hub, [], [Lost("a", "gone"), Lost("never-heard", "gone")])
    assert hub.rows("SELECT site, type, holds FROM bridge.resync") == [("a", "clusters", None)]

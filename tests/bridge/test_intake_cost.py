"""What taking in costs: tens of milliseconds for a thousand bundles, the same when each replaces one that waits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from bridge_hub import AT, Hub, auto

from trunkline.core.bundle import Bundle, Dependency, Mode, Version

SITES = 500
TYPES = ("clusters", "compliance", "heartbeat", "complete-compliance")
# Milliseconds per thousand. A busy machine stretches the one that is waited for; what is counted in processor time it does not.
WAITED, COMPUTED = 2_000.0, 100.0


def _ours(site: str, type_: str, generation: int) -> Bundle:
    needs = Dependency("clusters-per-policy", Version(1, 1)) if type_ == "complete-compliance" else None
    return Bundle(id="x", source=site, type=type_, time=AT, mode=Mode.COMPLETE, version=Version(1, generation),
                  dependency=needs, data=b"[" + b" " * 500 + b"]")  # fmt: skip


def _foreign(site: str, type_: str, generation: int) -> Bundle:
    """Its run has to be told, and kept."""
    needs = Dependency("clusters-per-policy", Version(0, 1)) if type_ == "complete-compliance" else None
    return auto(site, type_, Mode.COMPLETE, generation, generation, b"[" + b" " * 500 + b"]", needs=needs)


@pytest.mark.parametrize("sent", [_ours, _foreign], ids=["with incarnations", "whose runs are told"])
def test_taking_in_a_thousand_complete_bundles_takes_tens_of_milliseconds(
    hub: Hub, sent: Callable[[str, str, int], Bundle]
) -> None:
    def per_thousand(generation: int) -> tuple[float, float]:
        plan, arrived = hub.plan([sent(f"s{n:03}", type_, generation) for n in range(SITES) for type_ in TYPES])
        began, computed = time.perf_counter(), time.process_time()
        hub.write(plan, arrived)
        each = 1_000_000 / len(arrived)
        return (time.perf_counter() - began) * each, (time.process_time() - computed) * each

    waited, computed = zip(*(per_thousand(generation) for generation in range(1, 5)), strict=True)
    assert hub.rows("SELECT count(*), min(generation) FROM bridge.inbox") == [(SITES * len(TYPES), 4)]
    assert min(waited) < WAITED, waited
    assert min(computed) < COMPUTED, computed

"""Random graphs under cuts, silent links, deaths, returns and delay: 0 lost, 0 duplicated, 0 loops, 1.000 copies."""

from __future__ import annotations

import pytest

from trunkline.node.sim.many import cores, verdicts


@pytest.mark.timeout(1200)
def test_two_thousand_universes_of_random_graphs_come_right() -> None:
    with verdicts("topology", range(2_000), cores()) as found:
        judged = {v.seed: v.failures for v in found}
    assert len(judged) == 2_000
    assert {seed: failures for seed, failures in judged.items() if failures} == {}

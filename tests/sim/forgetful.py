"""A scenario with a defect, for the tests of the tool: never in the catalogue.

A site loses the first entry of whatever it stores while two things coincide: its clock leapt at some time before, and its
disk is slow now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trunkline.net.simhost import Outlet, Process
from trunkline.node.sim.catalogue import carrying
from trunkline.node.sim.setup import Links
from trunkline.node.sim.site import SimSite
from trunkline.node.sim.universe import Universe
from trunkline.node.sitecore import Effect, HostWork
from trunkline.trunk import asks

LINKS: Links = (("a", "b"), ("b", "c"))


class ForgetfulSite(SimSite):
    universe: Universe

    def durable(self, work: HostWork) -> Callable[[float], list[Effect]]:
        net = self.universe.net
        if isinstance(work, asks.Append) and net.hosts[self.host].clock.leapt and net.disks[self.host].slowness > 1.0:
            work = replace(work, entries=work.entries[1:])
        return super().durable(work)


def boot_forgetful(universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
    site = ForgetfulSite(host, universe.databases, outlet, now, universe.setup)
    site.universe = universe
    return site


FORGETFUL = replace(
    carrying("forgetful", "loses entries when two faults coincide", LINKS),
    boot=boot_forgetful,
    faults=("crash", "cut", "leap", "slowdisk", "slow"),
)

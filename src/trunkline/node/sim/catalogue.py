"""What can be simulated, by name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from random import Random

from trunkline.core.errors import Invalid
from trunkline.core.ids import ALL_SITES
from trunkline.net.simhost import Outlet, Process
from trunkline.node.sim.checks import acknowledged, entries_delivered, stores_equal
from trunkline.node.sim.clients import draw_changes
from trunkline.node.sim.faults import draw_faults
from trunkline.node.sim.history import Event, History, Write, in_order
from trunkline.node.sim.leased import LeasedNode
from trunkline.node.sim.pathchecks import paths_right
from trunkline.node.sim.setup import Links, Setup, nodes_of_sites, random_graph
from trunkline.node.sim.site import LEAN, SimSite
from trunkline.node.sim.storechecks import STORE_CHECKS
from trunkline.node.sim.storenode import AMPLE, NARROW, Manner, StoreNode
from trunkline.node.sim.universe import Scenario, Universe, Verdict, run_history, setup_of

ANYWHERE = ("crash", "power", "pause", "leap", "cut", "split", "mute", "slow", "loss", "reset")
ON_PATHS = ("crash", "power", "cut", "split", "mute", "slow", "reset")
ON_DISK = ("slowdisk", "stall")
ON_LEASE = ("nodb", "wall")

CHAIN: Links = (("leaf", "relay"), ("hub", "relay"))
RING: Links = (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"))
HOUSE: Links = (*RING, ("a", "e"), ("b", "e"))
STAR: Links = tuple(("hub", f"leaf-{n}") for n in range(1, 6))

STORE_SECONDS = 35.0  # of the sixty at least that an erased key is kept away, twenty pass with the faults


def draw_writes(
    random: Random, setup: Setup, calm: float, count: int = 40, writers: Sequence[str] | None = None
) -> list[Event]:
    """Transactions of one to three messages, each to some or all of the other sites; without `writers`, any site writes."""
    return [_draw_write(random, setup, round(random.uniform(0.0, calm), 3), writers or setup.sites) for _ in range(count)]


def _draw_write(random: Random, setup: Setup, at: float, writers: Sequence[str]) -> Write:
    site = random.choice(writers)
    others = [name for name in setup.sites if name != site]
    messages = []
    for _ in range(random.randint(1, 3)):
        chosen = tuple(sorted(random.sample(others, random.randint(1, len(others)))))
        destinations = (ALL_SITES,) if random.random() < 0.1 else chosen
        messages.append((random.choice(("status", "policy")), destinations))
    return Write(at, site, tuple(messages))


def boot_site(universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
    return SimSite(host, universe.databases, outlet, now, universe.setup)


def boot_lean_site(universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
    return SimSite(host, universe.databases, outlet, now, universe.setup, LEAN)


def boot_leased(universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
    return LeasedNode(host, universe.databases, outlet, now, universe.setup)


def boot_store(manner: Manner, universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
    return StoreNode(host, outlet, now, universe.ledger.wrote, manner)


CARRYING = (stores_equal, entries_delivered, acknowledged)


def carrying(name: str, about: str, links: Links) -> Scenario:
    return Scenario(name, about, lambda random: Setup(links), boot_site, ANYWHERE + ON_DISK, draw_writes, CARRYING)


def storing(name: str, about: str, manner: Manner) -> Scenario:
    return Scenario(
        name, about, partial(random_graph, fewest=3, most=8), partial(boot_store, manner), ANYWHERE, draw_changes,
        (stores_equal, *STORE_CHECKS), steady=False, loss=0.05, seconds=STORE_SECONDS,
    )  # fmt: skip


_ALL = (
    carrying("chain", "leaf, relay and hub in a row: everything the ends exchange is relayed", CHAIN),
    carrying("ring", "four sites in a ring: a second path when one breaks", RING),
    carrying("house", "five sites, a ring with a roof: cycles that share links", HOUSE),
    Scenario(
        "mesh", "four to six sites in a random graph with cycles, another one for every seed",
        random_graph, boot_site, ANYWHERE + ON_DISK, draw_writes, CARRYING,
    ),
    Scenario(
        "topology", "four to eight sites in a random graph, all writing: who takes whose records from whom, and every one once",
        partial(random_graph, fewest=4, most=8), boot_lean_site, ON_PATHS, partial(draw_writes, count=20),
        (*CARRYING, paths_right), calm=6.0, rest=0.5,
    ),
    carrying("star", "one hub and five leaves: the hub relays among them all", STAR),
    storing("store", "the store alone on three to eight nodes whose clients change the same keys and their own", AMPLE),
    storing("narrow", "the store where little may wait: a low rate limit, full links, slow watchers", NARROW),
    Scenario(
        "site", "leaf, relay and hub; three nodes share the relay's database, and its lease moves among them",
        lambda random: nodes_of_sites({"leaf": 1, "relay": 3, "hub": 1}, CHAIN),
        boot_leased, ANYWHERE + ON_DISK + ON_LEASE, partial(draw_writes, count=25), CARRYING,
    ),
)  # fmt: skip
CATALOGUE: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}


def find(name: str) -> Scenario:
    if name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, 1)
        step = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(CATALOGUE)}"
        raise Invalid(f"simulation {name!r}", "there is none of that name", step)
    return CATALOGUE[name]


def draw(scenario: Scenario, seed: int, loss: float | None = None) -> History:
    """The history of a seed."""
    random, setup = Random(f"{seed} history"), setup_of(scenario, seed)
    calm = scenario.calm
    events: list[Event] = [*draw_faults(random, scenario.faults, calm, setup), *scenario.draw(random, setup, calm)]
    return History(scenario.name, seed, scenario.loss if loss is None else loss, in_order(events))


def run_seed(scenario: Scenario, seed: int, loss: float | None = None) -> Verdict:
    return run_history(scenario, draw(scenario, seed, loss))

"""Fleets at random: cuts, returns, moves, loss and delay; in the end everybody has everything once, and links are quiet."""

from __future__ import annotations

from random import Random

import pytest
from carriers import Fleet, random_links

from trunkline.trunk.handover import Handover
from trunkline.trunk.streams import Lanes


def turmoil(seed: int, handover: Handover, loss: float, rounds: int = 25) -> Fleet:
    random = Random(seed)
    links, delay = random_links(random, random.randint(3, 6), 2.0), random.choice((0.0, 0.03, 0.2))
    fleet = Fleet(links, handover=handover, delay=delay, lanes=Lanes(near=2, far=random.choice((4, 1000))))
    fleet.lose = lambda sender, to, message: random.random() < loss
    sites = list(fleet.carriers)
    gone: list[tuple[str, str]] = []
    for _ in range(rounds):
        for _ in range(random.randint(0, 6)):
            origin = random.choice(sites)
            fleet.commit(origin, *random.sample([s for s in sites if s != origin], random.randint(1, len(sites) - 1)))
        match random.randint(0, 9):
            case 0 if len(fleet.links) > 1:
                a, b = sorted(random.choice(list(fleet.links)))
                gone.append((a, b))
                fleet.cut(*gone[-1])
                fleet.route()
            case 1 | 2 if gone:
                fleet.join(*gone.pop())
                fleet.route(gently=True)
            case 3 | 4:
                site, origin = random.sample(sites, 2)
                fleet.move(
                    site, origin, random.choice([s for link in fleet.links if site in link for s in link - {site}] or [None])
                )
            case 5:
                fleet.replace(random.choice(sites), generation=2)
        fleet.run(random.choice((0.1, 0.3, 1.0)))
    fleet.lose = lambda sender, to, message: False
    for link in gone:
        fleet.join(*link)
    fleet.route(gently=True)
    fleet.run(30.0)
    return fleet


def check(fleet: Fleet) -> None:
    for origin, ends in fleet.ends.items():
        head = ends.log.head()
        for site in fleet.carriers:
            if site != origin:
                due = [e.seq for e in ends.log.read(0, head.seq, {site}).entries] if head.seq else []
                assert fleet.got(site, origin) == due, (site, origin)
                assert not head.seq or fleet.acknowledged[origin, site] == {"policy": head}, (site, origin)


@pytest.mark.parametrize("handover", Handover)
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_fleets_at_random_lose_nothing_and_end_quiet(handover: Handover, loss: float) -> None:
    for seed in range(8):
        fleet = turmoil(seed, handover, loss)
        check(fleet)
        fleet.crossed.clear()
        for origin in fleet.carriers:
            fleet.commit(origin, "*")
        fleet.run(10.0)
        check(fleet)
        assert set(fleet.crossed.values()) == {1}
        number = len(fleet.carriers)
        assert len(fleet.crossed) == number * (number - 1), "one copy for each site, and no more"


@pytest.mark.soak
@pytest.mark.parametrize("handover", Handover)
def test_many_fleets_at_random_lose_nothing(handover: Handover) -> None:
    for seed in range(1000, 1400):
        check(turmoil(seed, handover, 0.03))

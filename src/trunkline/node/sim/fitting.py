"""Whether an event fits a universe: its fault exists, and everybody it names is there."""

from __future__ import annotations

import re
from collections.abc import Collection

from trunkline.core.errors import Invalid
from trunkline.core.ids import ALL_SITES
from trunkline.node.sim.faults import Subject, kind_of
from trunkline.node.sim.history import Change, Event, Fault, Read, Write
from trunkline.node.sim.setup import Setup


def check_event(event: Event, setup: Setup, store_nodes: Collection[str]) -> None:
    match event:
        case Fault():
            names = re.split(r"<>|>|,", event.subject)
            _check(event, names, setup.sites if kind_of(event).subject is Subject.DISK else setup.hosts)
        case Write():
            destinations = [d for _, named in event.messages for d in named]
            _check(event, [event.site, *destinations], (*setup.sites, ALL_SITES))
        case Change() | Read():
            _check(event, [event.node], store_nodes)


def _check(event: Event, names: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        allowed = f"use {', '.join(known)}" if known else "take the event away"
        raise Invalid(f"event {event}", f"{', '.join(unknown)} is not in this universe", allowed)

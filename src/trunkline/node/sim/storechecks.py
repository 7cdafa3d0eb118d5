"""What must be true of the nodes of the store once the faults are over, besides that their stores are equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trunkline.node.sim.storenode import Wish
from trunkline.node.sim.witness import Failure
from trunkline.store.digest import MASK, word
from trunkline.store.values import INFINITE

if TYPE_CHECKING:
    from trunkline.node.sim.universe import Universe


def digests_equal(universe: Universe) -> Iterator[Failure]:
    """They are what the values come to, and the same everywhere."""
    first = universe.stores[universe.setup.hosts[0]].table.digest.root()
    for host, store in universe.stores.items():
        root = store.table.digest.root()
        if root != sum(word(value) for _, value in store.table.values()) & MASK:
            yield Failure("G2", f"the digest of {host} is not that of its values")
        elif root != first:
            yield Failure("G2", f"the digests of {universe.setup.hosts[0]} and {host} differ")


def kept_keys_hold(universe: Universe) -> Iterator[Failure]:
    """At what their keeper wants; where several persist one key, at what one of them wants."""
    wanted = _wanted(universe)
    for host, node in universe.store_nodes.items():
        for key in node.wishes:
            entry = node.store.table.entries.get(key)
            if node.keeps(key) and (entry is None or entry.value.erased or entry.value.data not in wanted[key]):
                yield Failure("G2", f"{host} keeps {key} and its store has another value")


def _wanted(universe: Universe) -> dict[str, set[bytes]]:
    kept: defaultdict[str, list[Wish]] = defaultdict(list)
    for node in universe.store_nodes.values():
        for key in node.wishes:
            if (wish := node.keeps(key)) is not None:
                kept[key].append(wish)
    stronger = {key: [w for w in wishes if w.persisted] or wishes for key, wishes in kept.items()}
    return {key: {wish.data for wish in wishes} for key, wishes in stronger.items()}


def set_keys_stay(universe: Universe) -> Iterator[Failure]:
    """A node gives up a key that it set only when somebody else wrote it."""
    for host, node in universe.store_nodes.items():
        for key, wish in node.wishes.items():
            written = universe.ledger.last.get(key)
            if written is not None and (written.host, written.value.data) == (host, wish.data) and not node.keeps(key):
                yield Failure("kept", f"{host} no longer keeps {key}, and nobody else wrote it")


def last_written_stays(universe: Universe) -> Iterator[Failure]:
    for key, value in universe.ledger.lasting():
        for host, store in universe.stores.items():
            entry = store.table.entries.get(key)
            if entry is None or entry.value.version < value.version or entry.value.hash != value.hash:
                what = "erased" if value.erased else "written to stay"
                yield Failure("lasting", f"{key} was {what} last, by {value.originator}, and {host} has something else")


def unkept_keys_are_gone(universe: Universe) -> Iterator[Failure]:
    kept = {key for node in universe.store_nodes.values() for key in node.wishes if node.keeps(key)}
    for host, store in universe.stores.items():
        for key, value in store.table.values():
            if key not in kept and not value.erased and value.ttl_ms != INFINITE:
                yield Failure("gone", f"{host} still has {key} of {value.originator}, which nobody keeps")


def watchers_know(universe: Universe) -> Iterator[Failure]:
    """The last thing a watcher heard of each key is what its node has; read at any time, in any portions."""
    for host, node in universe.store_nodes.items():
        node.read_all()
        there = {key: (v.version, v.originator, v.data) for key, v in node.store.table.values() if not v.erased}
        known = {key: (v.version, v.originator, v.data) for key, v in node.seen.items()}
        for key in sorted(there.keys() | known.keys()):
            if there.get(key) != known.get(key):
                yield Failure("watch", f"the watcher of {host} knows another value of {key} than its store has")


def nodes_synced(universe: Universe) -> Iterator[Failure]:
    for host, store in universe.stores.items():
        if not store.synced:
            yield Failure("G2", f"{host} does not say that it is synced")


STORE_CHECKS = (
    digests_equal, kept_keys_hold, set_keys_stay, last_written_stays, unkept_keys_are_gone, watchers_know, nodes_synced,
)  # fmt: skip

"""What a node shows to people and to machines that watch it. Computed on the event loop, asked from anywhere."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trunkline.core.errors import Retryable
from trunkline.node.peers import Peers
from trunkline.node.sitecore import SiteCore
from trunkline.store.peers import PeerState

ANSWER_SECONDS = 5.0
_T = TypeVar("_T")


class OnLoop:
    """Runs a look at the node where the node lives."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def begin(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def __call__(self, view: Callable[[], _T]) -> _T:
        loop = self._loop
        if loop is not None and threading.get_ident() == self._thread:
            return view()
        asked: concurrent.futures.Future[_T] = concurrent.futures.Future()
        try:
            if loop is None:
                raise RuntimeError
            loop.call_soon_threadsafe(_answer, asked, view)
        except RuntimeError:  # it is closed
            raise Retryable("node", "it does not run", "ask again") from None
        return _answered(asked, ANSWER_SECONDS)

    def wait(self, work: Callable[[], Coroutine[Any, Any, _T]], seconds: float) -> _T:
        """What takes its time is done there too; from any other thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            raise Retryable("node", "it does not run", "ask again")
        return _answered(asyncio.run_coroutine_threadsafe(work(), loop), seconds)


def _answered(asked: concurrent.futures.Future[_T], seconds: float) -> _T:
    try:
        return asked.result(seconds)
    except TimeoutError:
        asked.cancel()
        raise Retryable("node", f"no answer within {seconds:g} s", "ask again") from None


def _answer(asked: concurrent.futures.Future[_T], view: Callable[[], _T]) -> None:
    if not asked.set_running_or_notify_cancel():
        return  # who asked has gone
    try:
        asked.set_result(view())
    except Exception as error:
        asked.set_exception(error)


def status(core: SiteCore, peers: Peers, delivered: Counter[str], failures: dict[str, int]) -> dict[str, Any]:
    carrier = core.carrier
    relayed = sum(n for (_, what), n in carrier.counters.items() if what == "relayed") if carrier else 0
    return {
        "site": core.identity.site,
        "node": core.identity.node,
        "leads": carrier is not None,
        "incarnation": core.incarnation,
        "head": carrier.head.seq if carrier else 0,
        "relayed": relayed,
        "delivered": {site: {"entries": count} for site, count in delivered.items()},
        "nodes": len(core.nodes()),
        "links": sorted(str(peer) for peer in peers.endpoint.links()),
        "violations": {kind: {"connections": count} for kind, count in peers.endpoint.violations.items()},
        "accept_errors": peers.endpoint.accept_errors,
        "certificate": {"expires_at": peers.endpoint.credentials.expires_at},
        "tasks": {name: {"failures": count} for name, count in failures.items()},
    }


def store_state(core: SiteCore) -> tuple[bool, int, int, int]:
    """Synced, peers in step, peers, keys: of the fleet's area."""
    fleet = core.store.fleet
    peers = fleet.peers.by_name.values()
    return fleet.synced, sum(peer.state is PeerState.INITIALIZED for peer in peers), len(peers), len(fleet.table)

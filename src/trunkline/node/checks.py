"""What a node says of its own health, from what it knows already: nothing here asks the database or waits.

A node is ready when each check is ok: it can take events, and its site is led. What does not stop that is told in the reason
of a check that is ok. So a node whose links are all down stays ready: what it takes is durable and goes out when they
come back; taking it out of service would lose writes and win nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trunkline.core.health import Check
from trunkline.db.lease import Grant, Holding
from trunkline.node.probe import PROBE_SECONDS, Answer

SILENT_SECONDS = 4 * PROBE_SECONDS
STUCK_SECONDS = 5.0


@dataclass(frozen=True)
class LeaseState:
    """`grant` is what this node holds, `led_since` when it began to act on it, `seen` what it last read and how long ago."""

    grant: Grant | None
    led_since: float | None
    seen: Holding | None
    seen_age: float
    trouble: str
    rests: float
    why_resting: str


def start_check(step: str, since: float, trouble: str, now: float) -> Check:
    waits = f", waiting for {now - since:.0f} s: {trouble}" if trouble else ""
    return Check("start", False, f"{step}{waits}")


def database_check(answer: Answer | None, trouble: str, now: float) -> Check:
    if answer is None:
        return Check("database", False, f"no answer yet: {trouble}" if trouble else "no answer yet")
    silent = now - answer.at
    if not trouble and silent <= SILENT_SECONDS:
        return Check("database", True, "answers")
    return Check("database", False, f"no answer for {silent:.0f} s{': ' + trouble if trouble else ''}")


def lease_check(state: LeaseState) -> Check:
    ok, reason = _lease(state)
    return Check("lease", ok, reason)


def _lease(state: LeaseState) -> tuple[bool, str]:
    if state.grant is not None and state.led_since is not None:
        return True, f"leads with epoch {state.grant.epoch}"
    if state.grant is not None:
        return False, f"holds epoch {state.grant.epoch} and is about to lead"
    if state.trouble:
        return False, f"not known who leads: {state.trouble}"
    if state.seen_age > SILENT_SECONDS:
        return False, f"not known who leads: no answer for {state.seen_age:.0f} s"
    if state.seen is not None and state.seen.live:
        return True, f"follows {state.seen.owner or 'another node'}, epoch {state.seen.epoch}"
    if state.rests:
        return False, f"nobody leads; this node rests for {state.rests:.0f} s after its work failed: {state.why_resting}"
    return False, "nobody leads"


def trunk_check(answer: Answer | None, led_since: float | None, now: float) -> Check:
    if led_since is None:
        return Check("trunk", True, "the leader's affair")
    if answer is None or now - answer.at > SILENT_SECONDS:
        return Check("trunk", True, "not known while the database does not answer")
    stuck = answer.at - max(answer.moved_at, led_since)
    if answer.waiting and stuck >= STUCK_SECONDS:
        return Check("trunk", False, f"head {answer.head} has not moved for {stuck:.0f} s while {answer.waiting} commits wait")
    return Check("trunk", True, f"head {answer.head}, {answer.waiting} commits wait")


def links_check(endpoint: Check, sites: Mapping[str, bool]) -> Check:
    """`endpoint` says whether this node can be reached at all."""
    up = sorted(site for site, linked in sites.items() if linked)
    down = sorted(site for site, linked in sites.items() if not linked)
    words = [endpoint.reason]
    words += [f"connected: {', '.join(up)}"] if up else []
    words += [f"not connected: {', '.join(down)}"] if down else []
    return Check("links", endpoint.ok, "; ".join(words))


def store_check(synced: bool, in_step: int, peers: int, keys: int) -> Check:
    """A node that lost its peers keeps what it has: only one that has not yet heard what there is is not ready."""
    count = f"{in_step} of {peers} peers in step, {keys} keys"
    return Check("store", synced, count if synced else f"not yet synced: {count}")

"""An intake that the test kills: `killed_intake.py <dsn> <last position>` takes in what two sites send, a few at a time."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack

import psycopg
from bridge_hub import GROUP, Hub, auto

from trunkline.bridge.inbox import Arrived, Batch, Rejected, take_in
from trunkline.bridge.plan import Plan, commit_plan, read_offsets
from trunkline.core.bundle import Bundle, Chunk, Mode, Version

SITES = ("a", "b")
AT_ONCE = 7
KINDS = 6


def queue(site: str) -> str:
    return f"LRQ_Recv_status_{site}"


def message(site: str, position: int) -> Arrived | Rejected:
    """What stands there: complete, append, junk, two parts of one bundle, and a sender that starts anew every fourth time."""
    turn, kind = divmod(position, KINDS)
    plain = {"source": site, "time": "", "version": Version(1, turn)}
    match kind:
        case 0:
            bundle = Bundle(id=f"c{position}", type="clusters", mode=Mode.COMPLETE, data=b"[]", **plain)
        case 1:
            bundle = Bundle(id=f"e{position}", type="events", mode=Mode.APPEND, data=b"[]", **plain)
        case 2:
            return Rejected(site, {}, b"junk", "junk", queue(site), position)
        case 3 | 4:
            part = {"chunk": Chunk(kind - 2, 2), "data": b"[]"[kind - 3 : kind - 2]}
            bundle = Bundle(id=f"p{position}", type="compliance", mode=Mode.COMPLETE, **part, **plain)  # type: ignore[arg-type]
        case _:
            bundle = auto(site, "heartbeat", Mode.COMPLETE, turn % 4, turn, b"[]", id_=f"h{position}")
    return Arrived(bundle, queue(site), position)


def take_next(hub: Hub, last: int) -> bool:
    start = read_offsets(hub.conn, GROUP)
    end = {queue(site): min(start.get(queue(site), 1) + AT_ONCE, last + 1) for site in SITES}
    if all(end[name] == start.get(name) for name in end):
        return False
    commit_plan(hub.conn, hub.grant, GROUP, start, end)
    read = [message(site, n) for site in SITES for n in range(start.get(queue(site), 1), end[queue(site)])]
    bundles = [one for one in read if isinstance(one, Arrived)]
    rejected = [one for one in read if isinstance(one, Rejected)]
    counts = Counter([a.bundle.source for a in bundles] + [r.site for r in rejected])
    take_in(hub.conn, hub.grant, GROUP, Plan(start, end), hub.types, Batch(bundles, rejected, counts))
    return True


def main(dsn: str, last: int) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name = 'bridge'")
    with ExitStack() as stack:
        hub = Hub(dsn, stack)
        while take_next(hub, last):
            sys.stdout.write("took some in\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""The demo: starts the fleet, shows it, breaks it when asked to, and says whether everything arrived."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psycopg
from rich.console import Console
from rich.live import Live
from rich.table import Table

from trunkline.cli.demo.fleet import HUB, behind_relay, plan_sites
from trunkline.cli.demo.interrupt import Interrupted
from trunkline.cli.demo.live import READINGS, Edit, LiveRoutes, orders, readings
from trunkline.cli.demo.orders import ORDERS
from trunkline.cli.demo.processes import Child
from trunkline.cli.demo.running import Fleet, chaos_schedule
from trunkline.cli.demo.told import Copies, print_logs, print_verdict
from trunkline.cli.demo.verdict import Comparison, compare
from trunkline.cli.demo.watch import Watcher, table, watching
from trunkline.cli.dev.kafka import install
from trunkline.core.errors import Invalid, Retryable, Terminal

DRAIN_SECONDS = 60.0
FIRST_ROW_SECONDS = 90.0
LOOK_SECONDS = 0.5
PRINT_SECONDS = 20.0
ADD_SECONDS = 30.0
USUAL_SECONDS = 60.0
EDIT_AT = 1 / 3
EDIT_SECONDS = 60.0


def run_demo(sites: int, seconds: float | None, chaos: bool, kafka: bool, as_json: bool, keep: Path | None) -> int:
    """Exit code: 0 when the hub's rows equal the sites', 1 when not, 130 when interrupted."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Invalid(f"--keep {keep}", "the folder is not empty", "name a new one")
    folder = (keep or Path(tempfile.mkdtemp(prefix="trunkline-demo-"))).resolve()
    try:
        fleet = Fleet(folder, plan_sites(sites, folder), Console(stderr=as_json))
        if kafka:
            install(fleet.console.print)
        with fleet.patience.listening():
            return _show_and_stop(fleet, seconds, chaos, kafka, as_json)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _show_and_stop(fleet: Fleet, seconds: float | None, chaos: bool, kafka: bool, as_json: bool) -> int:
    fleet.folder.mkdir(parents=True, exist_ok=True)
    try:
        return _show(fleet, seconds, chaos, kafka, as_json)
    except Interrupted:
        fleet.console.print("interrupted: stopping everything …")
        return 130
    finally:
        fleet.stop()


def _show(fleet: Fleet, seconds: float | None, chaos: bool, kafka: bool, as_json: bool) -> int:
    begun = time.monotonic()
    fleet.start()
    with watching(fleet.sites, fleet.dsns[HUB]) as watcher:
        first_row = _wait_first_row(fleet, watcher, begun)
        fleet.console.print(f"first row at the hub {first_row:.1f} s after the start")
        live = _add_routes(fleet, kafka)
        _run(fleet, watcher, live, seconds, chaos)
        comparisons, drained = _drain(fleet)
        copies = _copies(fleet, watcher)
    effects = live.effects()
    equal = all(c.equal for c in comparisons) and len(effects) == len(live.receivers)
    if as_json:
        found = {"equal": equal, "first_row_seconds": round(first_row, 1), "drain_seconds": round(drained, 1)}
        rows, edits = [asdict(c) for c in comparisons], [asdict(e) for e in effects]
        restarts = {c.name: c.restarts for c in fleet.children if c.restarts}
        sys.stdout.write(json.dumps({**found, "rows": rows, "edits": edits, "restarts": restarts, "links": copies}) + "\n")
    print_verdict(fleet, comparisons, effects, copies, drained, equal)
    return 0 if equal else 1


def _add_routes(fleet: Fleet, kafka: bool) -> LiveRoutes:
    """After the first row, which they shall not hold up."""
    receivers = {READINGS: readings()}
    if kafka:
        fleet.console.print("starting a Kafka broker …")
        receivers[ORDERS] = orders(fleet.start_kafka())
    live = LiveRoutes(fleet.sites[0], fleet.dsns[HUB], receivers)

    def added() -> bool:
        try:
            live.add()
        except Retryable:
            return False
        return True

    if not fleet.patience.wait_until(added, ADD_SECONDS, every=LOOK_SECONDS):
        print_logs(fleet)
        raise Terminal("demo", "the hub's node takes no routes", "run it with --keep and read its log")
    fleet.console.print(f"added over the API, run by the hub's Spark: route {' and route '.join(receivers)}")
    return live


def _wait_first_row(fleet: Fleet, watcher: Watcher, begun: float) -> float:
    def seen() -> bool:
        fleet.supervise()
        return watcher.applied() > 0

    if not fleet.patience.wait_until(seen, FIRST_ROW_SECONDS, every=0.1):
        print_logs(fleet)
        raise Terminal("demo", f"no row reached the hub in {FIRST_ROW_SECONDS:.0f} s", "run it with --keep and read the logs")
    return time.monotonic() - begun


def _run(fleet: Fleet, watcher: Watcher, live: LiveRoutes, seconds: float | None, chaos: bool) -> None:
    begun = time.monotonic()
    pending = chaos_schedule(fleet) if chaos else []
    edit = Edit(live, EDIT_AT * (seconds or USUAL_SECONDS), fleet.console.print)
    with _display(fleet.console) as show:
        while not _is_over(elapsed := time.monotonic() - begun, seconds, edit):
            if pending and elapsed > pending[0][0] * (seconds or USUAL_SECONDS):
                fleet.console.print(f"{_kill(pending.pop(0)[1])} at {elapsed:.0f} s")
            edit.look(elapsed)
            fleet.supervise()
            of = f" of {seconds:.0f}" if seconds is not None else " (Ctrl-C ends it)"
            show(table(watcher.lines(), f"{elapsed:.0f} s{of}"))
            fleet.patience.pause(LOOK_SECONDS)


def _is_over(elapsed: float, seconds: float | None, edit: Edit) -> bool:
    """Where everything is slow, it lasts until the edit has taken effect."""
    return seconds is not None and elapsed >= (seconds + EDIT_SECONDS if edit.waiting else seconds)


@contextmanager
def _display(console: Console) -> Iterator[Callable[[Table], None]]:
    """Live on a terminal; elsewhere now and then, and once more at the end."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda lines: live.update(lines, refresh=True)
        return
    shown_at, unseen = time.monotonic(), [Table()]

    def show(lines: Table) -> None:
        nonlocal shown_at
        unseen[:] = [lines]
        if time.monotonic() - shown_at >= PRINT_SECONDS:
            shown_at = time.monotonic()
            console.print(unseen.pop())

    yield show
    for lines in unseen:
        console.print(lines)


def _kill(children: Sequence[Child]) -> str:
    for child in children:
        child.kill()
    return "kill -9 of the " + " and the ".join(child.name for child in children)


def _drain(fleet: Fleet) -> tuple[list[Comparison], float]:
    """Writers stop; what is under way arrives, or does not."""
    fleet.console.print("writers stop; draining …")
    begun = time.monotonic()
    for writer in fleet.writers:
        writer.stop()
    policy_sites, with_orders = behind_relay(fleet.sites), fleet.orders is not None
    comparisons: list[Comparison] = []

    def equal() -> bool:
        nonlocal comparisons
        fleet.supervise()
        if any(writer.alive() for writer in fleet.writers):
            return False
        try:
            comparisons = compare(fleet.dsns, policy_sites, with_orders)
        except psycopg.Error:
            return False
        return all(c.equal for c in comparisons)

    fleet.patience.wait_until(equal, DRAIN_SECONDS, every=LOOK_SECONDS)
    return comparisons or compare(fleet.dsns, policy_sites, with_orders), time.monotonic() - begun


def _copies(fleet: Fleet, watcher: Watcher) -> Copies:
    """Since the nodes started."""
    found = {}
    for site in fleet.sites:
        for peer, counters in ((watcher.ask(site, "trunk") or {}).get("links") or {}).items():
            found[f"{site.name} → {peer}"] = {
                "entries": counters.get("sent", 0) + counters.get("relayed", 0),
                "duplicates_received": counters.get("duplicate", 0),
            }
    return found

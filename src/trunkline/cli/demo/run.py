"""The demo: starts the fleet, shows it, breaks it when asked to, and says whether everything arrived."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg
from rich.console import Console
from rich.live import Live
from rich.table import Table

from trunkline.cli.demo.fleet import HUB, RELAY, Site, behind_relay, plan_sites, write_certificates, write_config
from trunkline.cli.demo.interrupt import Interrupted, Patience
from trunkline.cli.demo.processes import Child, stop_all
from trunkline.cli.demo.verdict import Comparison, compare
from trunkline.cli.demo.watch import Watcher, table, watching
from trunkline.core.errors import Invalid, Terminal
from trunkline.db.embedded import EmbeddedPostgres, free_port

DRAIN_SECONDS = 30.0
FIRST_ROW_SECONDS = 90.0
LOOK_SECONDS = 0.5
PRINT_SECONDS = 20.0
NODES_UP_SECONDS = 30.0


@dataclass
class Fleet:
    folder: Path
    sites: tuple[Site, ...]
    console: Console
    servers: dict[str, EmbeddedPostgres] = field(default_factory=dict)
    nodes: dict[str, Child] = field(default_factory=dict)
    applications: dict[str, Child] = field(default_factory=dict)
    pipeline: Child | None = None
    patience: Patience = field(default_factory=Patience)

    @property
    def dsns(self) -> dict[str, str]:
        return {name: server.dsn for name, server in self.servers.items()}

    @property
    def children(self) -> list[Child]:
        pipeline = [self.pipeline] if self.pipeline else []
        return [*self.applications.values(), *pipeline, *self.nodes.values()]

    def start(self) -> None:
        """The slowest first: Spark comes up while the rest does, and waits for its database last."""
        seed = f"127.0.0.1:{free_port()}"
        for site in self.sites:
            self.servers[site.name] = EmbeddedPostgres(site.folder / "postgres", port=free_port())
            site.folder.mkdir(parents=True)
            write_config(site, self.servers[site.name].dsn, seed, self.folder)
        write_certificates(self.sites, self.folder)
        hub = self.sites[0]
        self.console.print("starting the hub's pipeline on Spark …")
        self.pipeline = self._child("pipeline", hub, "pipeline", "run", "--fast-start", "--config", str(hub.config))
        self.console.print(f"starting {len(self.sites)} Postgres servers …")
        self._start_servers()
        self.patience.pause(0)
        self.console.print("starting the nodes and the applications …")
        for site in self.sites:
            self.nodes[site.name] = self._child("node", site, "node", "run", "--config", str(site.config))
        self.patience.wait_until(self._nodes_up, NODES_UP_SECONDS, every=0.1)
        for site in self.sites:
            self.applications[site.name] = self._child("application", site, *self._application(site))
        self.console.print("waiting for the first row at the hub …")

    def _start_servers(self) -> None:
        template: EmbeddedPostgres | None = None
        for server in self.servers.values():
            server.initialise(template)
            template = template or server
        for server in self.servers.values():
            server.launch()
        for server in self.servers.values():
            server.wait_ready()

    def _nodes_up(self) -> bool:
        return all((site.folder / "node.json").exists() for site in self.sites)

    def _application(self, site: Site) -> list[str]:
        pace = "1.0" if site.name == HUB else "0.3"
        words = ["demo-application", "--site", site.name, "--hub", HUB, "--database", self.servers[site.name].dsn]
        policies = [word for name in behind_relay(self.sites) for word in ("--policy-site", name)]
        return [*words, "--node-file", str(site.folder / "node.json"), "--pace", pace, *policies]

    def _child(self, kind: str, site: Site, *words: str) -> Child:
        child = Child(f"{kind} of {site.name}", words, site.folder / f"{kind}.log", str(self.folder))
        child.start()
        return child

    def supervise(self) -> None:
        now = time.monotonic()
        for child in self.children:
            child.supervise(now)

    def stop(self) -> None:
        for application in self.applications.values():
            application.wanted = False
            application.kill()
        stop_all(self.children, seconds=5.0)
        for server in self.servers.values():
            server.stop()


def chaos_schedule(fleet: Fleet) -> list[tuple[float, list[Child]]]:
    """Who is killed (kill -9) when, as parts of the run."""
    leaf = next((s.name for s in fleet.sites if s.name not in (HUB, RELAY)), RELAY)
    assert fleet.pipeline is not None
    return [
        (0.25, [fleet.nodes[RELAY]]),
        (0.45, [fleet.pipeline]),
        (0.65, [fleet.nodes[leaf], fleet.applications[leaf]]),
    ]


def run_demo(sites: int, seconds: float | None, chaos: bool, as_json: bool, keep: Path | None) -> int:
    """Exit code: 0 when the hub's rows equal the sites', 1 when not, 130 when interrupted."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Invalid(f"--keep {keep}", "the folder is not empty", "name a new one")
    folder = (keep or Path(tempfile.mkdtemp(prefix="trunkline-demo-"))).resolve()
    try:
        fleet = Fleet(folder, plan_sites(sites, folder), Console(stderr=as_json))
        with fleet.patience.listening():
            return _show_and_stop(fleet, seconds, chaos, as_json)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _show_and_stop(fleet: Fleet, seconds: float | None, chaos: bool, as_json: bool) -> int:
    fleet.folder.mkdir(parents=True, exist_ok=True)
    try:
        return _show(fleet, seconds, chaos, as_json)
    except Interrupted:
        fleet.console.print("interrupted: stopping everything …")
        return 130
    finally:
        fleet.stop()


def _show(fleet: Fleet, seconds: float | None, chaos: bool, as_json: bool) -> int:
    begun = time.monotonic()
    fleet.start()
    with watching(fleet.sites, fleet.servers[HUB].dsn) as watcher:
        first_row = _wait_first_row(fleet, watcher, begun)
        fleet.console.print(f"first row at the hub {first_row:.1f} s after the start")
        _run(fleet, watcher, seconds, chaos)
        comparisons, drained = _drain(fleet)
        copies = _copies(fleet, watcher)
    equal = all(c.equal for c in comparisons)
    if as_json:
        found = {"equal": equal, "first_row_seconds": round(first_row, 1), "drain_seconds": round(drained, 1)}
        rows = [asdict(c) for c in comparisons]
        restarts = {c.name: c.restarts for c in fleet.children if c.restarts}
        sys.stdout.write(json.dumps({**found, "rows": rows, "restarts": restarts, "links": copies}) + "\n")
    _print_verdict(fleet, comparisons, drained, copies)
    return 0 if equal else 1


def _wait_first_row(fleet: Fleet, watcher: Watcher, begun: float) -> float:
    def seen() -> bool:
        fleet.supervise()
        return watcher.applied() > 0

    if not fleet.patience.wait_until(seen, FIRST_ROW_SECONDS, every=0.1):
        _print_logs(fleet)
        raise Terminal("demo", f"no row reached the hub in {FIRST_ROW_SECONDS:.0f} s", "run it with --keep and read the logs")
    return time.monotonic() - begun


def _run(fleet: Fleet, watcher: Watcher, seconds: float | None, chaos: bool) -> None:
    begun = time.monotonic()
    pending = chaos_schedule(fleet) if chaos else []
    with _display(fleet.console) as show:
        while seconds is None or time.monotonic() - begun < seconds:
            elapsed = time.monotonic() - begun
            if pending and elapsed > pending[0][0] * (seconds or 60.0):
                fleet.console.print(f"{_kill(pending.pop(0)[1])} at {elapsed:.0f} s")
            fleet.supervise()
            of = f" of {seconds:.0f}" if seconds is not None else " (Ctrl-C ends it)"
            show(table(watcher.lines(), f"{elapsed:.0f} s{of}"))
            fleet.patience.pause(LOOK_SECONDS)


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
    for application in fleet.applications.values():
        application.stop()
    policy_sites = behind_relay(fleet.sites)
    comparisons: list[Comparison] = []

    def equal() -> bool:
        nonlocal comparisons
        fleet.supervise()
        if any(a.alive() for a in fleet.applications.values()):
            return False
        try:
            comparisons = compare(fleet.dsns, policy_sites)
        except psycopg.Error:
            return False
        return all(c.equal for c in comparisons)

    fleet.patience.wait_until(equal, DRAIN_SECONDS, every=LOOK_SECONDS)
    return comparisons or compare(fleet.dsns, policy_sites), time.monotonic() - begun


def _copies(fleet: Fleet, watcher: Watcher) -> dict[str, dict[str, int]]:
    """Per directed link the entries sent over it, since its node started."""
    found = {}
    for site in fleet.sites:
        for peer, counters in ((watcher.ask(site, "trunk") or {}).get("links") or {}).items():
            found[f"{site.name} → {peer}"] = {
                "entries": counters.get("sent", 0) + counters.get("relayed", 0),
                "duplicates_received": counters.get("duplicate", 0),
            }
    return found


def _print_verdict(fleet: Fleet, comparisons: Sequence[Comparison], drained: float, copies: dict[str, dict[str, int]]) -> None:
    out = Table(title="the hub against every site", title_justify="left")
    for column in ("site", "what", "rows at the site", "rows at the hub", ""):
        out.add_column(column, justify="right" if column.startswith("rows") else "left")
    for c in comparisons:
        out.add_row(c.site, c.what, str(c.at_site), str(c.at_hub), "[green]equal" if c.equal else "[red]DIFFERENT")
    fleet.console.print(out)
    behind = behind_relay(fleet.sites)
    crossed = copies.get(f"{HUB} → {RELAY}", {}).get("entries", 0)
    sent = next((c.at_hub for c in comparisons if c.what == "policies"), 0)
    fleet.console.print(
        f"{sent} policies, each for {len(behind)} sites behind the relay, crossed its link as {crossed} entries"
    )
    for child in fleet.children:
        if child.restarts:
            fleet.console.print(f"{child.name} was started again {child.restarts} time(s)")
    equal = all(c.equal for c in comparisons)
    word = "[green bold]EQUAL" if equal else "[red bold]NOT EQUAL"
    fleet.console.print(f"{word}[/] after {drained:.1f} s of draining")
    if not equal:
        _print_logs(fleet)


def _print_logs(fleet: Fleet) -> None:
    for child in fleet.children:
        fleet.console.print(f"--- {child.name}\n{child.tail()}", markup=False, highlight=False)

"""What the demo says at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from trunkline.cli.demo.fleet import HUB, RELAY, behind_relay
from trunkline.cli.demo.live import Effect
from trunkline.cli.demo.running import Fleet
from trunkline.cli.demo.verdict import Comparison

Copies = dict[str, dict[str, int]]
"""Per directed link the entries that crossed it."""


def print_verdict(
    fleet: Fleet, comparisons: Sequence[Comparison], effects: Sequence[Effect], copies: Copies, drained: float, equal: bool
) -> None:
    fleet.console.print(_table(comparisons))
    behind = behind_relay(fleet.sites)
    crossed = copies.get(f"{HUB} → {RELAY}", {}).get("entries", 0)
    sent = next((c.at_hub for c in comparisons if c.what == "policies"), 0)
    fleet.console.print(
        f"{sent} policies, each for {len(behind)} sites behind the relay, crossed its link as {crossed} entries"
    )
    for effect in effects:
        well = all(c.equal for c in comparisons if c.what == effect.route)
        promised = "each once, in order" if well else "[red]not each once, in order"
        fleet.console.print(
            f"route {effect.route}: {effect.before} events by edition 1, {effect.after} by edition 2, {promised}"
        )
    for child in fleet.children:
        if child.restarts:
            fleet.console.print(f"{child.name} was started again {child.restarts} time(s)")
    word = "[green bold]EQUAL" if equal else "[red bold]NOT EQUAL"
    fleet.console.print(f"{word}[/] after {drained:.1f} s of draining")
    if not equal:
        print_logs(fleet)


def print_logs(fleet: Fleet) -> None:
    for child in fleet.children:
        fleet.console.print(f"--- {child.name}\n{child.tail()}", markup=False, highlight=False)


def _table(comparisons: Sequence[Comparison]) -> Table:
    out = Table(title="the hub against every site", title_justify="left")
    for column in ("site", "what", "rows at the site", "rows at the hub", ""):
        out.add_column(column, justify="right" if column.startswith("rows") else "left")
    for c in comparisons:
        out.add_row(c.site, c.what, str(c.at_site), str(c.at_hub), "[green]equal" if c.equal else "[red]DIFFERENT")
    return out

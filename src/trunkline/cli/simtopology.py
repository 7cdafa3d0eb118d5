"""`trunkline sim topology`: a named graph, events of one's own, and every change of a row as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from trunkline.node.sim.graphrun import GraphRun, Tables
    from trunkline.node.sim.rowwatch import RowChange
    from trunkline.node.sim.universe import Verdict
    from trunkline.topology.rows import Row

DRAWN = 12  # sites; a larger table is not read but searched: --json has it

GraphOption = Annotated[str, typer.Option("--graph", help="chain:N, ring:N, star:N, mesh:N, house, grid:RxC or random:N.")]
EventsOption = Annotated[
    str,
    typer.Option("--events", help="What happens, in seconds from when the table stands: '2 cut a<>b for 3; 6 crash c for 2'."),
]
UniversesOption = Annotated[
    int | None, typer.Option(min=1, help="Instead of one graph: so many seeds with random graphs and faults.")
]


def topology(
    graph: GraphOption = "mesh:4",
    events: EventsOption = "2 cut a<>b for 3",
    seed: Annotated[int, typer.Option(min=0, help="The seed of the run, or the first of many.")] = 0,
    universes: UniversesOption = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes, with --universes; all cores unless given.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Who takes whose records from whom, over time: one line per change of a row; exit code 1 when a check fails.

    Example: [bold]trunkline sim topology --graph mesh:5 --events "2 cut a<>b for 3; 6 crash c for 2"[/]

    With [bold]--universes 1000[/] it is short for [bold]trunkline sim run topology --seeds 1000[/].
    """
    from trunkline.cli.sim import run

    if universes is not None:
        return run("topology", seeds=universes, first_seed=seed, jobs=jobs, loss=None, as_json=as_json)
    from trunkline.node.sim.graphrun import GraphRun, parse_events

    parsed = parse_events(events)
    console = Console(highlight=False, soft_wrap=True)
    shown = GraphRun(graph, seed) if as_json else GraphRun(graph, seed, _line(console), _event(console))
    stands = shown.come_up()
    first = shown.tables()
    if not as_json:
        _draw(console, first, f"{graph}, via and depth when its {len(shown.setup.links)} links are up")
        console.print("[bold]    time  subscriber  source  via  depth  why[/]")
    verdict = shown.live(parsed)
    if as_json:
        typer.echo(_json(shown, first, verdict))
    else:
        _tell(console, shown, first, verdict)
    raise typer.Exit(0 if stands and verdict.converged else 1)


# -- for people


def _line(console: Console) -> Any:
    def show(change: RowChange) -> None:
        via, depth = (change.row.via, str(change.row.depth)) if change.row is not None else ("-", "-")
        line = f"{change.at:8.3f}  {change.subscriber:<10}  {change.source:<6}  {via:<3}  {depth:<5}  {change.why}"
        console.print(line, markup=False, style="red" if change.row is None else "")

    return show


def _event(console: Console) -> Any:
    return lambda at, text: console.print(f"{at:8.3f}  --- {text}", markup=False, style="yellow")


def _draw(console: Console, tables: Tables, title: str) -> None:
    from rich.table import Table

    if len(tables) > DRAWN:
        console.print(f"{title}: {sum(map(len, tables.values()))} rows; --json has them")
        return
    table = Table("from \\ of", *tables, title=title, title_justify="left")
    for subscriber, rows in tables.items():
        table.add_row(subscriber, *(_cell(rows.get(source), source == subscriber) for source in tables))
    console.print(table)


def _cell(row: Row | None, own: bool) -> str:
    return "·" if own else f"{row.via} {row.depth}" if row is not None else "-"


def _tell(console: Console, shown: GraphRun, first: Tables, verdict: Verdict) -> None:
    last = shown.tables()
    if not shown.changes:
        console.print("          no row changed")
    _draw(console, last, "in the end" if last != first else "in the end, as in the beginning")
    moves = ", ".join(f"{count} {kind}" for kind, count in shown.moves().items())
    console.print(f"{len(shown.changes)} changes of rows; moves since each site was last started: {moves}")
    if verdict.converged:
        console.print(f"all came right {verdict.seconds:.1f} s after the last event: {verdict.entries} entries, each once")
        return
    for failure in verdict.failures:
        console.print(f"  {failure}", markup=False, style="red")
    console.print(f"[red bold]seed {verdict.seed}[/] fails {', '.join(verdict.failed_checks)}")


# -- for programs


def _json(shown: GraphRun, first: Tables, verdict: Verdict) -> str:
    import json

    document = {
        "graph": shown.name,
        "seed": shown.seed,
        "links": [list(pair) for pair in shown.setup.links],
        "first": _rows(first),
        "changes": [
            {"at": round(c.at, 3), "subscriber": c.subscriber, "source": c.source, "why": c.why, **_row(c.row)}
            for c in shown.changes
        ],
        "last": _rows(shown.tables()),
        "moves": dict(shown.moves()),
        "converged": verdict.converged,
        "seconds": verdict.seconds,
        "entries": verdict.entries,
        "fingerprint": verdict.fingerprint,
        "failures": [{"check": failure.check, "what": failure.what} for failure in verdict.failures],
    }
    return json.dumps(document, indent=2)


def _rows(tables: Tables) -> list[dict[str, Any]]:
    return [{"subscriber": s, "source": row.source, **_row(row)} for s, rows in tables.items() for row in rows.values()]


def _row(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"via": None, "depth": None, "path": None}
    return {"via": row.via, "depth": row.depth, "path": list(row.path)}

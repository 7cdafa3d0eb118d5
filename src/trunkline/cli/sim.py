"""`trunkline sim`: runs universes under faults in virtual time, shows what happened in one, and makes a failing one small."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from trunkline.cli.options import JsonOption
from trunkline.cli.simtopology import topology
from trunkline.core.errors import Invalid

if TYPE_CHECKING:
    from rich.progress import Progress

    from trunkline.node.sim.history import History
    from trunkline.node.sim.many import Tally
    from trunkline.node.sim.universe import Verdict


class ShortForm(TyperGroup):
    """`sim store` is `sim run store`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and _is_like_a_scenario(args[0]):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


def _is_like_a_scenario(word: str) -> bool:
    """Or nearly: `run` says which one was meant."""
    from difflib import get_close_matches

    from trunkline.node.sim.catalogue import CATALOGUE

    return bool(get_close_matches(word, CATALOGUE, 1))


app = typer.Typer(
    cls=ShortForm,
    no_args_is_help=True,
    help="The protocols under faults, in virtual time: one seed, one run.\n\n"
    "[bold]trunkline sim store[/] is short for [bold]trunkline sim run store[/], as with every name of [bold]sim list[/].",
)
app.command("topology")(topology)

INTERRUPTED = 130
FAILURES_SHOWN = 10
TRACE_END = 30

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What to simulate: see `trunkline sim list`.")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="The seed of the run.")]
LossOption = Annotated[
    float | None, typer.Option(min=0.0, max=0.9, help="Share of frames lost while the faults last; each scenario has its own.")
]
HistoryOption = Annotated[Path | None, typer.Option(help="A history that `sim shrink --out` wrote.", dir_okay=False)]


def _out() -> Console:
    return Console(highlight=False, soft_wrap=True)


@app.command("list")
def list_(as_json: JsonOption = False, faults: Annotated[bool, typer.Option(help="List the faults, too.")] = False) -> None:
    """What can be simulated, and which faults strike it.

    Example: [bold]trunkline sim list --faults[/]
    """
    from trunkline.node.sim.catalogue import CATALOGUE
    from trunkline.node.sim.faults import KINDS

    if as_json:
        scenarios = [{"name": s.name, "about": s.about, "loss": s.loss, "faults": s.faults} for s in CATALOGUE.values()]
        kinds = [{"name": name, "about": kind.about, "strikes": kind.subject} for name, kind in KINDS.items()]
        _json({"scenarios": scenarios, "faults": kinds})
        return
    _table(("name", "what is simulated", "loss"), ((s.name, s.about, f"{s.loss:.0%}") for s in CATALOGUE.values()))
    if faults:
        _table(("fault", "what happens", "strikes"), ((name, kind.about, str(kind.subject)) for name, kind in KINDS.items()))


@app.command("run")
def run(
    name: NameArgument,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1000,
    first_seed: Annotated[int, typer.Option(min=0, help="The first one.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; all cores unless given.")] = None,
    loss: LossOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs many seeds; exit code 1 when one of them fails a check.

    Example: [bold]trunkline sim run chain --seeds 1000[/], or in short [bold]trunkline sim chain --seeds 1000[/]
    """
    from time import monotonic

    from trunkline.node.sim.many import Tally

    tally, interrupted, begun = Tally(), False, monotonic()
    try:
        _run_all(tally, name, range(first_seed, first_seed + seeds), jobs, loss)
    except KeyboardInterrupt:
        interrupted = True
    tally.failures.sort(key=lambda verdict: verdict.seed)
    report = _as_document(name, tally, seeds, monotonic() - begun, loss)
    if as_json:
        _json(report | {"interrupted": interrupted})
    else:
        _tell(report, interrupted)
    raise typer.Exit(1 if tally.failures else INTERRUPTED if interrupted else 0)


def _run_all(tally: Tally, name: str, seeds: range, jobs: int | None, loss: float | None) -> None:
    from trunkline.node.sim.many import cores, verdicts

    with verdicts(name, seeds, jobs or cores(), loss) as found, _progress() as progress:
        task = progress.add_task(name, total=len(seeds), failed=0)
        for verdict in found:
            tally.add(verdict)
            progress.update(task, advance=1, failed=len(tally.failures))


@app.command("show")
def show(
    name: NameArgument,
    seed: SeedOption = None,
    history: HistoryOption = None,
    only: Annotated[str | None, typer.Option(help="Only what concerns these hosts or sites: a,b.")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="Only the last lines of the trace.")] = None,
    loss: LossOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs one seed or history again and prints its events, its trace and the verdict; exit code 1 when a check fails.

    Example: [bold]trunkline sim show chain --seed 7 --only leaf --last 50[/]
    """
    from trunkline.node.sim.catalogue import find
    from trunkline.node.sim.trace import concerns, line
    from trunkline.node.sim.universe import run_history

    chosen = _history(name, seed, history, loss)
    names = frozenset(only.split(",")) if only else frozenset()
    lines: list[str] = []
    verdict = run_history(find(name), chosen, lambda note: lines.append(line(note)) if concerns(note, names) else None)
    shown = lines[-last:] if last else lines
    if as_json:
        _json({"history": chosen.text().splitlines(), "trace": shown, "verdict": _verdict(verdict)})
    else:
        out = _out()
        out.print(chosen.text(), markup=False)
        _print_lines(out, shown)
        out.print(_sentence(verdict), markup=False)
    raise typer.Exit(0 if verdict.converged else 1)


@app.command("shrink")
def shrink(
    name: NameArgument,
    seed: SeedOption = None,
    history: HistoryOption = None,
    out: Annotated[Path | None, typer.Option(help="Write the small history to this file.", dir_okay=False)] = None,
    loss: LossOption = None,
    as_json: JsonOption = False,
) -> None:
    """Makes the history of a failing seed as small as it can be and still fail for the same reason.

    Example: [bold]trunkline sim shrink chain --seed 7 --out small.txt[/]
    """
    from trunkline.node.sim.catalogue import find
    from trunkline.node.sim.shrink import shrink as shrink_history
    from trunkline.node.sim.trace import line
    from trunkline.node.sim.universe import run_history

    scenario, chosen = find(name), _history(name, seed, history, loss)
    with Console(stderr=True).status(f"running the {len(chosen.events)} events of seed {chosen.seed}") as status:
        small = shrink_history(
            scenario, chosen, lambda runs, left: status.update(f"{left} of {len(chosen.events)} events left after {runs} runs")
        )
    if out is not None:
        out.write_text(small.history.text())
    lines: list[str] = []
    run_history(scenario, small.history, lambda note: lines.append(line(note)))
    if as_json:
        events = small.history.text().splitlines()
        return _json({"history": events, "trace": lines, "runs": small.runs, "verdict": _verdict(small.verdict)})
    console = _out()
    _print_lines(console, [f"the end of the trace, of {len(lines)} lines:", *lines[-TRACE_END:], ""])
    console.print(f"{len(chosen.events)} events became {len(small.history.events)} in {small.runs} runs:\n", markup=False)
    console.print(small.history.text(), markup=False)
    console.print(_sentence(small.verdict), markup=False)
    if out is not None:
        console.print(f"next: trunkline sim show {name} --history {out}", markup=False)
    return None


# -- input


def _history(name: str, seed: int | None, path: Path | None, loss: float | None) -> History:
    from trunkline.node.sim.catalogue import draw, find
    from trunkline.node.sim.history import load_history

    if (seed is None) == (path is None):
        raise Invalid("run", "it needs either a seed or a history", "give --seed N or --history FILE")
    if seed is not None:
        return draw(find(name), seed, loss)
    assert path is not None
    found = load_history(path)
    if found.scenario != name:
        raise Invalid(str(path), f"it is a history of {found.scenario!r}", f"run it with `sim show {found.scenario}`")
    return found


# -- output


def _json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2))


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.completed / task.elapsed:.1f} seeds/s" if task.elapsed else "")

    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(), console=Console(stderr=True),
    )  # fmt: skip


def _as_document(name: str, tally: Tally, asked: int, elapsed: float, loss: float | None) -> dict[str, Any]:
    more = f" --loss {loss}" if loss is not None else ""
    failures = [
        _verdict(v) | {
            "show": f"trunkline sim show {name} --seed {v.seed}{more}",
            "shrink": f"trunkline sim shrink {name} --seed {v.seed}{more}",
        }
        for v in tally.failures
    ]  # fmt: skip
    return {
        "scenario": name,
        "asked": asked,
        "seeds": tally.seeds,
        "failed": len(failures),
        "entries": tally.entries,
        "frames": tally.frames,
        "slowest_seconds": tally.slowest,
        "elapsed_seconds": round(elapsed, 3),
        "failures": failures,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "seed": verdict.seed,
        "converged": verdict.converged,
        "seconds": verdict.seconds,
        "fingerprint": verdict.fingerprint,
        "failures": [{"check": failure.check, "what": failure.what} for failure in verdict.failures],
    }


def _tell(report: dict[str, Any], interrupted: bool) -> None:
    out = _out()
    for failure in report["failures"][:FAILURES_SHOWN]:
        checks = ", ".join(sorted({f["check"] for f in failure["failures"]}))
        out.print(f"[red bold]seed {failure['seed']}[/] fails {checks}")
        for found in failure["failures"][:3]:
            out.print(f"  {found['check']}: {found['what']}", markup=False)
        out.print(f"  {failure['show']}\n  {failure['shrink']}", markup=False)
    hidden = len(report["failures"]) - FAILURES_SHOWN
    if hidden > 0:
        out.print(f"and {hidden} more; --json has them all")
    stopped = f", stopped after {report['seeds']} of {report['asked']}" if interrupted else ""
    speed = report["seeds"] / report["elapsed_seconds"] if report["elapsed_seconds"] else 0.0
    out.print(
        f"{report['scenario']}: {report['seeds'] - report['failed']} of {report['seeds']} seeds came right{stopped}; "
        f"{report['entries']} entries, {report['frames']} frames, slowest {report['slowest_seconds']:.1f} s after the faults; "
        f"{report['elapsed_seconds']:.1f} s, {speed:.1f} seeds/s"
    )


def _print_lines(out: Console, lines: list[str]) -> None:
    for text in lines:
        out.print(text, markup=False)


def _sentence(verdict: Verdict) -> str:
    if verdict.converged:
        return f"all came right {verdict.seconds:.1f} s after the faults; fingerprint {verdict.fingerprint}"
    found = "\n".join(f"  {failure}" for failure in verdict.failures)
    return f"seed {verdict.seed} fails {', '.join(verdict.failed_checks)}; fingerprint {verdict.fingerprint}\n{found}"

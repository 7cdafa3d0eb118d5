"""`trunkline routes test`: runs the cases that stand beside routes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO
from trunkline.cli.options import JsonOption
from trunkline.cli.routes.lint import PathsArgument, print_mistakes

if TYPE_CHECKING:
    from trunkline.core.mistakes import Mistake
    from trunkline.routes.files import Files
    from trunkline.routes.runcases import Verdict


def run(
    paths: PathsArgument,
    only: Annotated[str, typer.Option(help="Only cases with this text in their name or their route.", metavar="TEXT")] = "",
    as_json: JsonOption = False,
) -> None:
    """Runs the cases beside routes (alarms.test.yaml beside alarms.yaml), without a node: 0 if all of them hold, else 1.

    Each case says which events go in and what must become of them. They go through the same code that a node runs.

    Example: [bold]trunkline routes test routes/ --only alarm[/]
    """
    files, verdicts, mistakes = _ran(_with_companions(paths), only)
    if as_json:
        shown.print_json(_as_json(verdicts, mistakes))
    else:
        _print(files, verdicts, mistakes)
    raise typer.Exit(NO if mistakes or not verdicts or not all(verdict.ok for verdict in verdicts) else 0)


def _with_companions(paths: list[Path]) -> list[Path]:
    """A file of routes stands for its cases, too, and the other way round."""
    from trunkline.routes.files import beside, files_of

    return list(dict.fromkeys(file for path in files_of(paths) for file in (path, *beside(path))))


def _ran(paths: list[Path], only: str) -> tuple[Files, list[Verdict], list[Mistake]]:
    from trunkline.routes.cases import read_cases
    from trunkline.routes.files import beside, is_cases, read_files
    from trunkline.routes.plugin import Around
    from trunkline.routes.runcases import Cases

    files = read_files(paths, Around({"site": "site"}))
    cases, mistakes = Cases({route.key: route.one.route for route in files.routes}), list(files.mistakes)
    verdicts: list[Verdict] = []
    for path in filter(is_cases, paths):
        found, wrong = read_cases(path)
        mistakes += wrong
        companions = {str(other) for other in beside(path)}
        near = [route.key for route in files.routes if route.place[0] in companions]
        verdicts += [cases.run(one, near) for one in found if not only or only in one.case.name or only in one.case.route]
    return files, verdicts, mistakes


def _print(files: Files, verdicts: list[Verdict], mistakes: list[Mistake]) -> None:
    print_mistakes(mistakes, [])
    for verdict in verdicts:
        if not verdict.ok:
            _print_failure(verdict)
    failed = sum(not verdict.ok for verdict in verdicts)
    tested = {verdict.route for verdict in verdicts}
    without = [route.key.id for route in files.routes if route.key.id not in tested]
    if without:
        typer.echo(f"without a case: {shown.shortened(', '.join(without), 200)}")
    if not verdicts:
        typer.secho("no case was run: write them beside the routes, in <name>.test.yaml", fg="red")
    else:
        typer.secho(f"{len(verdicts) - failed} of {len(verdicts)} cases hold", fg="red" if failed or mistakes else "green")


def _print_failure(verdict: Verdict) -> None:
    typer.secho(f"{verdict.of.file}:{verdict.of.line}: {shown.harmless(verdict.of.case.name)} ({verdict.route})", fg="red")
    for line in verdict.wrong.splitlines():
        typer.echo(f"  {shown.harmless(line)}")
    for difference in verdict.differences:
        typer.echo(f"  {difference.about}: - expected, + came")
        for line in difference.lines():
            typer.echo(f"    {shown.harmless(line)}")


def _as_json(verdicts: list[Verdict], mistakes: list[Mistake]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "ok": not mistakes and bool(verdicts) and all(verdict.ok for verdict in verdicts),
        "mistakes": [asdict(mistake) for mistake in mistakes],
        "cases": [
            {
                "name": verdict.of.case.name, "route": verdict.route, "file": verdict.of.file, "line": verdict.of.line,
                "ok": verdict.ok, "wrong": verdict.wrong,
                "differences": [
                    {"about": one.about, "expected": one.expected, "got": one.got} for one in verdict.differences
                ],
            }
            for verdict in verdicts
        ],
    }  # fmt: skip

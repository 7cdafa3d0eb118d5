"""`trunkline routes lint`: all that is wrong with files of routes, with its lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO
from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from trunkline.core.mistakes import Mistake
    from trunkline.routes.files import Files

PathsArgument = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders of routes, YAML or JSON.")]


def lint(paths: PathsArgument, as_json: JsonOption = False) -> None:
    """Checks files of routes, and their cases, as a node would: every mistake with its line and what would be right; which
    secrets the routes need. It ends with 1 if there is a mistake; warnings alone are none.

    Example: [bold]trunkline routes lint routes/[/]
    """
    files, mistakes = checked(paths)
    if as_json:
        shown.print_json(_as_json(files, mistakes))
    else:
        _print(files, mistakes)
    raise typer.Exit(NO if mistakes else 0)


def checked(paths: list[Path]) -> tuple[Files, list[Mistake]]:
    """What is in the files, and all that is wrong with it: of routes and of cases."""
    from trunkline.routes.cases import read_cases
    from trunkline.routes.files import files_of, is_cases, read_files
    from trunkline.routes.plugin import Around

    found = files_of(paths)
    files = read_files(found, Around({"site": "site"}))
    wrong = [mistake for path in found if is_cases(path) for mistake in read_cases(path)[1]]
    return files, [*files.mistakes, *wrong]


def print_mistakes(mistakes: list[Mistake], warnings: list[Mistake], err: bool = False) -> None:
    for mistake in mistakes:
        typer.echo(shown.harmless(str(mistake)), err=err)
    for warning in warnings:
        typer.echo(f"warning: {shown.harmless(str(warning))}", err=err)


def _print(files: Files, mistakes: list[Mistake]) -> None:
    print_mistakes(mistakes, list(files.warnings))
    for reference, needed_by in _needs(files).items():
        typer.echo(f"needs {reference}: {', '.join(needed_by)}")
    if not mistakes:
        typer.secho(f"ok: {_count(len(files.routes), 'route')}", fg="green")
    else:
        typer.secho(_count(len(mistakes), "mistake"), fg="red")


def _needs(files: Files) -> dict[str, list[str]]:
    """Secrets, each with the routes that refer to it."""
    found: dict[str, dict[str, None]] = {}
    for need in files.needs:
        found.setdefault(need.reference, {})[str(need.route)] = None
    return {reference: list(routes) for reference, routes in sorted(found.items())}


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _as_json(files: Files, mistakes: list[Mistake]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "ok": not mistakes,
        "routes": [
            {"id": one.key.id, "org": one.key.tenant.org, "app": one.key.tenant.app, "file": one.place[0], "line": one.place[1]}
            for one in files.routes
        ],
        "mistakes": [asdict(mistake) for mistake in mistakes],
        "warnings": [asdict(warning) for warning in files.warnings],
        "secrets": [
            {"reference": need.reference, "route": str(need.route), "file": need.place[0], "line": need.place[1]}
            for need in files.needs
        ],
    }

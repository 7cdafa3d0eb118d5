"""`trunkline config`: check a configuration file, show what is in effect, begin one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from trunkline.core.mistakes import Mistake

app = typer.Typer(no_args_is_help=True, help="The configuration file of a process: check it, show it, begin one.")


@app.callback()
def _group() -> None: ...


@app.command()
def lint(
    files: Annotated[list[Path], typer.Argument(help="YAML files of processes.", metavar="FILE")],
    as_json: JsonOption = False,
    without_secrets: Annotated[bool, typer.Option("--without-secrets", help="Do not look where secrets refer to.")] = False,
) -> None:
    """Checks files as a start would: all mistakes with their lines; exit code 1 if there are any.

    Example: [bold]trunkline config lint hub.yaml relay.yaml[/]
    """
    checked = [(file, *_lint(file, not without_secrets)) for file in files]
    if as_json:
        _print_json({"files": [_as_json(file, mistakes, warnings) for file, mistakes, warnings in checked]})
    else:
        _print_lint(checked)
    raise typer.Exit(1 if any(mistakes for _, mistakes, _ in checked) else 0)


@app.command()
def show(file: ConfigOption, as_json: JsonOption = False) -> None:
    """Every setting in effect, and whether it comes from the file, from a variable or is the default. Secrets stay hidden.

    Example: [bold]trunkline config show --config hub.yaml[/]
    """
    from pydantic_core import to_jsonable_python

    from trunkline.core.config import read_config, valid
    from trunkline.core.effective import settings

    reading = read_config(file, os.environ, follow_secrets=False)
    found = list(settings(valid(file, reading), reading))
    if as_json:
        values = [to_jsonable_python(setting.value, fallback=str) for setting in found]
        rows = [{"key": s.key, "value": value, "from": s.origin} for s, value in zip(found, values, strict=True)]
        _print_json({"file": str(file), "settings": rows})
        return
    _print_settings(found)


@app.command()
def schema() -> None:
    """The JSON schema of a configuration file, for editors.

    Example: [bold]trunkline config schema > trunkline.schema.json[/]
    """
    from trunkline.core.config import json_schema

    _print_json(json_schema())


@app.command()
def init(
    kind: Annotated[str, typer.Argument(help="site, relay or hub.", metavar="site|relay|hub")],
    out: Annotated[Path | None, typer.Option(help="The file to write; without it, standard output.", dir_okay=False)] = None,
    site: Annotated[str | None, typer.Option(help="The site's name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Begins a configuration file: what must be set is filled in, the rest is there as comments.

    Example: [bold]trunkline config init hub --out hub.yaml[/]
    """
    from trunkline.core.errors import Invalid
    from trunkline.core.starter import starter

    text = starter(kind, site, str(out or f"{kind}.yaml"))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Invalid(f"file {out}", "it is there already", "choose another one, or replace it with --force") from None
    except OSError as error:
        raise Invalid(f"file {out}", error.strerror or str(error), "choose a file that can be written") from None
    typer.echo(f"{out} is written; its first lines say how to go on", err=True)


def _lint(file: Path, follow_secrets: bool) -> tuple[tuple[Mistake, ...], list[Mistake]]:
    """Mistakes and warnings, those of the route file included."""
    from trunkline.core.config import read_config
    from trunkline.core.effective import exposures
    from trunkline.core.mistakes import Mistakes, in_order
    from trunkline.routes.compile import compile_written
    from trunkline.routes.model import open_routes, read_routes
    from trunkline.routes.plugin import Around

    try:
        reading = read_config(file, os.environ, follow_secrets)
        if reading.config is None:
            return reading.mistakes, []
        warnings = exposures(reading.config, reading, file)
        if reading.config.routes is None:
            return (), warnings
        written, around = open_routes(reading.config.routes), Around({"site": reading.config.site})
        routes = read_routes(written)
        found = [mistake for one in routes.routes for mistake in compile_written(one, written, around)[1]]
        return in_order([*routes.mistakes, *found]), [*warnings, *routes.warnings]
    except Mistakes as error:
        return error.mistakes, []


def _print_lint(checked: list[tuple[Path, tuple[Mistake, ...], list[Mistake]]]) -> None:
    for file, mistakes, warnings in checked:
        for mistake in mistakes:
            typer.echo(str(mistake))
        for warning in warnings:
            typer.echo(f"warning: {warning}")
        if not mistakes:
            typer.secho(f"{file}: ok", fg="green")


def _print_settings(found: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from trunkline.core.fields import yaml_text

    table = Table("setting", "value", "from")
    for setting in found:
        table.add_row(Text(setting.key), Text(yaml_text(setting.value)), Text(setting.origin))
    Console().print(table)


def _as_json(file: Path, mistakes: tuple[Mistake, ...], warnings: list[Mistake]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "file": str(file),
        "ok": not mistakes,
        "mistakes": [asdict(mistake) for mistake in mistakes],
        "warnings": [asdict(warning) for warning in warnings],
    }


def _print_json(document: Any) -> None:
    import json

    typer.echo(json.dumps(document, indent=2))

"""`trunkline doctor`: what this machine has and lacks, each with the command that mends it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.cli.checkup.finding import Finding, Subject

    Check = Callable[[Subject], Finding | list[Finding]]

_COLOURS = {"ok": "green", "note": "yellow", "missing": "red bold"}


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", help="Look at this process's database too.", dir_okay=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What this machine has and lacks, and how to mend it: 0 when everything needed is there, else 1.

    Example: [bold]trunkline doctor --config hub.yaml[/]
    """
    from trunkline.cli.checkup.finding import Subject
    from trunkline.core.config import load_config

    findings = examine(Subject(Path.cwd(), load_config(config) if config else None))
    if as_json:
        _print_json(findings)
    else:
        _print_table(findings)
    raise typer.Exit(0 if _well(findings) else 1)


def examine(subject: Subject) -> list[Finding]:
    """Side by side: most of them wait for a program's answer."""
    from concurrent.futures import ThreadPoolExecutor

    checks = _checks()
    with ThreadPoolExecutor(len(checks)) as threads:
        return [finding for found in threads.map(lambda check: _run(check, subject), checks) for finding in found]


def _checks() -> Sequence[Check]:
    from trunkline.cli.checkup import java, machine, services

    return (
        machine.python, machine.cores, machine.memory, machine.disk, machine.open_files, machine.ports, machine.clock,
        machine.namespaces, services.embedded_postgres, services.configured_postgres, java.spark, machine.sockets,
        services.redis, services.kafka,
    )  # fmt: skip


def _run(check: Check, subject: Subject) -> list[Finding]:
    import subprocess

    from trunkline.cli.checkup.finding import note

    try:
        found = check(subject)
    except (OSError, subprocess.SubprocessError) as error:
        return [note(check.__name__.replace("_", " "), f"it cannot be looked at: {error}", "see that your user may look at it")]
    return found if isinstance(found, list) else [found]


def _well(findings: Sequence[Finding]) -> bool:
    return all(finding.verdict != "missing" for finding in findings)


def _print_table(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    table = Table.grid("verdict", "name", Column("found", overflow="fold"), padding=(0, 2))
    for finding in findings:
        found = Text(finding.found)
        if finding.mend:
            found.append(f"\n→ {finding.mend}", style="bold")
        table.add_row(Text(finding.verdict, style=_COLOURS[finding.verdict]), Text(finding.name), found)
    console = Console(highlight=False)
    console.print(table)
    lacking = [finding.name for finding in findings if finding.verdict == "missing"]
    console.print(Text(f"\nmissing: {', '.join(lacking)}" if lacking else "\neverything needed is there", style="bold"))


def _print_json(findings: Sequence[Finding]) -> None:
    import json
    from dataclasses import asdict

    typer.echo(json.dumps({"ok": _well(findings), "findings": [asdict(finding) for finding in findings]}, indent=2))

"""`trunkline config`."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="The configuration file of a process: check it, show it, begin one.")


@app.callback()
def _group() -> None: ...

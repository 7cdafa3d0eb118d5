"""`trunkline sim`."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="The protocols under faults, in virtual time: one seed, one run.")


@app.callback()
def _group() -> None: ...

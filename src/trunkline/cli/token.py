"""`trunkline token`."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Tokens of the API.")


@app.callback()
def _group() -> None: ...

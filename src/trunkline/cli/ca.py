"""`trunkline ca`."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Certificates of the fleet: its authority, its nodes, and which are revoked.")


@app.callback()
def _group() -> None: ...

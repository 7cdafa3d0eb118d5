"""Options of the commands that ask a node for its routing table."""

from __future__ import annotations

from typing import Annotated

import typer

OrgOption = Annotated[str, typer.Option("--org", help="Organisation of the tenant.")]
AppOption = Annotated[str, typer.Option("--app", help="Application of the tenant.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")]
WaitOption = Annotated[float, typer.Option("--wait", min=0, max=60, help="Seconds to wait for all instances.")]

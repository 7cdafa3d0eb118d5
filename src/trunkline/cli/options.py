"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[Path, typer.Option("--config", help="YAML file of this process.", dir_okay=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]

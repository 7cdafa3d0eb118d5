"""What mkdocs runs while it builds: fills the places of each page that are made from the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trunkline.cli.reference.pages import filled


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    return filled(markdown, Path(config.config_file_path).parent)

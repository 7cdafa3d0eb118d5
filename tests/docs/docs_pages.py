"""The documentation as these tests read it: its pages, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    title: str
    text: str


def pages() -> list[Path]:
    """Those of the site, and the two that stand beside the code."""
    return [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str = "") -> list[Block]:
    found = (Block(name_of(page), b["language"], b["title"] or "", b["text"]) for b in _FENCE.finditer(page.read_text()))
    return [block for block in found if language in ("", block.language)]


def cells(page: Path, column: int = 0) -> list[str]:
    """What stands in `code` in one column of the page's tables."""
    rows = [line.strip("|").split("|") for line in page.read_text().splitlines() if line.startswith("| `")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row[column])]

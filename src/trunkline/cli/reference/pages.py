"""Fills the places in a page that are made from the code: a line `<!-- made: configuration -->` becomes what it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from trunkline.cli.reference import api, commands, evidence, python, schemas, settings
from trunkline.core.errors import Invalid

PLACE = re.compile(r"^<!-- made: (\S+)(?: (\S+))? -->$", re.M)

# Each is given the repository's folder and the word behind its name.
MAKERS: Mapping[str, Callable[[Path, str], str]] = {
    "configuration": lambda root, _: settings.configuration(),
    "routes": lambda root, _: settings.routes(),
    "commands": lambda root, _: commands.page(),
    "api": lambda root, _: api.page(),
    "api-access": lambda root, _: api.access(),
    "api-problems": lambda root, _: api.problems(),
    "schemas": lambda root, _: schemas.page(),
    "python": lambda root, name: python.section(name),
    "tests": evidence.block,
    "benchmarks": lambda root, _: _benchmarks(root / "benchmarks"),
    "picture": lambda root, name: _picture(root / "docs" / "assets" / f"{name}.svg"),
}


def filled(markdown: str, root: Path) -> str:
    return PLACE.sub(lambda found: _make(found[1], found[2] or "", root), markdown)


def _make(name: str, word: str, root: Path) -> str:
    if name not in MAKERS:
        raise Invalid(f"place {name!r} in a page", "nothing is made under this name", f"write one of: {', '.join(MAKERS)}")
    return MAKERS[name](root, word)


def _benchmarks(folder: Path) -> str:
    """Each with the first paragraph of what it says about itself."""
    rows = []
    for file in sorted(folder.glob("*.py")):
        about = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
        if file.stem not in ("harness", "nodes"):  # what benchmarks share
            rows.append(f"| `{file.stem}` | {' '.join(about.split())} |")
    return "\n".join(["| name | measures |", "|---|---|", *rows])


def _picture(file: Path) -> str:
    """In the page itself, where it takes the page's colours. Markdown ends a block of HTML at the first empty line."""
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("<?")]
    return "\n".join(['<figure class="picture">', *lines, "</figure>"])

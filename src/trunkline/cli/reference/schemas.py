"""Tables and the functions for applications, with their comments, out of the migrations' text.

Migrations are written in one manner: comment lines stand right before what they speak of, a column stands on a line of its
own. The tests compare what comes out with a real database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources

FOR_APPLICATIONS = "trunkline."
_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE ([\w.]+) \($")
_FUNCTION = re.compile(r"CREATE FUNCTION ([\w.]+)\((.*)")
_ALTERED = re.compile(r"ALTER TABLE ([\w.]+)(.*)")
_ADDED = re.compile(r"ADD COLUMN (\w+)\s+(.*?)(?=,\s*ADD COLUMN|;)")
_COLUMN = re.compile(r" {4}([a-z_]+) +(.*?),?$")


@dataclass
class Table:
    """`columns` by name, each with all that stands behind it."""

    name: str
    comment: str
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Function:
    name: str
    comment: str
    arguments: str


@dataclass
class Part:
    """What the migrations of one package make."""

    name: str
    tables: dict[str, Table] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)

    def read(self, text: str) -> None:
        comment: list[str] = []
        lines = iter(text.splitlines())
        for line in lines:
            if line.startswith("--"):
                comment.append(line.removeprefix("--").strip())
                continue
            self._statement(line, lines, " ".join(comment))
            comment = []

    def _statement(self, line: str, following: Iterator[str], comment: str) -> None:
        if found := _TABLE.match(line):
            self.tables[found[1]] = Table(found[1], comment, dict(_columns(following)))
        elif found := _ALTERED.match(line):
            self._added(self.tables.get(found[1]), _until(";", found[2], following), comment)
        elif found := _FUNCTION.match(line):
            words = found[2]
            while ")" not in words.replace("()", ""):
                words += " " + next(following).strip()
            if found[1].startswith(FOR_APPLICATIONS):
                self.functions.append(Function(found[1], comment, words.rpartition(")")[0].strip()))

    def _added(self, table: Table | None, words: str, comment: str) -> None:
        """Columns that came later, and what is said of them."""
        added = dict(_ADDED.findall(words))
        if table is not None and added:
            table.columns |= added
            table.comment = f"{table.comment} {comment}".strip()


def _until(end: str, words: str, lines: Iterator[str]) -> str:
    while end not in words:
        words += " " + next(lines).strip()
    return words


def _columns(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if line.startswith(")"):
            return
        found = _COLUMN.match(line)
        if found:
            yield found[1], found[2]


def parts() -> list[Part]:
    made = []
    for folder in sorted(resources.files("trunkline").iterdir(), key=lambda folder: folder.name):
        files = sorted(folder.joinpath("sql").iterdir(), key=lambda f: f.name) if folder.joinpath("sql").is_dir() else []
        part = Part(folder.name)
        for file in files:
            part.read(file.read_text())
        if files:
            made.append(part)
    return made


def page() -> str:
    return "\n".join(line for part in parts() for line in _part(part))


def _part(part: Part) -> Iterator[str]:
    yield from (f"## Package `{part.name}`", "")
    for table in part.tables.values():
        yield from (f"### `{table.name}`", "", table.comment, "", "| column | |", "|---|---|")
        yield from (f"| `{name}` | `{_one_line(rest)}` |" for name, rest in table.columns.items())
        yield ""
    for function in part.functions:
        yield from (f"### `{function.name}`", "", function.comment, "")
        yield from ("```sql", f"SELECT {function.name}({_one_line(function.arguments)})", "```", "")


def _one_line(text: str) -> str:
    return " ".join(text.split())

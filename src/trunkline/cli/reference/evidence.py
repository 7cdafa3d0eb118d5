"""The tests of guarantees and hazards, found by their names: `test_g1_…`, `test_h07_…`, or several, `test_g1_g4_…`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

_NAME = re.compile(r"test_((?:[gh]\d+_)+)(\w+)")
FEW = 6


@dataclass(frozen=True)
class Proof:
    """`file` is within the repository, `says` is the test's name as a sentence, `soak` that only `make soak` runs it."""

    marks: tuple[str, ...]
    file: str
    says: str
    soak: bool


@cache
def proofs(root: Path) -> tuple[Proof, ...]:
    return tuple(proof for file in sorted((root / "tests").rglob("test_*.py")) for proof in _in_file(file, root))


def proofs_of(root: Path, mark: str) -> list[Proof]:
    return [proof for proof in proofs(root) if mark in proof.marks]


def marks(root: Path, kind: str) -> list[str]:
    """Of the kind `g` or `h`, in order."""
    found = {mark for proof in proofs(root) for mark in proof.marks if mark.startswith(kind)}
    return sorted(found, key=lambda mark: int(mark[1:]))


def block(root: Path, mark: str) -> str:
    """A folded list of the tests; open when they are few."""
    found = proofs_of(root, mark)
    if not found:
        return "*No test carries its name yet.*"
    by_file = {file: list(group) for file, group in groupby(found, key=lambda proof: proof.file)}
    fold = "???+" if len(found) <= FEW else "???"
    lines = [f'{fold} abstract "{_count(len(found), "test")} in {_count(len(by_file), "file")}"', ""]
    for file, group in by_file.items():
        lines += [f"    `{file}`", "", *(f"    - {proof.says}{' *(soak)*' if proof.soak else ''}" for proof in group), ""]
    return "\n".join(lines)


def _in_file(file: Path, root: Path) -> Iterator[Proof]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (named := _NAME.fullmatch(node.name)):
            soak = any("mark.soak" in ast.unparse(decorator) for decorator in node.decorator_list)
            marks = tuple(named[1].strip("_").split("_"))
            yield Proof(marks, str(file.relative_to(root)), _sentence(named[2]), soak)


def _sentence(name: str) -> str:
    """the_relay_s_link → the relay's link"""
    return re.sub(r" s\b", "'s", name.replace("_", " "))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

"""A YAML file that still knows its lines: every value's place, keys written twice, and scalars as they were typed.

Lines are looked up in the tree of nodes only when something is to be said about a value: aliases make the tree a graph,
and walking all its paths could take for ever. A file that is not YAML is one mistake with the line where reading ended;
its text is not quoted, for it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trunkline.core.mistakes import Location, Mistake, Mistakes, key_text

_QUOTED = re.compile(r"""( ?'<[^'<>]*>'| ?'.{1,2}')| ?['"].*""", re.S)  # more than one character may be part of a secret
_SURROGATE = re.compile("[\ud800-\udfff]")
_STEPS = {
    "mapping values are not allowed": "put a text that contains ': ' in quotes, and give keys of one section one indentation",
    r"'\t'": "indent with spaces",
    "undefined alias": "put a text that begins with * in quotes",
    "could not determine a constructor": "put a text that begins with ! in quotes",
    "expected <block end>": "give keys of one section one indentation",
    "another document": "keep one document per file: remove the second ---",
    "expected ',' or": "close the bracket",
    "too deep": "make it flatter",
}


class Document:
    """`value` is what safe YAML makes of it; `source` is how messages call the file."""

    def __init__(self, text: str, source: str, what: str = "document") -> None:
        self.source, self._what = source, what
        self._root, self.value = self._parse(text)

    def line(self, location: Location) -> int | None:
        """The line of the key or item; nothing when the file has none there."""
        found = self._find(location)
        return found[0] if found else None

    def nearest_line(self, location: Location) -> int:
        """Of the value, or of the section that lacks it."""
        while location and self._find(location) is None:
            location = location[:-1]
        return self.line(location) or 1

    def typed(self, location: Location) -> str | None:
        """A scalar as it stands in the file: `on`, not true."""
        found = self._find(location)
        return found[1].value if found and isinstance(found[1], yaml.ScalarNode) else None

    def twice(self) -> list[Mistake]:
        return [
            Mistake(self.source, line, key_text(location), f"it is written twice, first in line {first}", "keep one of them")
            for location, line, first in self._doubles
        ]

    def _parse(self, text: str) -> tuple[yaml.Node | None, Any]:
        try:
            loader = _Loader(text)
            root = loader.get_single_node()
            self._doubles = list(_doubled_keys(root))
            return root, loader.construct_document(root) if root else None
        except (yaml.YAMLError, RecursionError) as error:
            mistake = self._syntax(error, text)
        raise Mistakes(self._what, [mistake], "mend that line")

    def _syntax(self, error: yaml.YAMLError | RecursionError, text: str) -> Mistake:
        line, problem = _problem(error, text)
        problem = _QUOTED.sub(lambda quote: quote[1] or "", problem)
        step = next((step for part, step in _STEPS.items() if part in problem), "")
        return Mistake(self.source, line, "", f"it is not YAML: {problem}", step)

    def _find(self, location: Location) -> tuple[int, yaml.Node] | None:
        node = self._root
        if node is None:
            return None
        line = node.start_mark.line + 1
        for part in location:
            found = _child(node, part)
            if found is None:
                return None
            line, node = found
        return line, node


def read_document(path: Path, what: str, next_step: str) -> Document:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        mistake = Mistake(str(path), line, "", "it is not YAML: not text in UTF-8", "save it as UTF-8")
    except (OSError, ValueError) as error:
        mistake = Mistake(str(path), None, "", getattr(error, "strerror", None) or str(error))
    else:
        return Document(text, str(path), what)
    raise Mistakes(what, [mistake], next_step)


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, TypeError, OverflowError):
            kind = node.tag.rpartition(":")[2]
        raise yaml.constructor.ConstructorError(None, None, f"this is no valid {kind}", node.start_mark)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if isinstance(node, yaml.ScalarNode) and _SURROGATE.search(node.value):
            raise yaml.constructor.ConstructorError(None, None, "this is not text: half a character", node.start_mark)
        return super().construct_scalar(node)


def _problem(error: yaml.YAMLError | RecursionError, text: str) -> tuple[int, str]:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return (mark.line + 1 if mark else 1), ", ".join(part for part in (error.context, error.problem) if part)
    if isinstance(error, yaml.reader.ReaderError):
        return text.count("\n", 0, error.position) + 1, f"{error.reason} (character {error.character:#x})"
    return 1, "it is nested too deep"


def _child(node: yaml.Node, part: int | str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode):
        if not isinstance(part, int) or part >= len(node.value):
            return None
        return node.value[part].start_mark.line + 1, node.value[part]
    if isinstance(node, yaml.MappingNode):  # keys merged by << stand before the mapping's own
        return next(((k.start_mark.line + 1, v) for k, v in reversed(node.value) if k.value == str(part)), None)
    return None


def _doubled_keys(root: yaml.Node | None) -> Iterator[tuple[Location, int, int]]:
    """Each key of a mapping that repeats an earlier one: its location, its line, the earlier one's line."""
    waiting: list[tuple[Location, yaml.Node]] = [((), root)] if root else []
    seen: set[int] = set()
    while waiting:
        location, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [((*location, n), inner) for n, inner in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            yield from _doubled_in(location, node)
            waiting += [((*location, str(key.value)), inner) for key, inner in node.value if isinstance(key, yaml.ScalarNode)]


def _doubled_in(location: Location, mapping: yaml.MappingNode) -> Iterator[tuple[Location, int, int]]:
    first: dict[str, int] = {}
    for key in (key for key, _ in mapping.value if isinstance(key, yaml.ScalarNode)):
        line = key.start_mark.line + 1
        if key.value in first:
            yield (*location, key.value), line, first[key.value]
        else:
            first[key.value] = line

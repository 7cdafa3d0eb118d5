"""What an event must hold to get through a route's filters, as far as it can be said beforehand.

N1  Only filters that neither change events nor do anything else with them are looked through: matches and `pass`. So an
    event without what is needed is surely dropped by one of them, before anybody has told a fault or counted something.
N2  A need is a path and the key of the one value it must have there; values that a match calls equal have equal keys.
N3  A match that asks for texts at paths and for nothing else is said in full by its needs: texts have equal keys only where
    they are equal. Whatever was found by its needs gets through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Protocol

import msgspec

from trunkline.routes.codegen import Code
from trunkline.routes.filters.comparison import Comparison, ComparisonTree, literal
from trunkline.routes.filters.match import MatchConfig
from trunkline.routes.filters.patterns import ANYTHING
from trunkline.routes.paths import Path, event_path, parse_template
from trunkline.routes.pathtext import in_event

Needs = dict[Path, object]
Need = tuple[Path, object]

_LOOKED_THROUGH = ("match", "filter", "deny", "pass")
_PATTERNS = ("pattern", "patternregex")
_NOT_A_SCALAR = object()


class PlacedFilter(Protocol):
    @property
    def plugin(self) -> str: ...

    @property
    def config(self) -> Any: ...


def needs_of(chain: Sequence[PlacedFilter]) -> Needs:
    """In the order of the paths' texts; empty when nothing can be said."""
    first = takewhile(lambda placed: placed.plugin in _LOOKED_THROUGH, chain)
    found = dict(need for placed in first if isinstance(placed.config, MatchConfig) for need in _needs(placed.config))
    return {path: found[path] for path in sorted(found, key=str)}


def said_in_full(chain: Sequence[PlacedFilter], needs: Needs) -> frozenset[int]:
    """Places of the filters that let pass whatever has these needs of the chain."""
    first = takewhile(lambda placed: placed.plugin in _LOOKED_THROUGH, chain)
    return frozenset(
        n
        for n, placed in enumerate(first)
        if isinstance(placed.config, MatchConfig)
        and _asks_for_texts_only(placed.config)
        and all(needs.get(path) == key for path, key in _needs(placed.config))
    )


def _asks_for_texts_only(config: MatchConfig) -> bool:
    return (
        (config.mode, config.matcher, config.patterns_logic) == ("allow", "pattern", "and")
        and config.comparison is None
        and all(map(_is_texts, config.wanted))
    )


def _is_texts(pattern: Any) -> bool:
    if isinstance(pattern, dict):
        return bool(pattern) and all(map(_is_texts, pattern.values()))
    return isinstance(pattern, str) and pattern != ANYTHING


def written(needs: Needs) -> list[Any]:
    """As JSON."""
    return [[msgspec.to_builtins(path), None if key is _NOT_A_SCALAR else key] for path, key in needs.items()]


def read(needs: Sequence[Any]) -> Needs:
    return {msgspec.convert(path, Path): _NOT_A_SCALAR if key is None else key for path, key in needs}


def key_of(value: Any) -> object:
    """Hashable, and equal wherever two values are the same (1 and true share a key: the match itself decides)."""
    return value if isinstance(value, str | int | float) else _NOT_A_SCALAR


def key_reader(paths: Sequence[Path]) -> Any:
    """A function that gives an event's keys at these paths: as a tuple, or of one path alone as it is."""
    code = Code()
    key = code.value(key_of)
    keys = [f"{name} if type({name}) is str else {key}({name})" for name in map(code.read, paths)]
    return code.function(keys[0] if len(keys) == 1 else f"({', '.join(keys)})")


def _needs(config: MatchConfig) -> Iterator[Need]:
    """Of what is joined by `or` nothing is needed."""
    if config.mode == "deny" or config.matcher == "regex":
        return
    if config.matcher not in _PATTERNS and config.comparison is None:
        yield from _of_tree(config.comparison_tree or ComparisonTree())
    elif config.patterns_logic == "or":
        return
    elif config.matcher not in _PATTERNS:
        yield from _of_comparison(config.comparison or Comparison())
    else:
        for pattern in config.wanted:
            yield from _leaves(pattern, event_path(config.path), config.matcher == "patternregex")


def _leaves(pattern: Any, at: Path, regexes: bool) -> Iterator[Need]:
    if isinstance(pattern, dict):
        for key, value in pattern.items():
            yield from _leaves(value, at.below(key), regexes)
    elif pattern != ANYTHING and not (regexes and isinstance(pattern, str)):
        yield at, key_of(pattern)


def _of_tree(tree: ComparisonTree) -> Iterator[Need]:
    if tree.logic == "and":
        yield from _of_comparison(tree.comparison or Comparison())
        for child in tree.child_nodes:
            yield from _of_tree(child)


def _of_comparison(comparison: Comparison) -> Iterator[Need]:
    for left, right in comparison.equals():
        pieces, (fixed, value) = parse_template(left), literal(right)
        if fixed and len(pieces) == 1 and isinstance(pieces[0], Path) and in_event(pieces[0]):
            yield pieces[0], key_of(value)

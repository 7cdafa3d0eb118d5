"""Filters as closures over batches: a configuration goes in once, lists of events go through.

A filter keeps the order of a batch and never fails on an event: what a path does not find is null, and null matches
only a null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trunkline.routes.event import Event
from trunkline.routes.model import MatchConfig, TransformConfig
from trunkline.routes.paths import as_text, compile_tree, event_path, reader

BatchFilter = Callable[[list[Event]], list[Event]]
Test = Callable[[Any], bool]

ANYTHING = "*"


def compile_match(config: MatchConfig, constants: Mapping[str, str]) -> BatchFilter:
    read, test, wanted = reader(event_path(config.path)), _MATCHERS[config.matcher](config), config.mode == "allow"
    return lambda batch: [event for event in batch if test(read(event)) is wanted]


def compile_transform(config: TransformConfig, constants: Mapping[str, str]) -> BatchFilter:
    payload = compile_tree(config.transformation, constants)
    if config.metadata is None:
        return lambda batch: [event.with_content(payload(event), event.metadata) for event in batch]
    metadata = compile_tree(config.metadata, constants)
    return lambda batch: [event.with_content(payload(event), metadata(event)) for event in batch]


def _regex(config: MatchConfig) -> Test:
    """Over a text as it is, over anything else as JSON; null never matches."""
    search = re.compile(config.pattern).search
    return lambda value: value is not None and search(as_text(value)) is not None


def _pattern(config: MatchConfig) -> Test:
    return compile_pattern(config.pattern, config.exact_array_match)


_MATCHERS: Mapping[str, Callable[[MatchConfig], Test]] = {"pattern": _pattern, "regex": _regex}


def compile_pattern(pattern: Any, exact_array: bool) -> Test:
    """Containment: a map's keys must all be there and match, an array's elements each match some element.

    Null matches null and what is missing, "*" everything else; numbers are equal by value (1 = 1.0), never to booleans.
    """
    if isinstance(pattern, dict):
        return _map_test({key: compile_pattern(value, exact_array) for key, value in pattern.items()})
    if isinstance(pattern, list):
        return _array_test([compile_pattern(value, exact_array) for value in pattern], exact_array)
    if pattern is None:
        return lambda value: value is None
    if pattern == ANYTHING:
        return lambda value: value is not None
    if isinstance(pattern, bool):
        return lambda value: value is pattern
    return lambda value: not isinstance(value, bool) and bool(value == pattern)


def _map_test(tests: dict[str, Test]) -> Test:
    items = list(tests.items())

    def test(value: Any) -> bool:
        return isinstance(value, dict) and all(inner(value.get(key)) for key, inner in items)

    return test


def _array_test(tests: list[Test], exact: bool) -> Test:
    def test(value: Any) -> bool:
        if not isinstance(value, list) or (exact and len(value) != len(tests)):
            return False
        return all(any(inner(element) for element in value) for inner in tests)

    return test

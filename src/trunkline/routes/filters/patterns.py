"""Patterns: a value that must be contained in the event's.

A map's keys must all be there and match; an array's elements each match some element, in any order. Null matches null and
what is missing, "*" everything else; numbers are equal by value (1 = 1.0), never to booleans. With `regexes`, every text of a
pattern is a regex that must be found in a text instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.routes.codegen import Code
from trunkline.routes.paths import texts
from trunkline.routes.regexes import check_regex, finder

Test = Callable[[Any], bool]

ANYTHING = "*"
REMEMBERED = 64
REMEMBERED_LENGTH = 64


def check_regexes(pattern: Any) -> None:
    for where, text in texts(pattern):
        try:
            check_regex(text)
        except Invalid as error:
            raise Invalid(f"{where.lstrip('.')} {error.what}".lstrip(), error.why, error.next_step) from None


def pattern_source(code: Code, value: str, pattern: Any, exact_array: bool, regexes: bool = False) -> str:
    """An expression that says whether what `value` names matches."""
    return " and ".join(_tests(code, value, pattern, exact_array, regexes)) or "True"


def _tests(code: Code, value: str, pattern: Any, exact_array: bool, regexes: bool) -> Iterator[str]:
    if isinstance(pattern, dict):
        inner = code.local()
        yield f"type({inner} := {value}) is dict"
        for key, wanted in pattern.items():
            yield from _tests(code, f"{inner}.get({key!r})", wanted, exact_array, regexes)
    elif isinstance(pattern, list):
        test = _array_test([_compiled(element, exact_array, regexes) for element in pattern], exact_array)
        yield f"{code.value(test)}({value})"
    else:
        yield _leaf(code, value, pattern, regexes)


def _leaf(code: Code, value: str, pattern: Any, regexes: bool) -> str:
    if isinstance(pattern, str) and regexes:
        return f"{code.value(found_in_text(pattern))}({value})"
    return f"{value} is not None" if pattern == ANYTHING else code.equals(value, pattern)


def _compiled(pattern: Any, exact_array: bool, regexes: bool) -> Test:
    code = Code()
    return code.function(pattern_source(code, "value", pattern, exact_array, regexes), "value")


def _array_test(tests: list[Test], exact: bool) -> Test:
    def test(value: Any) -> bool:
        if type(value) is not list or (exact and len(value) != len(tests)):
            return False
        return all(any(inner(element) for element in value) for inner in tests)

    return test


@lru_cache(maxsize=4096)
def found_in_text(regex: str) -> Test:
    """Whether it is found in a text. Routes with the same regex share what it said to the first short texts it saw: fields
    that are worth a pattern mostly have few values."""
    search, known = finder(regex), dict[str, bool]()

    def test(value: Any) -> bool:
        if type(value) is not str:
            return False
        said = known.get(value)
        if said is None:
            said = search(value)
            if len(known) < REMEMBERED and len(value) <= REMEMBERED_LENGTH:
                known[value] = said
        return said

    return test

"""match: lets events pass, or keeps them back, by what they hold.

What a path does not find is null, and null matches only a null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from trunkline.routes.codegen import Code, as_text
from trunkline.routes.fields import EventPath, Json, RouteModel, validated
from trunkline.routes.filters.comparison import (
    Comparison,
    ComparisonTree,
    Logic,
    comparison_source,
    comparison_tree_source,
    joined,
)
from trunkline.routes.filters.patterns import check_regexes, found_in_text, pattern_source
from trunkline.routes.paths import event_path
from trunkline.routes.plugin import Around, Filter, FilterPlugin
from trunkline.routes.regexes import check_regex

Matcher = Literal["regex", "pattern", "patternregex", "comparison", "comparisonTree"]

_CHECKS: Mapping[str, Callable[[Any], None]] = {"regex": check_regex, "patternregex": check_regexes}


class MatchConfig(RouteModel):
    """Lets an event pass (allow) or keeps it back (deny) when it matches."""

    mode: Literal["allow", "deny"] = Field(default="allow", description="what happens to an event that matches")
    matcher: Matcher = Field(
        default="regex",
        description="regex: found in the text at path; pattern: contained in the value there; patternregex: a pattern whose "
        "texts are regexes; comparison, comparisonTree: templates that are equal or differ",
    )
    pattern: Json = Field(default="^.*$", description="what is looked for at path")
    patterns: tuple[Json, ...] = Field(default=(), description="several patterns, in place of one")
    patterns_logic: Logic = Field(default="and", description="and: all patterns or comparisons must match; or: one of them")
    path: EventPath = Field(default="", description="where patterns look; empty: the payload itself")
    exact_array_match: bool = Field(default=True, description="arrays of a pattern must also be as long as the event's")
    comparison: Comparison | None = Field(default=None, description="pairs that are equal or differ")
    comparison_tree: ComparisonTree | None = Field(default=None, description="comparisons joined by and/or")

    @field_validator("pattern")
    @classmethod
    def _regex_compiles(cls, value: Any, info: ValidationInfo) -> Any:
        check = _CHECKS.get(info.data.get("matcher", ""))
        return validated(check, value) if check else value

    @field_validator("patterns")
    @classmethod
    def _regexes_compile(cls, values: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        check = _CHECKS.get(info.data.get("matcher", ""))
        return tuple(validated(check, value) for value in values) if check else values

    @property
    def wanted(self) -> tuple[Any, ...]:
        return self.patterns or (self.pattern,)


class DenyConfig(MatchConfig):
    """Keeps an event back when it matches."""

    mode: Literal["deny"] = Field(default="deny", description="an event that matches is kept back")


def compile_match(config: MatchConfig, around: Around) -> Filter:
    code = Code()
    test = _MATCHERS[config.matcher](code, config, around)
    return code.filter(f"if {test}: append(event)" if config.mode == "allow" else f"if not ({test}): append(event)")


def _patterns(code: Code, config: MatchConfig, around: Around) -> str:
    value, regexes = code.read(event_path(config.path)), config.matcher == "patternregex"
    tests = [pattern_source(code, value, wanted, config.exact_array_match, regexes) for wanted in config.wanted]
    return joined([f"({test})" for test in tests], config.patterns_logic)


def _regex(code: Code, config: MatchConfig, around: Around) -> str:
    """Over a text as it is, over anything else as JSON; null never matches."""
    value = code.read(event_path(config.path))
    tests = [f"{code.value(_found_in(regex))}({value})" for regex in config.wanted]
    return joined(tests, config.patterns_logic)


def _found_in(regex: str) -> Callable[[Any], bool]:
    test = found_in_text(regex)
    return lambda value: value is not None and test(as_text(value))


def _comparison(code: Code, config: MatchConfig, around: Around) -> str:
    """A comparison beside a tree is what counts, whichever of the two the matcher names."""
    if config.comparison is not None:
        return comparison_source(code, config.comparison, config.patterns_logic, around.constants)
    return comparison_tree_source(code, config.comparison_tree or ComparisonTree(), around.constants)


_MATCHERS: Mapping[str, Callable[[Code, MatchConfig, Around], str]] = {
    "regex": _regex,
    "pattern": _patterns,
    "patternregex": _patterns,
    "comparison": _comparison,
    "comparisonTree": _comparison,
}

MATCH = FilterPlugin("match", MatchConfig, compile_match, pure=True)
FILTER = FilterPlugin("filter", MatchConfig, compile_match, pure=True)
DENY = FilterPlugin("deny", DenyConfig, compile_match, pure=True)

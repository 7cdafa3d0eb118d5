"""Why a filter kept an event back, in a person's words.

The compiled filter has decided already; this goes through its configuration once more, slowly, to find what decided it: of a
match the first comparison that failed (or, where one of several would have done, all of them), of an expression the values it
saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from trunkline.core.jsoncodec import dumps
from trunkline.routes.codegen import as_text
from trunkline.routes.equality import same
from trunkline.routes.event import Event
from trunkline.routes.filters.batch import BatchConfig
from trunkline.routes.filters.block import BlockConfig
from trunkline.routes.filters.cel_source import rewritten
from trunkline.routes.filters.comparison import Comparison, ComparisonTree
from trunkline.routes.filters.dedup import DedupConfig
from trunkline.routes.filters.expr import ExprConfig
from trunkline.routes.filters.js import JsConfig
from trunkline.routes.filters.match import DenyConfig, MatchConfig
from trunkline.routes.filters.patterns import ANYTHING, found_in_text
from trunkline.routes.filters.split import SplitConfig
from trunkline.routes.filters.ttl import TtlConfig
from trunkline.routes.paths import Path, compile_tree, event_path, parse_template, reader
from trunkline.routes.plugin import Around

LONGEST = 60  # characters of a value in a reason: enough to know it again


class Tested(NamedTuple):
    """One test of a match over one event. `wrong`: why it fails; empty if it holds, and then `right` says what holds."""

    wrong: str
    right: str


def why_kept_back(config: BaseModel, event: Event, around: Around) -> str:
    why = _WHY.get(type(config))
    return why(config, event, around) if why else "it kept the event back"


def shown(value: Any) -> str:
    try:
        text = dumps(value).decode()
    except TypeError:
        text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _is(at: object, value: Any) -> str:
    return f"{at} is missing" if value is None else f"{at} is {shown(value)}"


# -- match


def _match(config: MatchConfig, event: Event, around: Around) -> str:
    test = _tested(config, event, around)
    return test.wrong if config.mode == "allow" else f"{test.right}, and such events are denied"


def _tested(config: MatchConfig, event: Event, around: Around) -> Tested:
    if config.matcher in ("comparison", "comparisonTree"):
        if config.comparison is not None:
            return _joined(_compared(config.comparison, event, around), config.patterns_logic)
        return _tree(config.comparison_tree or ComparisonTree(), event, around)
    path = event_path(config.path)
    value, test = reader(path)(event), _regex if config.matcher == "regex" else _pattern
    return _joined((test(config, path, value, wanted) for wanted in config.wanted), config.patterns_logic)


def _joined(tests: Iterable[Tested], logic: str) -> Tested:
    all_ = list(tests)
    wrong = [test.wrong for test in all_ if test.wrong]
    right = [test.right for test in all_ if not test.wrong]
    if not all_:
        return Tested("", "it asks for nothing")
    if logic == "and":
        return Tested(wrong[0] if wrong else "", " and ".join(right))
    return Tested("" if right else "; ".join(wrong), right[0] if right else "")


def _regex(config: MatchConfig, path: Path, value: Any, regex: str) -> Tested:
    found = value is not None and found_in_text(regex)(as_text(value))
    return Tested("" if found else f"{_is(path, value)}: {regex!r} is not found in it", f"{regex!r} is found in {path}")


def _pattern(config: MatchConfig, path: Path, value: Any, pattern: Any) -> Tested:
    wrong = difference(value, pattern, path, config.exact_array_match, config.matcher == "patternregex")
    return Tested(wrong, f"{path} matches {shown(pattern)}")


def difference(value: Any, pattern: Any, at: Path, exact: bool, regexes: bool) -> str:
    """The first place where a value does not match; empty if it does."""
    if isinstance(pattern, dict):
        if type(value) is not dict:
            return f"{_is(at, value)}, wanted a map with {', '.join(pattern) or 'anything'}"
        inner = (difference(value.get(key), wanted, at.below(key), exact, regexes) for key, wanted in pattern.items())
        return next(filter(None, inner), "")
    if isinstance(pattern, list):
        return _array_difference(value, pattern, at, exact, regexes)
    if isinstance(pattern, str) and regexes:
        return "" if found_in_text(pattern)(value) else f"{_is(at, value)}: the regex {pattern!r} is not found in it"
    if pattern == ANYTHING:
        return "" if value is not None else f"{at} is missing"
    return "" if same(value, pattern) else f"{_is(at, value)}, wanted {shown(pattern)}"


def _array_difference(value: Any, pattern: list[Any], at: Path, exact: bool, regexes: bool) -> str:
    if type(value) is not list:
        return f"{_is(at, value)}, wanted an array"
    if exact and len(value) != len(pattern):
        return f"{at} has {len(value)} elements, wanted {len(pattern)} (exactArrayMatch)"
    lacking = (wanted for wanted in pattern if all(difference(one, wanted, at, exact, regexes) for one in value))
    return next((f"{at} has no element that matches {shown(wanted)}" for wanted in lacking), "")


def _tree(tree: ComparisonTree, event: Event, around: Around) -> Tested:
    own = _compared(tree.comparison or Comparison(), event, around)
    return _joined([*own, *(_tree(child, event, around) for child in tree.child_nodes)], tree.logic)


def _compared(comparison: Comparison, event: Event, around: Around) -> Iterator[Tested]:
    for left, right in comparison.equals():
        name, found, wanted = _sides(left, right, event, around)
        yield Tested("" if same(found, wanted) else f"{_is(name, found)}, wanted {shown(wanted)}", _is(name, found))
    for left, right in comparison.differs():
        name, found, unwanted = _sides(left, right, event, around)
        wrong = f"{_is(name, found)}, wanted anything but that" if same(found, unwanted) else ""
        yield Tested(wrong, f"{_is(name, found)}, not {shown(unwanted)}")


def _sides(left: str, right: Any, event: Event, around: Around) -> tuple[str, Any, Any]:
    pieces = parse_template(left)
    name = str(pieces[0]) if len(pieces) == 1 else shown(left)
    return name, compile_tree(left, around.constants)(event), compile_tree(right, around.constants)(event)


# -- others


def _expr(config: ExprConfig, event: Event, around: Around) -> str:
    paths = rewritten(config.expression, around.constants).paths.values()
    seen = ", ".join(_is(path, reader(path)(event)) for path in paths)
    said = "not true" if config.mode == "allow" else "true, and such events are denied"
    return f"{config.expression} is {said}" + (f": {seen}" if seen else "")


def _ttl(config: TtlConfig, event: Event, around: Around) -> str:
    path = event_path(config.path)
    age = around.now() - reader(path)(event) * config.nano_factor / 1e9
    return f"{path} is {age:.3f} s ago, and {config.ttl / 1000:g} s are allowed"


def _dedup(config: DedupConfig, event: Event, around: Around) -> str:
    path = event_path(config.path)
    return f"{_is(path, reader(path)(event))}, which came before"


def _split(config: SplitConfig, event: Event, around: Around) -> str:
    return f"{event_path(config.path)} is an empty array"


def _always(reason: str) -> Callable[[Any, Event, Around], str]:
    return lambda config, event, around: reason


_WHY: Mapping[type, Callable[[Any, Event, Around], str]] = {
    MatchConfig: _match,
    DenyConfig: _match,
    ExprConfig: _expr,
    TtlConfig: _ttl,
    DedupConfig: _dedup,
    SplitConfig: _split,
    JsConfig: _always("the script returned no event"),
    BlockConfig: _always("it lets nothing pass"),
    BatchConfig: _always("it waits until the batch is full, or its time is over"),
}

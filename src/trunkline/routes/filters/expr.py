"""expr: an expression in CEL, the Common Expression Language, as a condition or as the source of a value.

Handing a whole event to CEL costs far more than the expression does: so the paths that it refers to are read first, and stand
in it as variables.

    C1  What is not there reads as null, and `has(payload.a)` says whether something other than null is there.
    C2  An expression that fails because something is not there (a path that it refers to is null, a key or an index does not
        exist) has no answer, as in SQL. As a condition that is not true, so `allow` keeps the event back and `deny` lets it
        pass; as a value it is null. One side of `&&` or `||` is enough where it decides.
    C3  Any other failure is a fault of the event, and so is a condition that gives neither true nor false.
    C4  Numbers are what they are worth, however they are written: 1 == 1.0, 2 * 1.5 == 3 and 5 / 2 == 2.5. CEL itself refuses
        to mix whole and broken numbers, and divides whole ones without rest: there, all of them are taken as broken ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import cel
from pydantic import Field

from trunkline.core.errors import Invalid
from trunkline.routes.codegen import Code
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel
from trunkline.routes.filters.cel_source import LIBRARY, rewritten, tokens
from trunkline.routes.filters.change import TargetPath
from trunkline.routes.filters.kinds import kind
from trunkline.routes.paths import CannotSet, Path, target_path, writer
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin

Evaluate = Callable[[Event], Any]
Compute = Callable[[dict[str, Any]], Any]


class ExprConfig(RouteModel):
    """Lets an event pass (allow) or keeps it back (deny) when an expression in CEL is true or, with `toPath`, sets what the
    expression gives. It sees `payload`, `metadata` and the site's constants; what is not there is null. An expression that
    needs something that is not there has no answer: it is not true, and its value is null. Numbers are equal by value, 5 / 2 is
    2.5, and `has(payload.a)` is `payload.a != null`."""

    expression: str = Field(
        min_length=1,
        max_length=8_000,
        description="in CEL; its usual functions and those of its text, list and math libraries are there",
        examples=['payload.level > 3 && payload.kind.startsWith("alarm")'],
    )
    mode: Literal["allow", "deny"] = Field(default="allow", description="of a condition; with toPath it means nothing")
    to_path: TargetPath | None = Field(default=None, description="where the value is set; none: the expression is a condition")


class _Failed(Exception):
    """As a text it says why."""


def compile_expr(config: ExprConfig, around: Around) -> Filter:
    evaluate = compile_expression(config.expression, around)
    if config.to_path is None:
        return _condition(evaluate, config.mode == "allow")
    return _value(evaluate, config.to_path)


def _condition(evaluate: Evaluate, wanted: bool) -> Filter:
    def expr(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            try:
                answer = evaluate(event)
            except _Failed as error:
                faults.add(event, str(error))
                continue
            if answer is True or answer is False or answer is None:
                if (answer is True) is wanted:
                    out.append(event)
            else:
                faults.add(event, f"the expression gave {kind(answer)}; a condition is true or false")
        return out

    return expr


def _value(evaluate: Evaluate, to_path: str) -> Filter:
    write = writer(target_path(to_path))

    def expr(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            try:
                out.append(write(event, _as_json(evaluate(event))))
            except (_Failed, CannotSet) as error:
                faults.add(event, str(error))
        return out

    return expr


def compile_expression(source: str, around: Around) -> Evaluate:
    """A function that gives its value for an event, null where it has none; raises `_Failed`."""
    _parsed(source)
    over = rewritten(source, around.constants)
    _check_patterns(source)
    read = _reader(over.paths)
    fixed = {**around.constants, **{name: LIBRARY[name] for name in over.library}}
    first, second = _program(over.text, fixed), _in_broken(over.broken, fixed)
    if over.divides:
        first, second = second, first

    def evaluate(event: Event) -> Any:
        found = read(event)
        try:
            return first(found)
        except (KeyError, IndexError):
            return None
        except Exception as error:
            return None if None in found.values() else _otherwise(second, found, error)

    return evaluate


def _reader(paths: Mapping[str, Path]) -> Callable[[Event], dict[str, Any]]:
    code = Code()
    return code.function("{" + ", ".join(f"{name!r}: {code.read(path)}" for name, path in paths.items()) + "}")


def _program(source: str, fixed: dict[str, Any]) -> Compute:
    execute = _parsed(source).execute
    return (lambda found: execute({**found, **fixed})) if fixed else execute


def _in_broken(source: str, fixed: dict[str, Any]) -> Compute:
    compute = _program(source, fixed)
    return lambda found: compute({name: _broken(value) for name, value in found.items()})


def _otherwise(compute: Compute, found: dict[str, Any], error: Exception) -> Any:
    """Mixed numbers come as a `TypeError`. If it was not that, the first failure says more."""
    if isinstance(error, TypeError):
        try:
            return compute(found)
        except Exception as again:
            error = error if isinstance(again, TypeError) else again
    raise _Failed(_first_line(error).partition(". ")[0]) from None


def _broken(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _broken(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_broken(inner) for inner in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_json(value: Any) -> Any:
    if isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_json(inner) for inner in value]
    raise _Failed(f"the expression gave {value!r}, which is not JSON; write string(...) around it")


def _parsed(source: str) -> cel.Program:
    try:
        return cel.compile(source)
    except ValueError as error:
        what = str(error).partition("ERROR: <input>:")[2] or str(error)
        why = _first_line(what).partition(" expecting ")[0]
        raise Invalid("expression", f"at {why}", "mend it, in the syntax of CEL") from None


def _check_patterns(source: str) -> None:
    """Regular expressions that are written in the expression."""
    written = tokens(source)
    for method, bracket, pattern in zip(written, written[1:], written[2:], strict=False):
        if (method.text, bracket.text, pattern.kind) == ("matches", "(", "text"):
            try:
                cel.evaluate(f'"".matches({pattern.text})')
            except Exception as error:
                why = str(error).splitlines()[-1].removeprefix("error: ").partition(". ")[0]
                raise Invalid(f"regex {pattern.text}", why, "mend it, in the syntax of RE2") from None


def _first_line(error: object) -> str:
    return next(iter(str(error).splitlines()), "")


EXPR = FilterPlugin("expr", ExprConfig, compile_expr, pure=True)

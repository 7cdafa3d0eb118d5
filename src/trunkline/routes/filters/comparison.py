"""Comparisons: both sides are templates, and equal means the same JSON value. What is missing is null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from trunkline.routes.codegen import Code
from trunkline.routes.fields import MAX_DEPTH, RouteModel, Template, TemplateTree
from trunkline.routes.paths import parse_template, tree_source

Logic = Annotated[Literal["and", "or"], BeforeValidator(lambda word: word.lower() if isinstance(word, str) else word)]
Sides = tuple[str, Any]


class Comparison(RouteModel):
    """Pairs that must be equal or must differ; each side may be a template such as "{payload.id}"."""

    equal: tuple[dict[Template, TemplateTree], ...] = Field(default=(), description="maps from one side to the other")
    not_equal: tuple[dict[Template, TemplateTree], ...] = Field(default=(), description="maps from one side to the other")

    def equals(self) -> Iterator[Sides]:
        return (sides for pairs in self.equal for sides in pairs.items())

    def differs(self) -> Iterator[Sides]:
        return (sides for pairs in self.not_equal for sides in pairs.items())


class ComparisonTree(RouteModel):
    """Comparisons joined by and/or, at any depth; an empty one is true."""

    logic: Logic = Field(default="and", description="how its comparisons and child nodes are joined")
    comparison: Comparison | None = Field(default=None, description="pairs that are equal or differ")
    child_nodes: tuple[ComparisonTree, ...] = Field(default=(), description="further trees")

    @model_validator(mode="after")
    def _not_too_deep(self) -> ComparisonTree:
        if self.depth() > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}; make it flatter")
        return self

    def depth(self) -> int:
        """Of a tree whose children were checked before: it never goes far."""
        return 1 + max((child.depth() for child in self.child_nodes), default=0)


def joined(tests: list[str], logic: str) -> str:
    """Of no tests at all: true."""
    return f"({f' {logic} '.join(tests)})" if tests else "True"


def comparison_source(code: Code, comparison: Comparison, logic: str, constants: Mapping[str, str]) -> str:
    return joined(_tests(code, comparison, constants), logic)


def comparison_tree_source(code: Code, tree: ComparisonTree, constants: Mapping[str, str]) -> str:
    children = [comparison_tree_source(code, child, constants) for child in tree.child_nodes]
    return joined(_tests(code, tree.comparison or Comparison(), constants) + children, tree.logic)


def _tests(code: Code, comparison: Comparison, constants: Mapping[str, str]) -> list[str]:
    equal = [_equal(code, sides, constants) for sides in comparison.equals()]
    return equal + [f"not {_equal(code, sides, constants)}" for sides in comparison.differs()]


def _equal(code: Code, sides: Sides, constants: Mapping[str, str]) -> str:
    left, right = sides
    fixed, value = literal(right)
    if fixed:
        return f"({code.equals(tree_source(code, left, constants), value)})"
    return f"same({tree_source(code, left, constants)}, {tree_source(code, right, constants)})"


def literal(side: Any) -> tuple[bool, Any]:
    """Whether a side is the same scalar for every event, and that scalar."""
    if isinstance(side, str):
        pieces = parse_template(side)
        return (True, "".join(map(str, pieces))) if all(isinstance(p, str) for p in pieces) else (False, None)
    return (False, None) if isinstance(side, dict | list) else (True, side)

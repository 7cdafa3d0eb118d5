"""What every plugin says about itself, for people and for editors: all of it out of its declaration."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from trunkline.routes.plugin import FilterPlugin, Plugin, Runs
from trunkline.routes.registry import Kind, Registry

OURS = "trunkline"

_PLACES = {Runs.LOCAL: ("node",), Runs.SPARK: ("pipeline",), Runs.BOTH: ("node", "pipeline")}


class Entry(msgspec.Struct, frozen=True):
    """`runs`: the processes that can run it. `package`: where it comes from."""

    kind: Kind
    name: str
    summary: str
    about: str
    runs: tuple[str, ...]
    package: str
    config: type[BaseModel]

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "name": self.name,
            "summary": self.summary,
            "runs": list(self.runs),
            "package": self.package,
        }

    def in_full(self) -> dict[str, Any]:
        schema = self.config.model_json_schema(by_alias=True)
        return {**self.as_json(), "about": self.about, "schema": schema, "example": self.example()}

    def example(self) -> dict[str, Any]:
        """As it may stand in a route: all that must be told, and what else has an example."""
        fields = {field.alias or name: field for name, field in self.config.model_fields.items()}
        config = {key: to_jsonable_python(field.examples[0], fallback=str) for key, field in fields.items() if field.examples}
        return {"plugin": self.name, **({"config": config} if config else {})}


def catalogue(plugins: Registry) -> Iterator[Entry]:
    for kind in Kind:
        for name in plugins.names(kind):
            plugin = plugins.find(kind, name)
            if plugin is not None:
                yield _entry(kind, plugin, plugins.package(kind, name) or OURS)


def _entry(kind: Kind, plugin: Plugin, package: str) -> Entry:
    about = inspect.cleandoc(plugin.config.__doc__ or "")
    runs = Runs.BOTH if isinstance(plugin, FilterPlugin) else plugin.runs
    return Entry(kind, plugin.name, _first_sentence(about), about, _PLACES[runs], package, plugin.config)


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")

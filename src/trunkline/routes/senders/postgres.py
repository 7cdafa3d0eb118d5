from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import msgspec
from pydantic import Field, model_validator

from trunkline.core.errors import Invalid
from trunkline.core.secret import ConnectionString
from trunkline.routes.ends import Place, Sending
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel, TemplateTree
from trunkline.routes.paths import compile_tree
from trunkline.routes.plugin import Around, Runs, SenderPlugin
from trunkline.routes.senders.prepared import json_of


class PostgresSenderConfig(RouteModel):
    """A row of a table for each event, each value by a template. Without columns the payload itself is the row: its keys are
    the columns, and a column that it does not have gets its default.

    The database converts values to its columns' types; lists and maps fit into arrays and `jsonb`. A row that it does not take
    is refused alone. Rows of one call are one transaction."""

    database: ConnectionString | None = Field(
        default=None, examples=["secret://warehouse.dsn"], description="a connection string; none: the site's own database"
    )
    table: str = Field(
        min_length=1,
        max_length=127,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$",
        examples=["public.alarm"],
        description="the table's name, with its schema if it is not on the search path",
    )
    columns: dict[str, TemplateTree] = Field(
        default_factory=dict, examples=[{"id": "{payload.id}"}], description="columns, with the templates of their values"
    )
    key: tuple[str, ...] = Field(
        default=(),
        examples=[["id"]],
        description="columns of a unique key: a row that is there is replaced; none: insert",
    )

    @model_validator(mode="after")
    def _key_is_among_the_columns(self) -> Self:
        strange = [name for name in self.key if self.columns and name not in self.columns]
        if strange:
            raise ValueError(f"key: {', '.join(strange)} is not among the columns, write a template for it")
        return self


class Row(msgspec.Struct, frozen=True):
    """`row`: JSON of column → value. `key`: JSON of what its key has, where there is a key."""

    columns: tuple[str, ...]
    row: str
    key: str = ""


def compile_row(config: PostgresSenderConfig, around: Around) -> Callable[[Event], Row]:
    columns = compile_tree(config.columns, around.constants) if config.columns else None
    what = f"row for {config.table}"

    def send(event: Event) -> Row:
        row = event.payload if columns is None else columns(event)
        _check(what, row, config.key)
        key = json_of(what, [row[name] for name in config.key]) if config.key else ""
        return Row(tuple(sorted(row)), json_of(what, row), key)

    return send


def _check(what: str, row: Any, key: tuple[str, ...]) -> None:
    if not isinstance(row, dict) or not row:
        raise Invalid(what, "the payload is not a map with values", "send an event that is one, or give columns")
    missing = [name for name in key if row.get(name) is None]
    if missing:
        raise Invalid(what, f"the key {', '.join(missing)} has no value", "send an event with the key")
    if any(not name or "\0" in name for name in row):
        raise Invalid(what, "a key of the payload is no name of a column", "send an event whose keys are the columns")


async def _open(config: PostgresSenderConfig, place: Place) -> Sending:
    from trunkline.routes.senders.postgres_sending import PostgresSending

    return await PostgresSending.open(config, place)


POSTGRES = SenderPlugin("postgres", PostgresSenderConfig, Runs.BOTH, compile_row, Row, _open, once=True, spread=True)

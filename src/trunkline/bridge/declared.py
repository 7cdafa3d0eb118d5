"""Further bundle types, declared in YAML by the user, who also makes their tables.

    types:
      - name: certificates
        mode: complete                  # complete: all a site has; append: what is added
        priority: 30                    # smaller goes first
        depends_on: managed-clusters    # with `match: exact` or `at_least`; or nothing
        table: inventory.certificate    # with the columns site and updated_at, and a unique key of site and `key`
        key: [name]
        columns:                        # from where in an object of the bundle; a column's own name, if it is not said
          name: {type: text, path: metadata.name}
          expires: {type: timestamptz, path: status.notAfter, optional: true}
        missing: gone                   # or kept: what it means that a row is not in the bundle

A `handler` is the name of an entry point of the group `trunkline.bridge.handlers`: an object, or its class, with the `write`
of `trunkline.bridge.handler`. It may take any mode, and knows its tables itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, cast

import psycopg
from pydantic import AfterValidator
from pydantic import Field as Described

from trunkline.bridge.handler import Handler
from trunkline.bridge.mapped import MappedRows
from trunkline.bridge.payload import Field
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import BundleType, Match, Missing
from trunkline.core.bundle import Mode
from trunkline.core.document import read_document
from trunkline.core.errors import Invalid, Terminal
from trunkline.core.ids import check_name
from trunkline.core.layers import Layers
from trunkline.core.mistakes import Mistake, Mistakes
from trunkline.core.reasons import checked, examine
from trunkline.core.scalars import Whole
from trunkline.core.section import Model

GROUP = "trunkline.bridge.handlers"
_NEXT = "mend these, then: trunkline bridge types"
_OWN = ("site", "updated_at")
_NAME = r"[a-z_][a-z0-9_]*"


def _like(pattern: str, what: str, why: str, next_step: str) -> AfterValidator:
    def check(text: str) -> None:
        if not re.fullmatch(pattern, text):
            raise Invalid(f"{what} {text!r}", why, next_step)

    return checked(check)


TypeName = Annotated[str, checked(lambda name: check_name("bundle type", name))]
TableName = Annotated[
    str, _like(rf"{_NAME}\.{_NAME}", "table", "it is not <schema>.<name>", "write it as inventory.certificate")
]
ColumnName = Annotated[str, _like(_NAME, "column", "it is no plain name", "use small letters, digits and _")]
SqlType = Annotated[
    str,
    _like(
        rf"{_NAME}(\.{_NAME})?( [a-z]+)*(\([0-9]+(, ?[0-9]+)?\))?(\[\])?",
        "type",
        "it is no type of Postgres",
        "write one, such as text, bigint, timestamptz or jsonb",
    ),
]


class Column(Model):
    type: SqlType = Described(examples=["text"], description="its type in Postgres")
    path: str = Described(default="", description="where in an object, with dots; none: under the column's name")
    optional: bool = Described(default=False, description="where it is missing or empty, the row has none")

    def field(self, name: str) -> Field:
        return Field(tuple((self.path or name).split(".")), nullable=self.optional)


class Declaration(Model):
    name: TypeName
    mode: Mode
    priority: Whole = Described(default=100, ge=0)
    depends_on: TypeName | None = None
    match: Match = Match.AT_LEAST
    group: str = ""
    table: TableName = Described(examples=["inventory.certificate"])
    more_tables: tuple[TableName, ...] = ()
    key: tuple[str, ...] = ()
    columns: dict[ColumnName, Column] = Described(default_factory=dict)
    missing: Missing = Missing.KEPT
    handler: str = ""

    def build(self) -> BundleType:
        """Raises `Invalid` for a handler that is not to be had."""
        return BundleType(
            name=self.name,
            priority=self.priority,
            depends_on=self.depends_on,
            mode=self.mode,
            table=self.table,
            key=self.key,
            columns=tuple((name, column.type) for name, column in self.columns.items()),
            missing=self.missing,
            match=self.match,
            group=self.group,
            handler=load_handler(self.handler) if self.handler else self._mapped(),
            more_tables=self.more_tables,
        )

    def _mapped(self) -> MappedRows:
        return MappedRows(tuple(column.field(name) for name, column in self.columns.items()))


class File(Model):
    types: tuple[Declaration, ...]


def load_handler(name: str) -> Handler:
    found = {one.name: one for one in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise Invalid(f"handler {name!r}", f"no installed package offers it under {GROUP}", f"offered are: {known}")
    try:
        loaded: Any = found[name].load()
        handler: Any = loaded() if inspect.isclass(loaded) else loaded
    except Exception as error:
        raise Invalid(f"handler {name!r}", f"{found[name].value} cannot be loaded: {error}", "mend its package") from error
    if not callable(getattr(handler, "write", None)):
        raise Invalid(f"handler {name!r}", f"{found[name].value} has no write()", "let it be a Handler of trunkline.bridge")
    return cast(Handler, handler)


def read_types(files: Iterable[str | Path]) -> list[BundleType]:
    """All that the files declare, in their order; raises `Mistakes` with the file and the line of each."""
    sources = [(path, *_read(path)) for path in map(Path, files)]
    bases = {one.name: one.depends_on for _, _, file in sources for one in file.types}
    bases |= {one.name: one.depends_on for one in SHIPPED.values()}
    built: list[BundleType] = []
    for path, layers, file in sources:
        mistakes = layers.twice()
        for number, one in enumerate(file.types):
            wrong = list(_wrong(one, bases, {*SHIPPED, *(before.name for before in built)}))
            mistakes += [_at(layers, number, one, *said) for said in wrong]
            if not wrong:
                built += _built(layers, number, one, mistakes)
        if mistakes:
            raise Mistakes(f"bundle types {path}", mistakes, _NEXT)
    return built


def _read(path: Path) -> tuple[Layers, File]:
    what = f"bundle types {path}"
    layers = Layers(read_document(path, what, "name an existing file under bridge.types"))
    file, mistakes = examine(File, layers)
    if file is None:
        raise Mistakes(what, mistakes + layers.twice(), _NEXT)
    return layers, file


def _at(layers: Layers, number: int, one: Declaration, key: str, reason: str, next_step: str) -> Mistake:
    return Mistake(*layers.place(("types", number, key)), f"types[{number}]({one.name}).{key}", reason, next_step)


def _built(layers: Layers, number: int, one: Declaration, mistakes: list[Mistake]) -> list[BundleType]:
    try:
        return [one.build()]
    except Invalid as error:
        mistakes.append(_at(layers, number, one, "handler", error.why, error.next_step))
        return []


def _wrong(one: Declaration, bases: Mapping[str, str | None], taken: set[str]) -> Iterable[tuple[str, str, str]]:
    """What each field for itself cannot show: (key, why, next step)."""
    if one.name in taken:
        yield "name", f"{one.name} is declared already", "give it another name"
    if one.depends_on is not None and one.depends_on not in bases:
        yield "depends_on", f"no type is called {one.depends_on}", f"name one of {', '.join(sorted(bases))}"
    if ring := _ring(one.name, bases):
        yield "depends_on", f"{' depends on '.join(ring)}: none could ever be first", "let one of them depend on nothing"
    if one.depends_on is None and one.match is Match.EXACT:
        yield "match", "it depends on nothing", "say what on, with depends_on"
    if one.handler:
        return
    if one.mode.is_ordered:
        yield "mode", f"{one.mode} bundles need a handler of their own", "name a handler, or let it be complete or append"
    if one.mode is Mode.APPEND and one.missing is Missing.GONE:
        yield "missing", "an append bundle never has all rows", "let it be kept"
    if not one.columns:
        yield "columns", "there are none", "say which columns its rows have"
    yield from _wrong_columns(one)


def _ring(name: str, bases: Mapping[str, str | None]) -> list[str]:
    """From the type back to itself, if that is where its bases lead."""
    way, base = [name], bases.get(name)
    while base is not None and base not in way:
        way.append(base)
        base = bases.get(base)
    return [*way, name] if base == name else []


def _wrong_columns(one: Declaration) -> Iterable[tuple[str, str, str]]:
    for name in one.columns:
        if name in _OWN:
            yield "columns", f"the bridge fills {name} by itself", "leave it out"
    for name in one.key:
        if name not in one.columns:
            yield "key", f"{name} is no column", "name columns of this type"
        elif one.columns[name].optional:
            yield "key", f"{name} is optional", "a key must always be there"
    if one.mode is Mode.APPEND and not one.key:
        yield "key", "without one, rows cannot be told apart", "name the columns that tell them apart"


_COLUMNS = """
SELECT a.attname FROM pg_attribute AS a
 WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""
_UNIQUE = """
SELECT 1 FROM pg_index AS i
 WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
   AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text)
          FROM pg_attribute AS a WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)) = %s::text[]
"""


def check_tables(conn: psycopg.Connection[Any], declared: Iterable[BundleType]) -> None:
    """At start: that all tables are there with the columns that are written; raises `Terminal` with all that is missing."""
    wrong = [said for one in declared for said in _lacking(conn, one)]
    if wrong:
        raise Terminal("tables of bundle types", "; ".join(wrong), "make them in the hub's database, then start again")


def _lacking(conn: psycopg.Connection[Any], declared: BundleType) -> Iterable[str]:
    for table in declared.tables:
        present = {name for (name,) in conn.execute(_COLUMNS, (table,)).fetchall()}
        wanted = (*_OWN, *declared.names) if isinstance(declared.handler, MappedRows) else ("site",)
        if not present:
            yield f"{declared.name} needs a table {table}, which is not there"
        elif missing := [name for name in wanted if name not in present]:
            yield f"{declared.name} needs the columns {', '.join(missing)} in {table}, which has none of that name"
        elif isinstance(declared.handler, MappedRows) and not _is_unique(conn, declared):
            yield f"{declared.name} needs a unique key ({', '.join(('site', *declared.key))}) of {table}"


def _is_unique(conn: psycopg.Connection[Any], declared: BundleType) -> bool:
    return conn.execute(_UNIQUE, (declared.table, sorted(("site", *declared.key)))).fetchone() is not None

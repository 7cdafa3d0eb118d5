"""Bundle types that users declare: read from YAML, refused with the file and the line, written as the shipped ones are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fleet_words import part, work

from trunkline.bridge import declared
from trunkline.bridge.declared import check_tables, read_types
from trunkline.bridge.handler import Work, Written
from trunkline.bridge.types import BundleType, Match, Missing
from trunkline.core.bundle import Mode
from trunkline.core.errors import Invalid, Terminal
from trunkline.core.mistakes import Mistakes

CERTIFICATES = """\
types:
  - name: certificates
    mode: complete
    priority: 30
    depends_on: managed-clusters
    match: exact
    group: security
    table: inventory.certificate
    key: [name, space]
    columns:
      name: {type: text, path: metadata.name}
      space: {type: text, path: metadata.namespace}
      expires: {type: timestamptz, path: status.notAfter, optional: true}
      days: {type: bigint}
      labels: {type: jsonb, path: metadata.labels, optional: true}
    missing: gone
  - name: scans
    mode: append
    table: inventory.scan
    key: [id]
    columns: {id: {type: text}, score: {type: 'numeric(5, 2)'}}
"""
TABLES = """
CREATE SCHEMA inventory;
CREATE TABLE inventory.certificate (
    site text, name text, space text, expires timestamptz, days bigint, labels jsonb, updated_at timestamptz NOT NULL,
    PRIMARY KEY (site, name, space)
);
CREATE TABLE inventory.scan (site text, id text, score numeric(5, 2), updated_at timestamptz NOT NULL, UNIQUE (id, site));
"""


@pytest.fixture
def declare(tmp_path: Path) -> Callable[[str], list[BundleType]]:
    def read(text: str, name: str = "types.yaml") -> list[BundleType]:
        file = tmp_path / name
        file.write_text(text)
        return read_types([str(file)])

    return read


@pytest.fixture
def conn(make_database: Callable[..., str]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(make_database()) as conn:
        yield conn


Declare = Callable[[str], list[BundleType]]


def test_all_of_a_declaration_is_in_the_type(declare: Declare) -> None:
    certificates, scans = declare(CERTIFICATES)
    assert (certificates.name, certificates.mode, certificates.priority) == ("certificates", Mode.COMPLETE, 30)
    assert (certificates.depends_on, certificates.match, certificates.group) == ("managed-clusters", Match.EXACT, "security")
    assert (certificates.tables, certificates.key) == (("inventory.certificate",), ("name", "space"))
    assert certificates.missing is Missing.GONE
    assert certificates.columns[-1] == ("labels", "jsonb")
    assert (scans.mode, scans.missing, scans.depends_on) == (Mode.APPEND, Missing.KEPT, None)


def _certificate(name: str, days: int, **more: Any) -> Any:
    return {"metadata": {"name": name, "namespace": "ns"} | more, "status": {"notAfter": "2026-05-01T00:00:00Z"}, "days": days}


def test_bundles_of_declared_types_are_written_like_any_others(declare: Declare, conn: psycopg.Connection[Any]) -> None:
    conn.execute(TABLES)
    certificates, scans = declare(CERTIFICATES)
    check_tables(conn, [certificates, scans])
    first = [_certificate("a", 1, labels={"x": "y"}), _certificate("b", 2) | {"status": None}]
    written = _write(conn, certificates, work("h1", part(first)), work("h2", part(first[:1])))
    assert written == {"h1": Written(2, 2), "h2": Written(1, 1)}
    written = _write(conn, certificates, work("h1", part([_certificate("a", 1, labels={"x": "y"}), _certificate("c", 3)])))
    assert written == {"h1": Written(2, 2)}  # c comes, b goes, a stays as it is
    rows = conn.execute("SELECT site, name, days, labels, expires IS NULL FROM inventory.certificate ORDER BY 1, 2").fetchall()
    assert rows == [
        ("h1", "a", 1, {"x": "y"}, False), ("h1", "c", 3, None, False), ("h2", "a", 1, {"x": "y"}, False),
    ]  # fmt: skip
    scan = {"id": "s1", "score": 1.25}
    assert _write(conn, scans, work("h1", part([scan]), part([scan, {"id": "s2", "score": 2}]))) == {"h1": Written(3, 2)}
    with pytest.raises(Invalid, match=r"field metadata.name of row 0 of certificates: it is missing or empty"):
        _write(conn, certificates, work("h1", part([{"metadata": {}, "days": 1}])))


def _write(conn: psycopg.Connection[Any], one: BundleType, *works: Work) -> dict[str, Written]:
    assert one.handler is not None
    written = dict(one.handler.write(conn, one, works))
    conn.commit()
    return written


@pytest.mark.parametrize(
    ("change", "line", "key", "reason"),
    [
        (("mode: complete", "mode: compleat"), 3, "mode", "compleat"),
        (("priority: 30", "priority: soon"), 4, "priority", ""),
        (("depends_on: managed-clusters", "depends_on: clouds"), 5, "depends_on", "no type is called clouds"),
        (("depends_on: managed-clusters", "depends_on: certificates"), 5, "depends_on", "certificates depends on certificates"),
        (("depends_on: managed-clusters", "depends_on: null"), 6, "match", "it depends on nothing"),
        (("table: inventory.certificate", "table: certificate; drop"), 8, "table", "it is not <schema>.<name>"),
        (("key: [name, space]", "key: [name, place]"), 9, "key", "place is no column"),
        (("key: [name, space]", "key: [name, expires]"), 9, "key", "expires is optional"),
        (("{type: bigint}", "{type: 'bigint); drop'}"), 14, "columns.days.type", "it is no type of Postgres"),
        (("{type: bigint}", "{typ: bigint}"), 14, "columns.days.typ", "no such key"),
        (("      days:", "      site:"), 10, "columns", "the bridge fills site by itself"),
        (("name: certificates", "name: heartbeat"), 2, "name", "heartbeat is declared already"),
        (("name: scans", "name: certificates"), 17, "name", "certificates is declared already"),
        (("mode: append", "mode: delta"), 18, "mode", "delta bundles need a handler of their own"),
        (("    key: [id]\n", ""), 17, "key", "rows cannot be told apart"),
        (("    key: [id]\n", "    key: [id]\n    missing: gone\n"), 21, "missing", "an append bundle never has all rows"),
        (("    group: security", "    grup: security"), 7, "grup", ""),
        (("    group: security", "    handler: nobody"), 7, "handler", "no installed package offers it"),
        (("    group: security", "    name: other"), 7, "name", "written twice"),
    ],
)
def test_a_mistake_names_the_file_the_line_and_the_key(
    declare: Declare, tmp_path: Path, change: tuple[str, str], line: int, key: str, reason: str
) -> None:
    assert change[0] in CERTIFICATES
    with pytest.raises(Mistakes) as found:
        declare(CERTIFICATES.replace(*change, 1))
    said = str(found.value)
    places = [(one.line, one.key) for one in found.value.mistakes]
    assert any(at == line and of.endswith(key) for at, of in places), said
    assert f"{tmp_path / 'types.yaml'}:{line}" in said
    assert reason in said
    assert "next: mend these" in said


def test_a_file_that_is_not_there_or_is_no_yaml_is_named(declare: Declare, tmp_path: Path) -> None:
    with pytest.raises(Mistakes, match=r"none\.yaml"):
        read_types([tmp_path / "none.yaml"])
    with pytest.raises(Mistakes, match=r"types\.yaml:2"):
        declare("types:\n  - [")


def test_types_of_two_files_know_each_other(tmp_path: Path) -> None:
    one = "types: [{name: a, mode: append, depends_on: b, table: x.a, key: [id], columns: {id: {type: text}}}]"
    (tmp_path / "a.yaml").write_text(one)
    (tmp_path / "b.yaml").write_text(one.replace("name: a", "name: b").replace("depends_on: b, ", ""))
    assert [one.name for one in read_types([tmp_path / "a.yaml", tmp_path / "b.yaml"])] == ["a", "b"]


def test_types_that_depend_on_each_other_in_a_ring_are_refused(tmp_path: Path) -> None:
    one = "types: [{name: a, mode: append, depends_on: b, table: x.a, key: [id], columns: {id: {type: text}}}]"
    (tmp_path / "a.yaml").write_text(one)
    (tmp_path / "b.yaml").write_text(one.replace("name: a", "name: b").replace("depends_on: b", "depends_on: a"))
    with pytest.raises(Mistakes, match="a depends on b depends on a: none could ever be first"):
        read_types([tmp_path / "a.yaml", tmp_path / "b.yaml"])


def test_tables_that_are_not_as_declared_are_named_at_start(declare: Declare, conn: psycopg.Connection[Any]) -> None:
    types = declare(CERTIFICATES)
    with pytest.raises(Terminal, match=r"certificates needs a table inventory\.certificate, which is not there"):
        check_tables(conn, types)
    conn.execute(TABLES)
    conn.execute("ALTER TABLE inventory.certificate DROP COLUMN days")
    conn.execute("ALTER TABLE inventory.scan DROP CONSTRAINT scan_id_site_key")
    with pytest.raises(Terminal) as found:
        check_tables(conn, types)
    assert "certificates needs the columns days in inventory.certificate" in str(found.value)
    assert "scans needs a unique key (site, id) of inventory.scan" in str(found.value)


class Recorder:
    """As a user's package would have it."""

    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        return {one.site: Written(len(one.parts), 0) for one in work}


OFFERED = """
types:
  - {name: drift, mode: delta, depends_on: policies, match: exact, table: bridge.site, handler: %s}
"""


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    found = EntryPoints(
        EntryPoint(name, value, declared.GROUP)
        for name, value in (("recorder", f"{here}:Recorder"), ("text", f"{here}:OFFERED"), ("gone", "no_such_package:X"))
    )
    monkeypatch.setattr(declared, "entry_points", lambda group: found.select(group=group))


@pytest.mark.usefixtures("offered")
def test_a_handler_of_an_entry_point_takes_any_mode(declare: Declare) -> None:
    [drift] = declare(OFFERED % "recorder")
    assert drift.mode is Mode.DELTA
    assert isinstance(drift.handler, Recorder)


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(
    ("name", "why"), [("text", r"has no write\(\)"), ("gone", "cannot be loaded: No module"), ("none", "gone, recorder, text")]
)
def test_a_handler_that_is_none_is_refused_at_its_line(declare: Declare, name: str, why: str) -> None:
    with pytest.raises(Mistakes, match=why):
        declare(OFFERED % name)

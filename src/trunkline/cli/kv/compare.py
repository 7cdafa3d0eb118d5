"""`trunkline kv compare`: whether all nodes of an area have the same."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import (
    NO,
    AreaOption,
    BothOption,
    OriginatorOption,
    PatternOption,
    PrefixOption,
    TokenOption,
    UrlOption,
    filters,
)
from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from trunkline.cli.kv.differences import Difference, Hashes

AT_ONCE = 16
MOST_LINES = 200


@dataclass(frozen=True)
class Report:
    hashes: dict[str, Hashes]
    """Of each node that answered."""
    silent: dict[str, str]
    """Node → why it said nothing."""
    found: list[Difference]

    @property
    def equal(self) -> bool:
        return not self.found and not self.silent


def compare(
    url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet",
    node: Annotated[list[str], typer.Option("--node", help="API of a node to compare; may be repeated.",
                                            show_default="all that the store knows", metavar="URL")] = [],  # noqa: B006
    prefix: PrefixOption = [], key: PatternOption = [], originator: OriginatorOption = [], both: BothOption = False,  # noqa: B006
    settle: Annotated[float, typer.Option(min=0.0, help="Seconds after which what differs is looked at once more.")] = 1.0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Compares what all nodes of an area have: 0 when all have the same, 1 when a key differs or a node does not answer.

    Example: [bold]trunkline kv compare --node http://127.0.0.1:8400 --node http://127.0.0.1:8401[/]
    """
    nodes = {one: one for one in node} or nodes_of(url, token, area)
    wanted = filters(prefix, key, originator, both)
    report = examine(nodes, token, area, wanted)
    if report.found and settle:
        time.sleep(settle)  # what was on its way has arrived
        report = examine(nodes, token, area, wanted)
    if as_json:
        shown.print_json(_document(report))
    else:
        _tell(report, area)
    raise typer.Exit(0 if report.equal else NO)


def nodes_of(url: str | None, token: str | None, area: str) -> dict[str, str]:
    """Node → where its API is, perhaps unknown, out of the nodes' own records in the store."""
    from trunkline.cli.kv.client import Client, at
    from trunkline.core.ids import NodeId
    from trunkline.node.sitecore import NODE_RECORDS, NODES, NodeRecord

    def is_in(name: str, record: NodeRecord) -> bool:
        return area in ("fleet", f"site:{NodeId.parse(name).site}", *record.areas)

    with Client(url, token) as client:
        client.ask("GET", at(area, "summary"))
        found = dict(client.pages(at("fleet"), "values", {"prefix": NODES}))
    records = {key.removeprefix(NODES): NODE_RECORDS.decode(shown.data_of(value)) for key, value in found.items()}
    return {name: record.api for name, record in records.items() if is_in(name, record)}


def examine(nodes: dict[str, str], token: str | None, area: str, wanted: dict[str, Any]) -> Report:
    from trunkline.cli.kv.differences import differences
    from trunkline.core.errors import TrunklineError

    hashes: dict[str, Hashes] = {}
    silent: dict[str, str] = {}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = {name: threads.submit(_hashes, api, token, area, wanted) for name, api in nodes.items()}
        for name, answer in asked.items():
            try:
                hashes[name] = answer.result()
            except TrunklineError as error:
                silent[name] = f"{error.what}: {error.why}"
    return Report(hashes, silent, differences(hashes))


def _hashes(api: str, token: str | None, area: str, wanted: dict[str, Any]) -> Hashes:
    from trunkline.cli.kv.client import Client, at
    from trunkline.core.errors import Invalid

    if not api:
        raise Invalid("its API", "its record in the store does not say where that is", "name it with --node")
    with Client(api, token) as client:
        return dict(client.pages(at(area, "hashes"), "hashes", wanted))


def _document(report: Report) -> dict[str, Any]:
    return {
        "equal": report.equal,
        "nodes": {name: {"keys": len(hashes)} for name, hashes in report.hashes.items()}
        | {name: {"error": why} for name, why in report.silent.items()},
        "differences": [asdict(found) for found in report.found],
    }


def _tell(report: Report, area: str) -> None:
    for name, why in report.silent.items():
        typer.echo(f"{name} does not answer: {shown.harmless(why)}")
    rows = [(shown.harmless(one.key), one.node, _words(one)) for one in report.found]
    if rows:
        shown.print_table(("key", "node", "there"), rows[:MOST_LINES])
    if len(rows) > MOST_LINES:
        typer.echo(f"… and {len(rows) - MOST_LINES} more lines; --json has all")
    keys, differing = len({k for hashes in report.hashes.values() for k in hashes}), len({one.key for one in report.found})
    silent = f", {len(report.silent)} without an answer" if report.silent else ""
    verdict = f"{differing} differ" if differing else "all the same"
    typer.echo(f"{area}: {keys} keys at {len(report.hashes)} nodes{silent}: {verdict}")


def _words(one: Difference) -> str:
    if one.what == "older":
        return f"older: version {one.version} of {one.originator}, the best is {one.best}"
    return one.what if one.version is None else f"{one.what}, version {one.version} of {one.originator}"

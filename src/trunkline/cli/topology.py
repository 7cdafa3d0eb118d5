"""`trunkline topology`: who takes whose records from whom, by which path, and why."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO, TokenOption, UrlOption
from trunkline.cli.options import JsonOption

app = typer.Typer(
    no_args_is_help=True,
    help="""Who takes whose records from whom. Every site decides for itself; any node can be asked.

Say once which node to ask: [bold]export TRUNKLINE_API_URL=http://127.0.0.1:8400[/]""",
)
Row = dict[str, Any]
UNKNOWN = "–"
_MANNERS = {
    "first": "there was no path before",
    "forced": "the path before was lost",
    "gentle": "a better path came up",
    "voluntary": "a better path came up",
    "watchdog": "the neighbour before stood still",
}


@app.callback()
def _group() -> None: ...


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    sites: list[str]
    """Whose rows these are."""
    asked: list[str] = field(default_factory=list)
    """Of these: published none, and their nodes were asked."""
    missing: dict[str, str] = field(default_factory=dict)
    """Site → why there is nothing of it."""


def _complete_site(context: typer.Context, incomplete: str) -> list[str]:
    """Nothing to offer is no error: the shell must not show one."""
    from trunkline.cli.kv.client import Client
    from trunkline.core.errors import TrunklineError

    try:
        with Client(context.params.get("url"), context.params.get("token")) as client:
            table = client.ask("GET", "/v1/topology/table")
    except TrunklineError:
        return []
    return sorted(site for site in {*table["sites"], *table["missing"]} if site.startswith(incomplete))


def _sites(flag: str, about: str) -> Any:
    return typer.Option(flag, help=f"{about}; may be repeated.", autocompletion=_complete_site)


SubscribersOption = Annotated[list[str], _sites("--subscriber", "Only what this site takes")]
SourcesOption = Annotated[list[str], _sites("--source", "Only who takes this site's records")]


# -- table


@app.command("table")
def table(
    url: UrlOption = None, token: TokenOption = None,
    subscriber: SubscribersOption = [], source: SourcesOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The whole table: who takes whose records from which neighbour, over how many links.

    Sites publish their rows while the fleet is small; the nodes of those that did not are asked, many at a time.

    Example: [bold]trunkline topology table --source hub[/]
    """
    found = whole_table(url, token, frozenset(subscriber), frozenset(source))
    if as_json:
        shown.print_json(asdict(found))
        return
    shown.print_table(*table_of(found.rows, grouped=sys.stdout.isatty()))
    for line in remarks(found):
        typer.echo(line)


def whole_table(
    url: str | None, token: str | None, subscribers: frozenset[str], sources: frozenset[str] = frozenset()
) -> Table:
    """Of these subscribers and sources; none named: of all."""
    from trunkline.cli.kv.client import Client
    from trunkline.cli.kv.compare import nodes_of
    from trunkline.cli.leaders import leaders

    with Client(url, token) as client:
        told = client.ask("GET", "/v1/topology/table")
    known = {*told["sites"], *told["missing"]}
    _check_known(subscribers | sources, known)
    wanted = subscribers or known
    missing = wanted & set(told["missing"])
    found, silent = leaders(missing, nodes_of(url, token, "fleet"), token) if missing else ({}, {})
    rows = [*told["rows"], *(row for one in found.values() for row in one.topology["rows"])]
    rows = [row for row in rows if row["subscriber"] in wanted and (not sources or row["source"] in sources)]
    rows.sort(key=lambda row: (row["subscriber"], row["source"]))
    return Table(rows, sorted(wanted & {*told["sites"], *found}), sorted(found), silent)


def _check_known(wanted: frozenset[str], known: set[str]) -> None:
    from trunkline.core.errors import Invalid

    if unknown := sorted(wanted - known):
        raise Invalid(f"site {unknown[0]!r}", "nobody told of it", f"name one of: {', '.join(sorted(known))}")


def table_of(rows: list[Row], grouped: bool) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and lines. `grouped`: a subscriber is named only in its first line. Cost and flags only where there are some."""
    with_cost, with_flags = any(row["cost"] != row["depth"] for row in rows), any(row["flags"] for row in rows)
    columns = ("Subscriber", "Source", "Via", "Depth", *(("Cost",) * with_cost), *(("Flags",) * with_flags))
    lines, before = [], ""
    for row in rows:
        name = "" if grouped and row["subscriber"] == before else row["subscriber"]
        before = row["subscriber"]
        more = (*((str(row["cost"]),) * with_cost), *((", ".join(row["flags"]),) * with_flags))
        lines.append((name, row["source"], row["via"], str(row["depth"]), *more))
    return columns, lines


def remarks(table: Table) -> list[str]:
    lines = [f"{site} published no rows, and none can be had: {shown.harmless(why)}" for site, why in table.missing.items()]
    if table.asked:
        lines.append(f"published no rows; a node of theirs was asked: {', '.join(table.asked)}")
    subscribers = {row["subscriber"] for row in table.rows}
    if empty := [site for site in table.sites if site not in subscribers]:
        lines.append(f"no row of: {', '.join(empty)}")
    return ["", *lines] if lines else []


# -- paths


@app.command("paths")
def paths(
    site: Annotated[str | None, typer.Argument(metavar="SITE", help="Whose paths.", show_default="the asked node's site",
                                               autocompletion=_complete_site)] = None,
    url: UrlOption = None, token: TokenOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """By which path a site takes every other site's records, what it costs, and since when.

    A path is read from the one who takes to the one who wrote. An age is known where the site's own leader answers.

    Example: [bold]trunkline topology paths paris[/]
    """
    rows = _rows_of(site, url, token)
    if as_json:
        shown.print_json({"paths": [{**row, "path": [row["subscriber"], *row["path"]]} for row in rows]})
        return
    lines = [
        (row["source"], path_of(row), str(row["cost"]), age(row["since_seconds"]), ", ".join(row["flags"])) for row in rows
    ]
    several = any(line[-1] for line in lines)
    columns = ("source", "path", "cost", "age", "flags")
    shown.print_table(columns if several else columns[:-1], lines if several else [line[:-1] for line in lines])


def _rows_of(site: str | None, url: str | None, token: str | None) -> list[Row]:
    """From the site's own leader, who knows how old a row is; else as they were published."""
    from trunkline.cli.kv.compare import nodes_of
    from trunkline.cli.leaders import leader, leaders

    if site is None:
        here = leader(url, token).topology
        rows, leads, site = here["rows"], here["leads"], here["site"]
    else:
        found, _ = leaders({site}, nodes_of(url, token, "fleet"), token)
        rows, leads = (found[site].topology["rows"], True) if site in found else ([], False)
    if not leads:
        rows = whole_table(url, token, frozenset({site})).rows
    return sorted(rows, key=lambda row: (row["depth"], row["source"]))


def path_of(row: Row) -> str:
    return " → ".join((row["subscriber"], *row["path"]))


def age(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else shown.ttl(round(seconds * 1000))


# -- why


@app.command("why")
def why(
    site: Annotated[str, typer.Argument(metavar="SITE", help="Whose records.", autocompletion=_complete_site)],
    url: UrlOption = None, token: TokenOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Why the node's site takes that site's records from this neighbour: 0 when it takes them, 1 when from nobody.

    Example: [bold]trunkline topology why lyon[/]
    """
    from urllib.parse import quote

    from trunkline.cli.kv.client import Client
    from trunkline.cli.leaders import leader

    here = leader(url, token)
    with Client(here.url, token) as client:
        found = client.ask("GET", f"/v1/topology/why/{quote(site, safe='').replace('.', '%2E')}")
    if as_json:
        shown.print_json(found)
    else:
        for line in sentences(here.topology["site"], found):
            typer.echo(line)
        _print_candidates(found["candidates"])
    raise typer.Exit(0 if found["row"] else NO)


def sentences(site: str, why: dict[str, Any]) -> list[str]:
    whom = why["row"]["via"] if why["row"] else "nobody"
    lines = [f"{site} takes {why['source']}'s records from {whom}: {shown.harmless(why['reason']).rstrip('.')}."]
    if why["row"]:
        manner = _MANNERS.get(why["manner"], why["manner"])
        lines.append(f"It has been so for {age(why['since_seconds'])}: {manner}. The path is {path_of(why['row'])}.")
    return lines


def _print_candidates(candidates: list[dict[str, Any]]) -> None:
    if not candidates:
        return
    typer.echo("")
    columns = ("", "via", "link", "depth", "cost", "path", "told path", "has", "note")
    shown.print_table(columns, [_candidate(one) for one in candidates])


def _candidate(one: dict[str, Any]) -> tuple[str, ...]:
    numbers = [UNKNOWN if one[what] is None else str(one[what]) for what in ("depth", "cost", "cursor")]
    path = " → ".join(one["path"]) or UNKNOWN
    link, told = "up" if one["connected"] else "down", "reaches it" if one["chain"] else "does not"
    return ("*" if one["chosen"] else "", one["via"], link, *numbers[:2], path, told, numbers[2], shown.harmless(one["note"]))

"""`trunkline routes ls`, `show`, `status` and `rm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO, TokenOption, UrlOption
from trunkline.cli.options import JsonOption
from trunkline.cli.routes.options import AppOption, OrgOption, WaitOption, YesOption
from trunkline.routes.keys import HOUSE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.cli.kv.client import Client

AllOption = Annotated[bool, typer.Option("--all", help="Of all tenants.")]
RUNS = ("live", "rests", "acked", "loaded")
"""States of a route at an instance that are as they shall be."""


def ls(
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    everybody: AllOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The routes of a tenant: what they join, and when they were last changed.

    Example: [bold]trunkline routes ls --org acme --app shop[/]
    """
    from trunkline.cli.routes.table import address, paged, table_client
    from trunkline.routes.keys import Tenant

    with table_client(url, token) as client:
        found = list(paged(client, "/v1/routes" if everybody else address(Tenant(org, app), "routes"), "items"))
    if as_json:
        shown.print_json({"routes": found})
        return
    if not found:
        typer.echo("no routes")
        return
    columns = ("tenant", "id", "from", "filters", "to", "status", "revision", "changed", "by")
    shown.print_table(columns[not everybody :], [_row(one)[not everybody :] for one in found])


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    chain = ", ".join(str(step.get("plugin")) for step in one.get("filterChain") or ())
    ends = (str(one["receiver"].get("plugin")), shown.shortened(chain or "–", 50), str(one["sender"].get("plugin")))
    tenant = f"{one['tenant']['orgId']}/{one['tenant']['appId']}"
    return (tenant, one["id"], *ends, one["status"], str(one["revision"]), _time(one["modified"]), one.get("userId", ""))


def _time(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def show(
    id: Annotated[str, typer.Argument(metavar="ID")],
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """A route as YAML that can be applied again. Secrets are references or stars; where stars stay, the secret stays.
    It ends with 1 if there is none.

    Example: [bold]trunkline routes show alarms-to-hub > alarms.yaml[/]
    """
    import yaml

    from trunkline.cli.kv.client import Refusal
    from trunkline.cli.routes.table import address, as_written, table_client
    from trunkline.routes.keys import Tenant

    try:
        with table_client(url, token) as client:
            found = client.ask("GET", address(Tenant(org, app), "routes", id))["item"]
    except Refusal as refusal:
        if refusal.slug != "no-such-route":
            raise
        shown.print_refusal(refusal.what, refusal.why, "see `trunkline routes ls`")
        raise typer.Exit(NO) from None
    if as_json:
        shown.print_json(found)
    else:
        typer.echo(yaml.safe_dump(as_written(found), sort_keys=False, allow_unicode=True, width=120), nl=False)


def rm(
    ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    yes: YesOption = False, wait: WaitOption = 30.0, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Removes routes, as one change; what they have taken is finished first. It asks before, unless --yes is given, and ends
    with 1 if one of them was not there.

    Example: [bold]trunkline routes rm old-alarms --yes[/]
    """
    from trunkline.cli.queues.drop import confirm
    from trunkline.cli.routes.applying import verdict_lines
    from trunkline.cli.routes.table import table_client

    confirm("rm", f"remove {len(ids)} routes of {org}/{app}?", yes, as_json)
    tenant = {"orgId": org, "appId": app}
    body = {"changes": [{"remove": {"id": id, "tenant": tenant}} for id in dict.fromkeys(ids)]}
    with table_client(url, token, wait) as client:
        done = client.ask("POST", "/v1/routes/apply", body, {"wait": wait})
    lines, ok = verdict_lines(done)
    if as_json:
        shown.print_json(done)
    else:
        for route in done["routes"]:
            typer.echo(f"{'removed' if route['what'] == 'removed' else 'was not there'}: {shown.harmless(route['id'])}")
        for line in lines if any(route["what"] == "removed" for route in done["routes"]) else ():
            typer.echo(shown.harmless(line.replace("live on", "gone from")))
    raise typer.Exit(0 if ok and all(route["what"] == "removed" for route in done["routes"]) else NO)


def status(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Only these routes.")] = [],  # noqa: B006
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    everybody: AllOption = False, wait: WaitOption = 0.0, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Per route and instance the revision that it has, or why it does not run it. It ends with 0 if every instance has every
    route as it is stored, else with 1; with --wait it waits for that.

    Example: [bold]trunkline routes status alarms-to-hub --wait 30[/]
    """
    from trunkline.cli.routes.table import table_client

    with table_client(url, token) as client:
        found = _standing(client, {} if everybody else {"org": org, "app": app}, ids, wait)
    settled = _settled(found["routes"]) and not _unknown(found["routes"], ids)
    if as_json:
        shown.print_json({**found, "settled": settled})
    else:
        _print_status(found, ids, everybody)
    raise typer.Exit(0 if settled else NO)


def _standing(client: Client, params: dict[str, str], ids: list[str], wait: float) -> dict[str, Any]:
    import time

    until = time.monotonic() + wait
    while True:
        found = _asked(client, params, ids)
        if _settled(found["routes"]) or time.monotonic() >= until:
            return found
        time.sleep(0.1)


def _asked(client: Client, params: dict[str, str], ids: list[str]) -> dict[str, Any]:
    """All pages as one answer."""
    routes: list[dict[str, Any]] = []
    after: str | None = ""
    page: dict[str, Any] = {}
    while after is not None:
        page = client.ask(
            "GET", "/v1/routes/status", params={**params, "after": after, **({"id": ids[0]} if len(ids) == 1 else {})}
        )
        routes += [route for route in page["routes"] if not ids or route["id"] in ids]
        after = page["next"]
    return {"instance": page["instance"], "instances": page["instances"], "ready": page["ready"], "routes": routes}


def _settled(routes: Iterable[dict[str, Any]]) -> bool:
    return all(
        one["state"] in RUNS or (not route["revision"] and not one["revision"])
        for route in routes
        for one in route["instances"]
    )


def _unknown(routes: Iterable[dict[str, Any]], ids: list[str]) -> list[str]:
    known = {route["id"] for route in routes}
    return [id for id in ids if id not in known]


def _print_status(found: dict[str, Any], ids: list[str], everybody: bool) -> None:
    rows = [row for route in found["routes"] for row in _status_rows(route, everybody)]
    if rows:
        shown.print_table(("route", "revision", "instance", "state", "has", "reason"), rows)
    elif not ids:
        typer.echo("no routes")
    for id in _unknown(found["routes"], ids):
        typer.echo(f"there is no route {shown.harmless(id)}")
    good = sum(_settled([{**route, "instances": [one]}]) for route in found["routes"] for one in route["instances"])
    if rows:
        typer.echo(f"{good} of {len(rows)} as they are stored, on {len(found['instances'])} instances")


def _status_rows(route: dict[str, Any], everybody: bool) -> list[tuple[str, ...]]:
    tenant = f"{route['tenant']['orgId']}/{route['tenant']['appId']}/" if everybody else ""
    stored = str(route["revision"]) if route["revision"] else "removed"
    return [
        (tenant + route["id"], stored, one["instance"], one["state"], str(one["revision"] or "–"),
         shown.shortened(one["reason"], 200))
        for one in route["instances"]
    ]  # fmt: skip

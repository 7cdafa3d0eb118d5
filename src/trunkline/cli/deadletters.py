"""`trunkline deadletters`: what no route could bring to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO, TokenOption, UrlOption
from trunkline.cli.options import JsonOption
from trunkline.cli.routes.options import AppOption, OrgOption, YesOption
from trunkline.routes.keys import HOUSE

if TYPE_CHECKING:
    from trunkline.cli.kv.client import Client

app = typer.Typer(
    no_args_is_help=True,
    help="""Events and messages that no route could bring to their end: look at them, try them again, drop them.

Say once which node to ask: [bold]export TRUNKLINE_API_URL=http://127.0.0.1:8400[/]""",
)
IdsArgument = Annotated[list[int], typer.Argument(metavar="[ID]...", help="As `trunkline deadletters ls` shows them.")]
RouteOption = Annotated[str, typer.Option("--route", help="Only those of the route with this id.")]
AllOption = Annotated[bool, typer.Option("--all", help="Of all tenants.")]


@app.callback()
def _group() -> None: ...


@app.command("ls")
def ls(
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    everybody: AllOption = False, route: RouteOption = "",
    limit: Annotated[int, typer.Option(min=1, help="Letters at most, the oldest first.")] = 100,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The dead letters of a tenant: whose they are, where each failed, and why.

    Example: [bold]trunkline deadletters ls --route orders-to-books[/]
    """
    from trunkline.cli.routes.table import table_client

    with table_client(url, token) as client:
        found, more = _listed(client, _where(org, app, everybody, route), limit)
    if as_json:
        shown.print_json({"letters": found, "more": more})
        return
    if not found:
        typer.echo("no dead letters")
        return
    shown.print_table(("id", "route", "failed at", "tries", "given up", "reason"), [_row(one, everybody) for one in found])
    if more:
        typer.echo(f"and more: these are the oldest {limit}")


@app.command("show")
def show(
    id: Annotated[int, typer.Argument(metavar="ID")],
    url: UrlOption = None, token: TokenOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """One dead letter, with what it holds. It ends with 1 if there is none.

    Example: [bold]trunkline deadletters show 7[/]
    """
    from trunkline.cli.routes.table import table_client

    with table_client(url, token) as client:
        found = _asked(client, "GET", id)
    if found is None:
        typer.echo(f"there is no dead letter {id}", err=True)
        raise typer.Exit(NO)
    if as_json:
        shown.print_json(found)
        return
    import yaml

    typer.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), nl=False)


@app.command("replay")
def replay(
    ids: IdsArgument = [],  # noqa: B006
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    route: RouteOption = "", as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Tries dead letters again, those named or all of a route: each goes to the filter or the sender that could not take it, as
    the route is now. One that fails again comes back. It ends with 1 if one was not there.

    Example: [bold]trunkline deadletters replay --route orders-to-books[/]
    """
    _settle("POST", "tried_again", "tried again", (url, token), _where(org, app, False, route), ids, as_json)


@app.command("drop")
def drop(
    ids: IdsArgument = [],  # noqa: B006
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    route: RouteOption = "", yes: YesOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Drops dead letters for ever, those named or all of a route. It asks before, unless --yes is given, and ends with 1 if one
    was not there.

    Example: [bold]trunkline deadletters drop 7 8 --yes[/]
    """
    from trunkline.cli.queues.drop import confirm

    what = f"{len(ids)} dead letters" if ids else f"all dead letters of the route {route}"
    confirm("drop", f"drop {what}?", yes or not (ids or route), as_json)
    _settle("DELETE", "dropped", "dropped", (url, token), _where(org, app, False, route), ids, as_json)


def _settle(
    method: str, key: str, word: str, node: tuple[str | None, str | None], where: dict[str, str], ids: list[int], as_json: bool
) -> None:
    from trunkline.cli.routes.table import table_client
    from trunkline.core.errors import Invalid

    if bool(ids) == bool(where["route"]):
        raise Invalid("dead letters", "it is not said which", "name their ids, or all of a route with --route")
    with table_client(*node) as client:
        named = ids or [one["id"] for one in _listed(client, where, None)[0]]
        done = {id: bool((_asked(client, method, id) or {}).get(key)) for id in named}
    if as_json:
        shown.print_json({"letters": [{"id": id, key: was} for id, was in done.items()]})
    else:
        typer.echo(f"{word}: {sum(done.values())} of {len(done)}")
        for id in (id for id, was in done.items() if not was):
            typer.echo(f"there is no dead letter {id}")
    raise typer.Exit(0 if all(done.values()) else NO)


def _where(org: str, app: str, everybody: bool, route: str) -> dict[str, str]:
    return {**({} if everybody else {"org": org, "app": app}), "route": route}


def _listed(client: Client, where: dict[str, str], limit: int | None) -> tuple[list[dict[str, Any]], bool]:
    """At most so many, and whether there are more; with none, all that are there now."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None and (limit is None or len(found) < limit):
        page = client.ask("GET", "/v1/deadletters", params={**where, "after": after, "limit": min(1000, limit or 1000)})
        found, after = [*found, *page["letters"]], page["next"]
    return found[:limit], after is not None or (limit is not None and len(found) > limit)


def _asked(client: Client, method: str, id: int) -> dict[str, Any] | None:
    """None if there is no such letter."""
    from trunkline.cli.kv.client import Refusal

    try:
        return client.ask(method, f"/v1/deadletters/{id}")
    except Refusal as refusal:
        if refusal.slug != "no-such-dead-letter":
            raise
        return None


def _row(one: dict[str, Any], everybody: bool) -> tuple[str, ...]:
    from datetime import UTC, datetime

    route = f"{one['tenant']['orgId']}/{one['tenant']['appId']}/{one['route']}" if everybody else one["route"]
    at = datetime.fromtimestamp(one["at"], UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return (str(one["id"]), route, one["step"], str(one["tries"]), at, shown.shortened(one["reason"], 120))

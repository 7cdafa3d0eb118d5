"""`trunkline queues`: what waits, who reads, how each session is, and what an operator may do about it."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO
from trunkline.cli.options import JsonOption
from trunkline.cli.queues import lines
from trunkline.cli.queues.drop import app as drop
from trunkline.cli.queues.place import ConfigOption, DsnOption, TokenOption, UrlOption, asked, transaction

app = typer.Typer(
    no_args_is_help=True,
    help="""A site's queues: what waits in them, who reads them, how each session is.

Say whose: by the site's database ([bold]--config site.yaml[/], [bold]--dsn[/], DATABASE_URL); to look, and for
[bold]sync[/], also by the API of one of its nodes ([bold]--url[/], TRUNKLINE_API_URL).""",
)
app.add_typer(drop, name="drop")
MOST_SHOWN = 256


@app.callback()
def _group() -> None: ...


@app.command("ls")
def ls(
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The log and who has how much of it; each receive queue and who reads it; snapshots under way; dead letters.

    Example: [bold]trunkline queues ls --config hub.yaml[/]
    """
    found = asked(config, dsn, url, token).listing()
    if as_json:
        shown.print_json(found)
        return
    for part in lines.listing(found):
        part.print()


@app.command("peek")
def peek(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Its name, as `trunkline queues ls` shows it.")],
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    after: Annotated[int | None, typer.Option(min=0, help="Only what is behind this position.",
                                              show_default="what waits to be read; of the log, the last")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Entries at most.")] = 20,
    most: Annotated[int, typer.Option("--bytes", min=0, max=65_536, help="Of each payload at most.")] = MOST_SHOWN,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Looks into a queue; nothing is taken out.

    Example: [bold]trunkline queues peek LRQ_Recv_orders_paris --limit 5[/]
    """
    found = asked(config, dsn, url, token).entries(queue, after, limit, most)
    if as_json:
        shown.print_json(found)
        return
    for part in lines.entries(found):
        part.print()


@app.command("status")
def status(
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    site: Annotated[str | None, typer.Option(help="Only sessions with this site.")] = None,
    client: Annotated[str | None, typer.Option(help="Only sessions of this client.")] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """How each session is, as source and as destination; and where one stands still, why.

    Example: [bold]trunkline queues status --site paris[/]
    """
    found = asked(config, dsn, url, token).status()["sessions"]
    found = [one for one in found if site in (None, one["remote"]) and client in (None, one["client"])]
    if as_json:
        shown.print_json({"sessions": found})
        return
    for part in lines.sessions(found):
        part.print()


@app.command("sync")
def sync(
    site: Annotated[str | None, typer.Argument(metavar="SITE", help="The site to bring up.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every site that there is a session with.")] = False,
    client: Annotated[str | None, typer.Option(help="Of this client.", show_default="all that have a provider")] = None,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Has a site, or all, brought up by a snapshot of this site's data: once, whatever restarts meanwhile.

    Example: [bold]trunkline queues sync paris --client policy[/]
    """
    from trunkline.core.errors import Invalid

    if (site is None) == (not every):
        raise Invalid("sync", "it is not said for which site", "name one site, or give --all")
    found = asked(config, dsn, url, token).sync(site, client)
    if as_json:
        shown.print_json(found)
        return
    for one in found["requests"]:
        typer.echo(f"asked for a snapshot of {one['client']} for {', '.join(one['destinations'])}: request {one['id']}")
    typer.echo("see how it goes: trunkline queues status")


@app.command("replay")
def replay(
    client: Annotated[str, typer.Argument(metavar="CLIENT")],
    consumer: Annotated[str | None, typer.Argument(metavar="CONSUMER", show_default="all of the client")] = None,
    letter: Annotated[list[int], typer.Option("--id", help="Only this letter; may be repeated.")] = [],  # noqa: B006
    only_list: Annotated[bool, typer.Option("--list", help="Only show them.")] = False,
    config: ConfigOption = None, dsn: DsnOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Gives dead letters to their consumer once more, each alone; what it refuses again stays a dead letter.

    Example: [bold]trunkline queues replay orders ledger --id 17[/]
    """
    from trunkline.cli.queues.letters import listed, replayed

    with transaction(config, dsn) as conn:
        found = listed(conn, client, consumer) if only_list else replayed(conn, client, consumer, letter)
    if as_json:
        shown.print_json({"dead_letters": found})
    elif only_list:
        for part in lines.letters(found):
            part.print()
    else:
        typer.echo(f"{len(found)} dead letters of {client} go back to their consumer when it next looks")


@app.command("verify")
def verify(config: ConfigOption = None, dsn: DsnOption = None, as_json: JsonOption = False) -> None:
    """Whether the queues are as they must be: 0 when they are, else 1 with what is wrong. It reads all that is stored.

    Example: [bold]trunkline queues verify --config hub.yaml[/]
    """
    import msgspec

    from trunkline.queues.verify import RULES
    from trunkline.queues.verify import verify as look

    with transaction(config, dsn) as conn:
        findings = look(conn)
    if as_json:
        shown.print_json({"ok": not findings, "rules": len(RULES), "findings": msgspec.to_builtins(findings)})
    else:
        for finding in findings:
            typer.echo(f"{finding.rule}? no: {shown.harmless(finding.what)}: {shown.harmless(finding.why)}")
        typer.echo(f"{len(findings)} findings" if findings else f"all is well: {len(RULES)} rules hold")
    raise typer.Exit(NO if findings else 0)


@app.command("grant")
def grant(
    client: Annotated[str | None, typer.Argument(metavar="CLIENT", help="'*': every client.", show_default=False)] = None,
    role: Annotated[str | None, typer.Argument(metavar="ROLE", help="Of the database.", show_default=False)] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take it back.")] = False,
    config: ConfigOption = None, dsn: DsnOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Lets a role of the database send under a client's name; without a name, who may.

    Example: [bold]trunkline queues grant orders shop_app[/]
    """
    from trunkline.core.errors import Invalid
    from trunkline.queues import grants

    if (client is None) != (role is None) or (revoke and role is None):
        raise Invalid("grant", "it needs a client and a role", "name both, or neither to see who may send")
    with transaction(config, dsn) as conn:
        if client is not None and role is not None:
            (grants.revoke if revoke else grants.grant)(conn, client, role)
        found = [{"client": one.client, "role": one.role, "since": one.granted_at.isoformat()} for one in grants.grants(conn)]
    if as_json:
        shown.print_json({"grants": found})
        return
    for part in lines.grants(found):
        part.print()

"""`trunkline queues drop`: for consumers, providers and sites that will not come back."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.kv import shown
from trunkline.cli.options import JsonOption
from trunkline.cli.queues.place import ConfigOption, DsnOption, transaction

app = typer.Typer(no_args_is_help=True, help="Lets go of a consumer, a provider or a queue that nobody will need again.")
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")]


@app.callback()
def _group() -> None: ...


@app.command("consumer")
def consumer(
    client: Annotated[str, typer.Argument(metavar="CLIENT")],
    name: Annotated[str, typer.Argument(metavar="CONSUMER")],
    config: ConfigOption = None, dsn: DsnOption = None, yes: YesOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Nothing waits for the consumer any more; its positions and its dead letters go.

    Example: [bold]trunkline queues drop consumer orders ledger[/]
    """
    from trunkline.queues.dropping import drop_consumer

    confirm("drop", f"drop the consumer {name} of client {client}, with its dead letters?", yes, as_json)
    with transaction(config, dsn) as conn:
        done = drop_consumer(conn, client, name)
    if as_json:
        shown.print_json(done)
    else:
        typer.echo(f"dropped the consumer {name} of client {client}, and {done['dead_letters']} dead letters")


@app.command("provider")
def provider(
    client: Annotated[str, typer.Argument(metavar="CLIENT")],
    config: ConfigOption = None, dsn: DsnOption = None, yes: YesOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The client has no snapshots any more; those that are under way are cancelled.

    Example: [bold]trunkline queues drop provider policy[/]
    """
    from trunkline.queues.dropping import drop_provider

    confirm("drop", f"drop the snapshot provider of client {client}?", yes, as_json)
    with transaction(config, dsn) as conn:
        done = drop_provider(conn, client)
    if as_json:
        shown.print_json(done)
    else:
        typer.echo(f"dropped the provider of client {client}; {len(done['cancelled'])} snapshots were cancelled")


@app.command("queue")
def queue(
    name: Annotated[str, typer.Argument(metavar="QUEUE")],
    config: ConfigOption = None, dsn: DsnOption = None, yes: YesOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The receive queue of a site that will not come back goes, with what waits in it. Should the site return, it begins anew.

    Example: [bold]trunkline queues drop queue LRQ_Recv_orders_lyon[/]
    """
    from trunkline.queues.dropping import drop_queue

    confirm("drop", f"drop the queue {name}, with what waits in it?", yes, as_json)
    with transaction(config, dsn) as conn:
        done = drop_queue(conn, name)
    if as_json:
        shown.print_json(done)
    else:
        typer.echo(f"dropped {name}; {done['waiting']} entries had not been read by all")


def confirm(what: str, question: str, yes: bool, as_json: bool) -> None:
    from trunkline.core.errors import Invalid

    if yes:
        return
    if as_json:
        raise Invalid(what, "with --json nobody can be asked whether it is meant", "give --yes as well")
    typer.confirm(shown.harmless(question), abort=True)

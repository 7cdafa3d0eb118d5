"""`trunkline routes top`: which routes have how much to do, now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import TokenOption, UrlOption
from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.cli.routes.rates import Rates

OrgOnly = Annotated[str, typer.Option("--org", help="Only of this organisation, together with --app.", show_default="all")]
AppOnly = Annotated[str, typer.Option("--app", help="Only of this application.", show_default="all")]


def top(
    url: UrlOption = None, token: TokenOption = None, org: OrgOnly = "", app: AppOnly = "",
    every: Annotated[float, typer.Option("--every", min=0.1, max=60, help="Seconds between two looks.")] = 2.0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Routes at most, those that received most.")] = 1000,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and end.")] = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Which routes have how much to do: at the node that is asked, and on Spark at all pipelines of the site; the busiest
    first. A rate needs two looks, so it begins with a pause.

    Example: [bold]trunkline routes top[/]
    """
    import time

    from trunkline.cli.routes.rates import Rates
    from trunkline.cli.routes.table import table_client

    params = {"limit": limit, **({"org": org, "app": app} if org or app else {})}
    rates = Rates()
    with table_client(url, token) as client:

        def look() -> None:
            rates.take(client.ask("GET", "/v1/routes/top", params=params))

        look()
        if once or as_json:
            time.sleep(every)
            look()
            shown.print_json(rates.document()) if as_json else _print(rates)
        else:
            _follow(rates, look, every)


def _follow(rates: Rates, look: Callable[[], None], every: float) -> None:
    import time

    from rich.console import Console
    from rich.live import Live

    from trunkline.cli.routes.toplive import table

    console = Console(highlight=False)
    with Live(console=console, get_renderable=lambda: table(rates, console.height), refresh_per_second=4):
        while True:
            time.sleep(every)
            look()


def _print(rates: Rates) -> None:
    from trunkline.cli.routes.rates import COLUMNS, GROUP_COLUMNS, cells, group_cells

    routes: list[dict[str, Any]] = rates.routes()
    if not routes:
        typer.echo("no routes")
    else:
        shown.print_table(COLUMNS, [cells(one) for one in routes])
    groups = rates.groups()
    if groups:
        typer.echo("")
        shown.print_table(GROUP_COLUMNS, [group_cells(one) for one in groups])

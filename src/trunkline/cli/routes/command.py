"""The commands of `trunkline routes`, put together."""

from __future__ import annotations

import typer

from trunkline.cli.routes import applying, cases, explaining, lint, looking
from trunkline.cli.routes.top import top

app = typer.Typer(
    no_args_is_help=True,
    help="""Routes: receiver, filters, sender. Check, test and explain them without a node; then make a node's table equal to a
folder.

Say once which node to ask: [bold]export TRUNKLINE_API_URL=http://127.0.0.1:8400[/]""",
)
_FILES, _CHANGE, _LOOK = "Without a node", "Change the table", "Look at the table"
app.command("lint", rich_help_panel=_FILES)(lint.lint)
app.command("test", rich_help_panel=_FILES)(cases.run)
app.command("explain", rich_help_panel=_FILES)(explaining.explain)
app.command("apply", rich_help_panel=_CHANGE)(applying.apply)
app.command("diff", rich_help_panel=_CHANGE)(applying.diff)
app.command("rm", rich_help_panel=_CHANGE)(looking.rm)
app.command("ls", rich_help_panel=_LOOK)(looking.ls)
app.command("show", rich_help_panel=_LOOK)(looking.show)
app.command("status", rich_help_panel=_LOOK)(looking.status)
app.command("top", rich_help_panel=_LOOK)(top)


@app.callback()
def _group() -> None: ...

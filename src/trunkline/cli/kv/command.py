"""The commands of `trunkline kv`, put together."""

from __future__ import annotations

import typer

from trunkline.cli.kv import compare, reading, snoop, writing

app = typer.Typer(
    no_args_is_help=True,
    help="""The replicated store: keys that every node of an area has. It is memory: what all nodes forget at once is gone.

Say once which node to ask: [bold]export TRUNKLINE_API_URL=http://127.0.0.1:8400[/]""",
)
_READ, _WRITE, _LOOK = "Read", "Write", "Look after it"
app.command("get", rich_help_panel=_READ)(reading.get)
app.command("keys", rich_help_panel=_READ)(reading.keys)
app.command("dump", rich_help_panel=_READ)(reading.dump)
app.command("snoop", rich_help_panel=_READ)(snoop.snoop)
app.command("set", rich_help_panel=_WRITE)(writing.set_)
app.command("refresh", rich_help_panel=_WRITE)(writing.refresh)
app.command("erase", rich_help_panel=_WRITE)(writing.erase)
app.command("clear", rich_help_panel=_WRITE)(writing.clear)
app.command("summary", rich_help_panel=_LOOK)(reading.summary)
app.command("compare", rich_help_panel=_LOOK)(compare.compare)
app.command("signature", rich_help_panel=_LOOK)(reading.signature)
app.command("own", rich_help_panel=_LOOK)(reading.own)
app.command("peers", rich_help_panel=_LOOK)(reading.peers)
app.command("add-peer", rich_help_panel=_LOOK)(writing.add_peer)
app.command("delete-peer", rich_help_panel=_LOOK)(writing.delete_peer)


@app.callback()
def _group() -> None: ...

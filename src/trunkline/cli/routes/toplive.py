"""Busy routes as a table that moves."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from trunkline.cli.routes.rates import COLUMNS, GROUP_COLUMNS, Rates, cells, group_cells

_LEFT = ("route", "runner", "group", "instance", "failing")


def table(rates: Rates, height: int) -> Group:
    """As many routes as there is room for below the groups."""
    groups = rates.groups()
    room = max(1, height - len(groups) - 5)
    routes = rates.routes()
    title = f"{len(routes)} routes, the busiest first. Ctrl-C ends."
    parts = [_table(COLUMNS, [cells(one) for one in routes[:room]], title)]
    if groups:
        parts.append(_table(GROUP_COLUMNS, [group_cells(one) for one in groups], ""))
    return Group(*parts)


def _table(names: Sequence[str], rows: Sequence[tuple[str, ...]], title: str) -> Table:
    columns = [Column(name, justify="left" if name in _LEFT else "right", no_wrap=True, overflow="ellipsis") for name in names]
    made = Table(*columns, title=Text(title), title_justify="left", box=None, padding=(0, 1), expand=True)
    for row in rows:
        made.add_row(*map(Text, row))
    return made

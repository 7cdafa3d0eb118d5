"""The keys of a watch as a table that moves: those that changed last come first."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from trunkline.cli.kv import shown

MOST_KEYS = 1_000
_COLOURS = {"value": "green", "ttl": "cyan", "erased": "red", "expired": "yellow"}


class LiveView:
    def __init__(self, area: str, console: Console | None = None) -> None:
        self._area, self._console = area, console or Console(highlight=False)
        self._rows: dict[str, tuple[float, dict[str, Any]]] = {}
        self._counts: Counter[str] = Counter()
        self._state = "reading what there is"
        self._live = Live(console=self._console, get_renderable=self.table, refresh_per_second=4)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "snapshot_done":
            self._state = "following"
        elif kind == "missed":
            self._state = f"missed {event['changes']} changes, reading anew"
        elif "key" in event:
            self._counts[kind] += 1
            before = self._rows.pop(event["key"], (0.0, {}))[1]
            self._rows = {event["key"]: (time.monotonic(), {**before, **event}), **self._rows}
            if len(self._rows) > MOST_KEYS:
                self._rows.popitem()

    def table(self) -> Table:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self._counts.items()))
        title = f"{self._area}: {self._state}. {counts or 'nothing yet'}. Ctrl-C ends."
        table = Table(
            "last", "ago", Column("key", overflow="ellipsis", no_wrap=True, ratio=3), Column("version", justify="right"),
            Column("originator", no_wrap=True), Column("ttl", justify="right", no_wrap=True),
            Column("value", overflow="ellipsis", no_wrap=True, ratio=2),
            title=Text(title), title_justify="left", box=None, padding=(0, 1), expand=True,
        )  # fmt: skip
        now = time.monotonic()
        for key, (since, event) in list(self._rows.items())[: max(1, self._console.height - 3)]:
            table.add_row(*_cells(key, event, now - since))
        return table


def _cells(key: str, event: dict[str, Any], ago: float) -> list[Text]:
    kind = event["event"]
    there = kind in ("value", "ttl")
    left = event.get("ttl_ms")
    ends = shown.ttl(None if left is None else max(0, left - round(ago * 1000))) if there else ""
    words = (f"{ago:.0f}s", shown.harmless(key), str(event.get("version", "")), event.get("originator", ""), ends)
    return [Text(kind, style=_COLOURS.get(kind, "")), *map(Text, words), Text(shown.preview(key, event) if there else "")]

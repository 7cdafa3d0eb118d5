"""Looks at busy routes, and what they say together: rates of the last few looks. Pure."""

from __future__ import annotations

from collections import deque
from typing import Any

from trunkline.cli.kv.shown import harmless, shortened
from trunkline.routes.keys import HOUSE

LOOKS = 5
"""Pipelines write every two seconds: a rate over fewer looks would jump."""
COLUMNS = ("route", "runner", "in/s", "in", "matched", "out", "dropped", "failed", "dead", "kept", "latency")
GROUP_COLUMNS = ("group", "instance", "events/s", "events", "behind", "batch", "failing")
_NUMBERS = ("received", "matched", "sent", "dropped", "failed", "dead", "kept")

Shown = dict[str, Any]


class Rates:
    def __init__(self) -> None:
        self._looks: deque[Shown] = deque(maxlen=LOOKS)

    def take(self, look: Shown) -> None:
        self._looks.append(look)

    def routes(self) -> list[Shown]:
        """The busiest first."""
        before, seconds = {_name(one): one for one in self._looks[0]["routes"]}, self._seconds()
        rows = [
            one | {"per_second": _rate(one, before.get(_name(one)), "received", seconds), "latency": _mean(one, "sent")}
            for one in self._looks[-1]["routes"]
        ]
        return sorted(rows, key=lambda one: (-one["per_second"], -one["received"], _name(one)))

    def groups(self) -> list[Shown]:
        before, seconds = {one["name"]: one for one in self._looks[0]["groups"]}, self._seconds()
        return [
            one | {"per_second": _rate(one, before.get(one["name"]), "events", seconds), "batch": _mean(one, "batches")}
            for one in self._looks[-1]["groups"]
        ]

    def document(self) -> Shown:
        last = self._looks[-1]
        return {"instance": last["instance"], "at": last["at"], "routes": self.routes(), "groups": self.groups()}

    def _seconds(self) -> float:
        return float(self._looks[-1]["at"] - self._looks[0]["at"])


def _name(one: Shown) -> tuple[str, str, str, str]:
    return one["tenant"]["orgId"], one["tenant"]["appId"], one["id"], one["runner"]


def _rate(now: Shown, before: Shown | None, number: str, seconds: float) -> float:
    """What was not there before began in between; what is less than before began anew."""
    came = now[number] - (before[number] if before is not None else 0)
    return (came if came >= 0 else now[number]) / seconds if seconds > 0 else 0.0


def _mean(one: Shown, of: str) -> float | None:
    return one["seconds"] / one[of] if one[of] else None


def cells(one: Shown) -> tuple[str, ...]:
    org, app, id, runner = _name(one)
    name = id if (org, app) == (HOUSE.org, HOUSE.app) else f"{org}/{app}/{id}"
    return (harmless(name), runner, f"{one['per_second']:,.1f}", *(f"{one[n]:,}" for n in _NUMBERS), duration(one["latency"]))


def group_cells(one: Shown) -> tuple[str, ...]:
    numbers = (f"{one['per_second']:,.1f}", f"{one['events']:,}", f"{one['behind']:,}", duration(one["batch"]))
    why = one["failing"] or ("" if one["instance"] else "no pipeline runs it")
    return (harmless(one["name"]), one["instance"] or "–", *numbers, shortened(why, 200))


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"

"""Sites, types and bundles of a bridge as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trunkline.cli.kv import shown
from trunkline.cli.queues.lines import UNKNOWN, Part, Seen, Table, Words
from trunkline.cli.trunk import size
from trunkline.core.span import about

_TYPES = ("site", "type", "version", "age", "lag", "waiting", "note")


# -- status


def status(found: Seen, place: str = "") -> Iterator[Part]:
    yield Words([summary(found["summary"])])
    yield from _notes(found["notes"])
    rows = [row for site in found["sites"] for row in _types(site)]
    if rows:
        yield Words([""])
        yield Table(_TYPES, rows)
    if found["next"]:
        yield Words(["", f"more sites: trunkline bridge status --after {found['next']}{place}"])


def site(found: Seen) -> Iterator[Part]:
    yield Words([_heard(found)])
    yield from _notes(found["notes"])
    yield Words([""])
    yield Table(_TYPES, _types(found)) if found["types"] else Words(["nothing of it is applied, waits or was set aside"])
    yield Words(["", _counted(found["counters"])])


def summary(found: Seen) -> str:
    waiting = f"{found['waiting']} bundles wait" + (f" ({found['parked']} for something)" if found["parked"] else "")
    runs = f"run by {shown.harmless(found['owner'] or 'somebody')}" if found["running"] else "no bridge runs now"
    return (
        f"{found['sites']} sites: {found['active']} active, {found['silent']} silent; {waiting}, "
        f"{found['quarantined']} in quarantine, {found['resyncs']} resyncs wanted; {runs}"
    )


def _notes(notes: Sequence[Seen]) -> Iterator[Part]:
    if notes:
        yield Words(["", *(f"{name(note['site'])}: {shown.harmless(note['words'])}" for note in notes)])


def name(site: str) -> str:
    """On a topic that sites share a message may not say whose it is."""
    return shown.harmless(site) or "a sender without a name"


def _types(found: Seen) -> list[tuple[str, ...]]:
    silent = ["silent"] if found["state"] == "silent" else []
    return [_type(found["site"], part, silent) for part in found["types"]]


def _type(site: str, part: Seen, silent: Sequence[str]) -> tuple[str, ...]:
    marks = [
        *silent,
        *(["parked"] if part["next"] and part["next"]["parked"] else []),
        *([f"quarantined: {part['quarantined']['id']}"] if part["quarantined"] else []),
        *(["resync wanted"] if part["resync"] else []),
        *([f"{part['chunks']} parts of more"] if part["chunks"] else []),
    ]
    return (
        site or UNKNOWN, part["type"] or UNKNOWN, part["version"] or UNKNOWN,
        _ago(part["age_seconds"]), _ago(part["lag_seconds"]), str(part["waiting"]), ", ".join(marks),
    )  # fmt: skip


def _ago(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else about(seconds)


def _heard(found: Seen) -> str:
    if found["state"] == "refused":
        return f"{name(found['site'])}: all of it was refused, last {about(found['silence_seconds'])} ago"
    last = f"last heard {about(found['silence_seconds'])} ago, over {found['transport']}"
    stale = found["staleness_seconds"]
    return f"{found['site']}: {found['state']}, {last}" + (
        f"; what is shown is {about(stale)} old" if stale is not None else ""
    )


def _counted(counters: Seen) -> str:
    told = ", ".join(f"{name} {counters[name]}" for name in counters if not name.startswith("rows_") and counters[name])
    rows = f"rows received {counters['rows_received']}, written {counters['rows_written']}"
    return f"bundles: {told or 'none'}; {rows}"


def offsets(found: Seen) -> Iterator[Part]:
    rows = [
        (one["transport"], one["reader_group"], shown.harmless(one["source"]), str(one["next"]), about(one["age_seconds"]))
        for one in found["offsets"]
    ]
    yield Table(("transport", "group", "from", "next", "age"), rows) if rows else Words(["nothing was read yet"])


# -- quarantine


def quarantine(found: Seen) -> Iterator[Part]:
    rows = [
        (str(one["id"]), one["site"] or UNKNOWN, one["type"] or UNKNOWN, one["version"] or UNKNOWN, one["state"],
         about(one["age_seconds"]), shown.shortened(one["reason"]))
        for one in found["quarantine"]
    ]  # fmt: skip
    columns = ("id", "site", "type", "version", "state", "age", "reason")
    yield Table(columns, rows) if rows else Words(["nothing is in quarantine"])


def quarantined(found: Seen) -> Iterator[Part]:
    what = f"{found['type'] or 'a message'} {found['version'] or 'that is no bundle,'} of {name(found['site'])}"
    text = found["text"] if found["text"] is not None else f"(base64) {found['base64']}"
    yield Words(
        [
            f"{found['id']}: {what}, {found['state']}, set aside {about(found['age_seconds'])} ago",
            f"reason: {shown.harmless(found['reason'])}",
            f"from: {shown.harmless(found['queue'])} at {found['position']}",
            *(f"header: {shown.harmless(name)}={shown.harmless(value)}" for name, value in sorted(found["headers"].items())),
            f"payload ({size(found['bytes'])}): {shown.harmless(text)}{'…' if found['cut'] else ''}",
            *(f"next: {step}" for step in found["next_steps"]),
        ]
    )


# -- types and forgetting


def types(found: Seen) -> Iterator[Part]:
    rows = [
        (one["type"], str(one["priority"]), one["mode"], _depends(one), ", ".join(one["tables"]), one["group"] or UNKNOWN)
        for one in found["types"]
    ]
    yield Table(("type", "priority", "mode", "depends on", "tables", "group"), rows)


def _depends(one: Seen) -> str:
    words = {"exact": "this version of", "at_least": "at least its version of"}
    return f"{words[one['match']]} {one['depends_on']}" if one["depends_on"] else UNKNOWN


def forgotten(found: Seen) -> Iterator[Part]:
    gone = [f"  {table}: {rows}" for table, rows in found["deleted"].items() if rows]
    yield Words([f"forgot {found['site']}; rows that are gone:", *gone])

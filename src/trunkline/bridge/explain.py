"""Why something waits, was set aside or is not seen, in words for people who meet the bridge for the first time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trunkline.bridge.types import Match, Types
from trunkline.core.bundle import ANY_RUN, Mode, Version
from trunkline.core.span import about

Seen = Mapping[str, Any]
"""A site or a part of it, as `trunkline.bridge.inspect` shows it."""
SLOW_SECONDS = 30.0
_RESTORES = "what follows it waits until all of it has come anew, which is asked for"


def notes(types: Types, site: Seen) -> Iterator[dict[str, str]]:
    """One for each thing of the site that is not as it should be."""
    if site["state"] == "silent":
        yield _note(site, "", "silent", silent(site))
    if site["state"] == "refused":
        yield _note(site, "", "refused", refused(site))
    for part in site["types"]:
        if part["quarantined"]:
            yield _note(site, part["type"], "quarantined", quarantined(part))
        if part["next"] and _is_told(part["next"]):
            yield _note(site, part["type"], "waiting", waits(types, site, part))
        if part["resync"]:
            yield _note(site, part["type"], "resync", resync(part["type"], part["resync"]))


def _note(site: Seen, type_: str, kind: str, words: str) -> dict[str, str]:
    return {"site": site["site"], "type": type_, "kind": kind, "words": words}


def _is_told(head: Seen) -> bool:
    return bool(head["parked"]) or head["waiting_seconds"] > SLOW_SECONDS


def silent(site: Seen) -> str:
    return (
        f"nothing was heard since {site['last_seen']} ({about(site['silence_seconds'])} ago): it is silent, and its rows are "
        "hidden, not deleted; they come back with its next bundle"
    )


def refused(site: Seen) -> str:
    since = f"no bundle of it was ever taken in: all that came since {about(site['state_seconds'])} was refused"
    if not site["site"]:
        return (
            "messages came of which there is no telling whose they are: on a topic that sites share, the key of each record is "
            "the name of its site; `trunkline bridge quarantine ls` has them"
        )
    return (
        f"{since}. Compare what it sends with the headers, the source and the topic or key that a bundle of "
        f"{site['site']} must have; once one is taken in, this goes"
    )


def waits(types: Types, site: Seen, part: Seen) -> str:
    head, name = part["next"], f"{part['type']} {part['next']['version']}"
    behind = f", and {part['waiting'] - 1} more behind it" if part["waiting"] > 1 else ""
    if head["held"]:
        return f"{name} waits{behind}: one before it is lost, so that it cannot be right; it goes on when the resync has come"
    if not head["parked"]:
        since = about(head["waiting_seconds"])
        return f"{name} waits for {since}{behind}: nothing is in its way but a database worker that is free"
    return (
        f"{name} waits{behind}: {_made_for(types, part['type'], head)}; it goes on when that comes{_asked(site, head['base'])}"
    )


def _made_for(types: Types, name: str, head: Seen) -> str:
    """Of a dependency that names no run, only the value is said."""
    needs = Version.parse(head["needs"])
    run = needs.incarnation != ANY_RUN
    wanted = f"{head['base']} {needs if run else needs.generation}"
    has = Version.parse(head["has"]) if head["has"] else None
    there = "none is applied yet" if has is None else f"{has if run else has.generation} is applied"
    if name in types and types[name].match is Match.AT_LEAST:
        return f"it needs {wanted} or newer, but {there}"
    return f"it was made for {wanted}, but {there}"


def _asked(site: Seen, base: str) -> str:
    found = next((part["resync"] for part in site["types"] if part["type"] == base and part["resync"]), None)
    return f". {_times(found)}" if found else ""


def _times(wish: Seen) -> str:
    if not wish["asks"]:
        return "A resync is wanted, and not asked for yet"
    times = "once" if wish["asks"] == 1 else f"{wish['asks']} times"
    last = f", last {about(wish['asked_seconds'])} ago" if wish["asked_seconds"] is not None else ""
    return f"A resync was asked for {times}{last}"


def resync(name: str, wish: Seen) -> str:
    held = f"; {wish['holds']} waits for it" if wish["holds"] else ""
    return f"all of {name} is wanted anew since {about(wish['age_seconds'])}: {wish['reason']}{held}. {_times(wish)}"


def quarantined(part: Seen) -> str:
    aside = part["quarantined"]
    what = f"{part['type'] or 'a message'} {aside['version'] or 'that is no bundle'}"
    more = f" (and {aside['entries'] - 1} more)" if aside["entries"] > 1 else ""
    return (
        f"{what}{more} was set aside {about(aside['age_seconds'])} ago: {aside['reason']}. {_until(part, aside)}; "
        f"see `trunkline bridge quarantine show {aside['id']}`"
    )


def _until(part: Seen, aside: Seen) -> str:
    if aside["mode"] in (Mode.DELTA, Mode.HYBRID):
        return f"It changes rows, so {_RESTORES}"
    if aside["mode"] == Mode.APPEND:
        return "Its rows are missing until it is tried again; all others are there"
    if not part["type"]:
        return "Correct what sends it: it was no bundle that the bridge could take"
    return f"{part['version']} stays visible until a newer one comes" if part["version"] else "Nothing of it is visible"


def next_steps(bundle: Seen) -> Sequence[str]:
    """What may be done about one bundle of the quarantine."""
    if bundle["state"] != "open":
        return (f"nothing: it is {bundle['state']}",)
    drop = f"give it up: trunkline bridge quarantine drop {bundle['id']}"
    if bundle["mode"] in (Mode.DELTA, Mode.HYBRID):
        return (f"nothing: {_RESTORES}; or ask now: trunkline bridge resync {bundle['site']}", drop)
    if not bundle["type"]:
        return ("correct what sends it: it is no bundle that the bridge could take", drop)
    retry = f"once its cause is gone, try it again: trunkline bridge quarantine retry {bundle['id']}"
    newer = "or wait: a newer one of its type takes its place"
    return (retry, newer, drop) if bundle["mode"] != Mode.APPEND else (retry, drop)

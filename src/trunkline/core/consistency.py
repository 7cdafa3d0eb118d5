"""What must fit together in a process's configuration: keys with each other, and the file with the disk.

These rules look at the file as it was written, so that they also speak when single values are wrong: a value that is
not what they expect is passed over, for its own mistake is reported already.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trunkline.core.address import is_loopback
from trunkline.core.errors import Invalid
from trunkline.core.layers import Layers
from trunkline.core.mistakes import Location, Mistake, key_text, printable
from trunkline.core.references import References

Finding = tuple[Location, str, str]
_FILES: tuple[tuple[Location, str], ...] = (
    (("tls", "ca"), "`trunkline ca init` writes it"),
    (("tls", "certificate"), "`trunkline ca issue` writes it"),
    (("tls", "key"), "`trunkline ca issue` writes it"),
    (("tls", "revoked"), "`trunkline ca revoke` writes it; without one remove this line"),
    (("routes",), "write it, or remove this line"),
)
_PEERS: tuple[Location, ...] = (("link", "links"), ("link", "follows"))
_UNIQUE: tuple[Location, ...] = (*_PEERS, ("link", "seeds"), ("link", "advertise"), ("store", "areas"))


@dataclass(frozen=True)
class Written:
    layers: Layers
    references: References

    def text(self, *location: int | str) -> str | None:
        value = self.layers.get(*location)
        return value if isinstance(value, str) else None

    def texts(self, *location: int | str) -> list[tuple[Location, str]]:
        found = self.layers.get(*location)
        items = enumerate(found) if isinstance(found, list) else ()
        return [((*location, n), item) for n, item in items if isinstance(item, str)]


def inconsistencies(written: Written) -> list[Mistake]:
    return [
        Mistake(*written.layers.place(location), key_text(location, written.layers.value), reason, next_step)
        for rule in _RULES
        for location, reason, next_step in rule(written)
    ]


def _no_section_is_left_empty(written: Written) -> Iterator[Finding]:
    """`tls: null` says that there is none; `tls:` with every key commented out says nothing."""
    for section in ("tls", "bridge", "otlp"):
        if written.layers.typed((section,)) == "":
            yield (section,), "it is empty", "write its keys, or {} for its defaults, or remove it"


def _no_link_to_itself(written: Written) -> Iterator[Finding]:
    site = written.text("site")
    for location, name in _peers(written):
        if name == site:
            yield location, "a site has no link with itself", "name the sites on the other end"


def _peers(written: Written) -> list[tuple[Location, str]]:
    return [found for key in _PEERS for found in written.texts(*key)]


def _nobody_is_linked_and_followed(written: Written) -> Iterator[Finding]:
    linked = {name: location for location, name in written.texts("link", "links")}
    for location, name in written.texts("link", "follows"):
        if name in linked:
            reason = f"{printable(name)!r} is already there as {key_text(linked[name])}, and a link gives and takes"
            yield location, reason, "keep it in follows only to take, in links only to do both"


def _costs_are_of_links(written: Written) -> Iterator[Finding]:
    costs, peers = written.layers.get("topology", "costs"), {name for _, name in _peers(written)}
    for name in costs if isinstance(costs, dict) else ():
        if isinstance(name, str) and name not in peers:
            yield (
                ("topology", "costs", name),
                "this site neither links nor follows it",
                "name it in link.links or link.follows, or remove this line",
            )


def _nothing_is_doubled(written: Written) -> Iterator[Finding]:
    for key in _UNIQUE:
        yield from _doubled(written.texts(*key))
    tokens = written.layers.get("api", "tokens")
    names = [("api", "tokens", n, "name") for n in range(len(tokens) if isinstance(tokens, list) else 0)]
    yield from _doubled([(location, name) for location in names if (name := written.text(*location)) is not None])


def _doubled(texts: list[tuple[Location, str]]) -> Iterator[Finding]:
    first: dict[str, Location] = {}
    for location, text in texts:
        if text in first:
            yield location, f"{printable(text)!r} is already there as {key_text(first[text])}", "keep one of them"
        else:
            first[text] = location


def _links_need_tls(written: Written) -> Iterator[Finding]:
    if written.layers.get("tls") is None and written.layers.typed(("tls",)) != "":
        for key in ("links", "follows", "seeds"):
            if written.layers.get("link", key):
                yield (
                    ("link", key),
                    "nodes meet over TLS only, and there is no tls section",
                    "add tls with ca, certificate, key",
                )


def _a_rate_needs_both(written: Written) -> Iterator[Finding]:
    rate, burst = ("store", "flood_per_second"), ("store", "flood_burst")
    for one, other in ((rate, burst), (burst, rate)):
        if written.layers.get(*one) is not None and written.layers.get(*other) is None:
            yield one, f"it means nothing without {key_text(other)}", "write both, or neither"


def _an_open_api_needs_tokens(written: Written) -> Iterator[Finding]:
    listen = written.text("api", "listen")
    if listen is None or written.layers.get("api", "tokens"):
        return
    try:
        if is_loopback(listen):
            return
    except Invalid:
        return
    reason = "without tokens everybody who reaches this address could use the API"
    yield ("api", "listen"), reason, "add api.tokens, which `trunkline token new` makes, or listen on 127.0.0.1"


def _files_are_there(written: Written) -> Iterator[Finding]:
    for location, next_step in _FILES:
        text = written.text(*location)
        why = text is not None and _unreadable(text, written.references.path)
        if why:
            yield location, why, next_step


def _unreadable(text: str, resolve: Callable[[str], Path]) -> str:
    if "\n" in text:
        return "this is the text of a file, not the path of one"
    path = resolve(text)
    shown = printable(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"{shown} is not a file"
        path.open("rb").close()
    except FileNotFoundError:
        return f"there is no file {shown}"
    except (OSError, ValueError) as error:
        return f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}"
    return ""


def _runtime_is_a_folder(written: Written) -> Iterator[Finding]:
    text = written.text("runtime")
    if text is not None and _unreadable(text, written.references.path) == "":
        yield ("runtime",), "this is a file, not a folder", "name a folder"


_RULES: tuple[Callable[[Written], Iterator[Finding]], ...] = (
    _no_section_is_left_empty,
    _no_link_to_itself,
    _nothing_is_doubled,
    _nobody_is_linked_and_followed,
    _costs_are_of_links,
    _links_need_tls,
    _a_rate_needs_both,
    _an_open_api_needs_tokens,
    _files_are_there,
    _runtime_is_a_folder,
)

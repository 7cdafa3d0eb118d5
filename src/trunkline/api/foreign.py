"""Who is no caller of an API on loopback without tokens: a page of another site in the user's browser.

Such a page reaches loopback in two ways. It points a name of its own at 127.0.0.1 (DNS rebinding): then the Host header
carries that name. Or it just posts there, which needs nobody's consent for simple requests: then the Origin header carries its
site. Programs send neither. With tokens neither works, because the page has none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{1,5})?")


def foreign(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Why these headers come from a page of another site; none if they do not."""
    hosts, origins = _values(headers)
    if len(hosts) != 1 or not names_loopback(hosts[0]):
        return f"the Host header {', '.join(hosts) or '(none)'} does not name this machine's loopback"
    if any(not _same_place(origin, hosts[0]) for origin in origins):
        return f"the Origin header {', '.join(origins)} is another site's"
    return None


def names_loopback(host: str) -> bool:
    """`host` as in a Host header: a name or an address, perhaps with a port."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found["v6"] or found["name"]
    return name.lower() == "localhost" or is_loopback(name)


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _same_place(origin: str, host: str) -> bool:
    scheme, mark, place = origin.partition("://")
    return bool(mark) and scheme in ("http", "https") and place.lower() == host.lower()


def _values(headers: Iterable[tuple[bytes, bytes]]) -> tuple[list[str], list[str]]:
    found: dict[bytes, list[str]] = {b"host": [], b"origin": []}
    for name, value in headers:
        if name in found:
            found[name].append(value.decode("latin-1").strip())
    return found[b"host"], found[b"origin"]

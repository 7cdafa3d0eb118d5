"""An address is <host>:<port>; a host that has colons itself stands in brackets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from trunkline.core.errors import Invalid

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?\.?")
_EXAMPLE = "write it like 127.0.0.1:7400, hub.example.com:7400 or [::1]:7400"


def split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        raise Invalid(f"address {address!r}", "it is not <host>:<port>", _EXAMPLE)
    if int(port[:6]) > 65535:
        raise Invalid(f"address {address!r}", "a port is at most 65535", _EXAMPLE)
    if host.startswith("[") and host.endswith("]") and _ip(host[1:-1]):
        return host[1:-1], int(port)
    if not _HOST.fullmatch(host):
        raise Invalid(f"address {address!r}", f"{host!r} is not the name or number of a host", _EXAMPLE)
    return host, int(port)


def check_listen(address: str) -> str:
    split_address(address)
    return address


def check_dialled(address: str) -> str:
    """An address that others are to dial: no port 0, and not "every interface"."""
    host, port = split_address(address)
    number = _ip(host)
    if port == 0 or (number is not None and number.is_unspecified):
        raise Invalid(f"address {address!r}", "nobody can dial it", "write the host and port where the node is reached")
    return address


def as_dialled(listening: str, advertised: Sequence[str]) -> str:
    """An address that listens, for others: every interface is the first advertised host, or nowhere that is known."""
    host, port = split_address(listening)
    number = _ip(host)
    if number is None or not number.is_unspecified:
        return listening
    return f"{advertised[0].rpartition(':')[0]}:{port}" if advertised else ""


def is_loopback(address: str) -> bool:
    host, _ = split_address(address)
    number = _ip(host)
    return host.lower().rstrip(".") == "localhost" if number is None else number.is_loopback


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

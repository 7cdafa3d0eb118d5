"""Ports that stay ours while nobody listens on them.

A port from the range that the kernel gives to outgoing connections may be anybody's a moment later; a client that
tries again and again to reach a stopped server there can even reach itself, and then the server cannot have it back.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from trunkline.core.errors import Retryable

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 15_000
_TRIES = 200


def lasting_port() -> int:
    """A port on loopback that is free now, and that no outgoing connection is given."""
    below = int(_OUTGOING.read_text().split()[0]) if _OUTGOING.exists() else 32_768
    for _ in range(_TRIES):
        port = random.randrange(_FIRST, max(below, _FIRST + 1_000))
        if is_free(port):
            return port
    raise Retryable("a free port", f"{_TRIES} ports from {_FIRST} on were all taken", "stop what listens there: ss -ltnp")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def is_listening(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0

"""Tokens of the API: how one is made, what of it is kept, and whose it is.

A token is `tl_` and 32 random bytes. With 256 random bits neither salt nor slow hash is needed: the configuration keeps its
SHA-256, and whoever reads that file cannot use it. All hashes are compared, in constant time, whichever fits.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass

from trunkline.core.config import Role, TokenConfig
from trunkline.core.errors import Invalid

PREFIX = "tl_"
RANDOM_BYTES = 32
_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
_HASH = re.compile(r"[0-9a-f]{64}")
_REACH = {Role.READ: 0, Role.WRITE: 1, Role.ADMIN: 2}


@dataclass(frozen=True)
class Caller:
    """Who asks: what is known of a token once it is found to be one of ours."""

    name: str
    role: Role
    tenant: str | None = None

    def may(self, role: Role) -> bool:
        return _REACH[self.role] >= _REACH[role]


LOCAL = Caller("", Role.ADMIN)  # an API without tokens listens on loopback only


def new_token(random: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()


def looks_like_a_token(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def hash_of(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


class Keyring:
    def __init__(self, tokens: Iterable[TokenConfig]) -> None:
        self._callers = [(_checked(token), Caller(token.name, token.role, token.tenant)) for token in tokens]

    def __bool__(self) -> bool:
        return bool(self._callers)

    def caller(self, token: bytes) -> Caller | None:
        offered, found = hash_of(token), None
        for known, caller in self._callers:
            if hmac.compare_digest(known, offered):
                found = caller
        return found


def _checked(token: TokenConfig) -> str:
    known = token.sha256.reveal().strip().lower()
    if not _HASH.fullmatch(known):
        raise Invalid(f"token {token.name!r}", "its sha256 is not 64 hex digits", "make it with `trunkline token new`")
    return known


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The token of a request; none if it offers none or more than one."""
    offered = [value for name, value in headers if name == b"authorization"]
    if len(offered) != 1:
        return None
    scheme, _, token = offered[0].strip().partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None

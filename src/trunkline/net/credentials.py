"""What a node proves its name with, and what it judges others by: read from files, and read again when these change.

1. The files count only as a whole: the key fits the certificate, the certificate names one node and an authority of the
   ca file issued it, and each authority has a list of revoked certificates, if `revoked` is configured.
2. At the start, files that do not count are refused (Invalid), an outdated list among them: this node would not know
   whom to refuse. Later they change nothing: the last good ones stay in use, one warning tells so, and `problem` says
   it until good ones come. A list that disappears, or is outdated later, is such a case: it goes on being obeyed.
3. What is loaded is what was read: files that changed meanwhile are loaded again. Files that do not count may be half
   of a renewal, so they get SETTLE_SECONDS before anybody is warned.
4. A running node keeps its name, and its list never goes back to an older one.
5. New connections use the newest contexts; live links stay, unless `objection` has something against their peer.
"""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from trunkline.core.clock import Clock
from trunkline.core.config import TlsConfig
from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.health import Check
from trunkline.core.ids import NodeId
from trunkline.net.certificate import Certified, read_certificate, serial_text
from trunkline.net.revocation import NO_LISTS, RevokedLists, read_lists
from trunkline.net.tls import client_context, server_context

SETTLE_SECONDS = 2.0
START_TRIES = 5
START_PAUSE = 0.05
DAY = 86_400.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Files:
    """Their contents."""

    ca: bytes
    certificate: bytes
    key: bytes
    revoked: bytes | None


@dataclass(frozen=True)
class _Loaded:
    files: _Files
    server: ssl.SSLContext
    client: ssl.SSLContext
    own: Certified
    lists: RevokedLists


class Credentials:
    def __init__(self, tls: TlsConfig, clock: Clock, pause: Callable[[float], None] = time.sleep) -> None:
        self._tls = tls
        self._clock = clock
        self._broken: str = ""
        self._broken_since: float | None = None
        self._loaded = self._load_at_start(pause)

    @property
    def server(self) -> ssl.SSLContext:
        return self._loaded.server

    @property
    def client(self) -> ssl.SSLContext:
        return self._loaded.client

    @property
    def identity(self) -> NodeId:
        return self._loaded.own.identity

    @property
    def serial(self) -> str:
        return serial_text(self._loaded.own.serial)

    @property
    def expires_at(self) -> float:
        """End of this node's own certificate, in Unix seconds."""
        return self._loaded.own.expires_at

    @property
    def problem(self) -> str:
        """What somebody should mend; empty when all is well."""
        if own := self.objection(self._loaded.own):
            return f"this node's own certificate: {own.why}"
        if self._broken:
            return f"changed tls files are not used: {self._broken}"
        if (end := self._loaded.lists.next_update) <= self._clock.wall():
            return f"the list of revoked certificates is outdated since {_date(end)}"
        return ""

    def check(self) -> Check:
        """Not well only when peers refuse this node; any other problem is told while the last good files serve."""
        days = (self.expires_at - self._clock.wall()) / DAY
        known = f"{self.identity}, serial {self.serial}, until {_date(self.expires_at)} ({days:.0f} days left)"
        problem = self.problem
        return Check("certificate", self.objection(self._loaded.own) is None, f"{known}; {problem}" if problem else known)

    def objection(self, peer: Certified) -> RemoteProtocolError | None:
        """Why a link with the holder of this certificate must not be, now."""
        since = self._loaded.lists.since.get((peer.issuer, peer.serial))
        what = f"certificate {serial_text(peer.serial)} of {peer.identity}"
        if since is not None:
            return RemoteProtocolError("revoked", f"{what} was revoked on {_date(since)}", "issue a new certificate")
        if peer.expires_at <= self._clock.wall():
            return RemoteProtocolError("expired", f"{what} expired on {_date(peer.expires_at)}", "issue a new certificate")
        return None

    def refresh(self) -> bool:
        """Looks whether files changed; true when new ones came into use. Cheap enough for every connection."""
        try:
            files = _read(self._tls)
            if files == self._loaded.files:
                self._mended()
                return False
            loaded = self._load()
        except Invalid as error:
            self._distrust(error)
            return False
        self._loaded = loaded
        self._mended()
        log.info("new tls files in use", node=str(self.identity), serial=self.serial, until=_date(self.expires_at))
        return True

    def _load_at_start(self, pause: Callable[[float], None]) -> _Loaded:
        for _ in range(START_TRIES):
            try:
                return self._load(first=True)
            except Invalid:
                pause(START_PAUSE)
        return self._load(first=True)

    def _load(self, first: bool = False) -> _Loaded:
        files = _read(self._tls)
        loaded = _build(self._tls, files)
        if _read(self._tls) != files:
            raise Invalid("tls files", "they change while they are read", "wait for the renewal to end")
        if loaded.lists.next_update <= self._clock.wall():
            why = f"it is outdated since {_date(loaded.lists.next_update)}"
            raise Invalid(f"list of revoked certificates {self._tls.revoked}", why, "fetch a newer one from the authority")
        if not first:
            self._check_succession(loaded)
        return loaded

    def _check_succession(self, new: _Loaded) -> None:
        if new.own.identity != self.identity:
            why = f"it names {new.own.identity}, this node is {self.identity}"
            raise Invalid(f"certificate {self._tls.certificate}", why, "issue one for this node")
        if new.lists.older_than(self._loaded.lists):
            why = "it is older than the one in use"
            raise Invalid(f"list of revoked certificates {self._tls.revoked}", why, "copy the authority's newest")

    def _distrust(self, error: Invalid) -> None:
        now = self._clock.monotonic()
        if self._broken_since is None:
            self._broken_since = now
        why = f"{error.what}: {error.why}"
        if now - self._broken_since >= SETTLE_SECONDS and why != self._broken:
            self._broken = why
            log.warning("changed tls files are not used, the last good ones are", reason=why, next_step=error.next_step)

    def _mended(self) -> None:
        self._broken, self._broken_since = "", None


def _read(tls: TlsConfig) -> _Files:
    revoked = None if tls.revoked is None else _bytes(tls.revoked)
    return _Files(_bytes(tls.ca), _bytes(tls.certificate), _bytes(tls.key), revoked)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"tls file {path}", error.strerror or str(error), "mend the paths under `tls`, or issue anew") from None


def _build(tls: TlsConfig, files: _Files) -> _Loaded:
    server = server_context(tls.ca, tls.certificate, tls.key)
    client = client_context(tls.ca, tls.certificate, tls.key)
    leaf, *between = _certificates(tls.certificate, files.certificate)
    authorities = _certificates(tls.ca, files.ca)
    try:
        own = read_certificate(leaf.public_bytes(Encoding.DER))
    except RemoteProtocolError as error:
        raise Invalid(f"certificate {tls.certificate}", error.why, "issue one with `trunkline ca issue`") from None
    if not any(_issued_by(leaf, issuer) for issuer in [*authorities, *between]):
        why = f"no authority in {tls.ca} issued it"
        raise Invalid(f"certificate {tls.certificate}", why, "take certificate and ca from the same authority")
    lists = NO_LISTS if files.revoked is None else read_lists(files.revoked, authorities)
    return _Loaded(files, server, client, own, lists)


def _certificates(path: Path, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise Invalid(f"certificate {path}", f"it cannot be read: {error}", "copy or issue it again") from None


def _issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _date(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")

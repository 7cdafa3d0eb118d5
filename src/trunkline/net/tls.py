"""TLS of the links: version 1.3, both sides certified by the fleet's authority, no session resumed."""

from __future__ import annotations

import ssl
from pathlib import Path

from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.certificate import Certified, read_certificate

_MISFIT = "KEY_VALUES_MISMATCH"


def server_context(ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, ca, certificate, key)
    context.num_tickets = 0  # sessions are never resumed: an unread ticket would only turn a close into a reset
    return context


def client_context(ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    return _context(ssl.PROTOCOL_TLS_CLIENT, ca, certificate, key)


def certified(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> Certified:
    """What the peer's certificate says; TLS has already found it signed by our authority and within its time."""
    der = ssl_object.getpeercert(binary_form=True)
    if der is None:
        raise RemoteProtocolError("identity", "the peer showed no certificate", "issue a certificate for this node")
    return read_certificate(der)


def certified_identity(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> NodeId:
    return certified(ssl_object).identity


def _context(protocol: ssl._SSLMethod, ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(ca)
        context.load_cert_chain(certificate, key, password=lambda: "")  # without it OpenSSL would ask the terminal
    except OSError as error:  # ssl.SSLError too
        why = error.strerror or str(error)
        if isinstance(error, ssl.SSLError):
            why = "the key is not the certificate's" if error.reason == _MISFIT else f"not readable as PEM: {error}"
        raise Invalid(f"tls files {ca}, {certificate}, {key}", why, "mend the paths under `tls`, or issue anew") from None
    return context

"""A node's name in its certificate: the URI SAN `trunkline://<site>/<node>`, exactly one.

Never a host name: addresses change, a node behind NAT has none, and either side may dial. So host names are not checked
and the URI always is.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509

from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId

SCHEME = "trunkline://"


@dataclass(frozen=True)
class Certified:
    """What a certificate says of its node. `issuer` and `serial` together name it; `expires_at` is in Unix seconds."""

    identity: NodeId
    issuer: bytes
    serial: int
    expires_at: float


def read_certificate(der: bytes) -> Certified:
    try:
        certificate = x509.load_der_x509_certificate(der)
        uris = _uris(certificate)
        issuer, serial = certificate.issuer.public_bytes(), certificate.serial_number
        expires_at = certificate.not_valid_after_utc.timestamp()
    except Exception as error:  # whatever the parser meets, the certificate is at fault and this node goes on
        why = f"the certificate cannot be read: {error or type(error).__name__}"
        raise RemoteProtocolError("identity", why, "issue a new certificate") from None
    return Certified(_identity(uris), issuer, serial, expires_at)


def node_uri(identity: NodeId) -> str:
    return f"{SCHEME}{identity}"


def serial_text(serial: int) -> str:
    return format(serial, "x")


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith(SCHEME)]


def _identity(uris: list[str]) -> NodeId:
    if len(uris) != 1:
        why = f"the certificate has {len(uris)} names {SCHEME}<site>/<node>, not one"
        raise RemoteProtocolError("identity", why, "issue a certificate for this node")
    try:
        return NodeId.parse(uris[0].removeprefix(SCHEME))
    except Invalid as error:
        raise RemoteProtocolError("identity", f"the certified name {error}", "issue a new certificate") from None

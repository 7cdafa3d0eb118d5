"""Certificates of the links: one authority per fleet, one certificate per node, TLS 1.3 with both sides certified.

A node's name is the URI SAN `trunkline://<site>/<node>` of its certificate, never a host name: addresses change, a
node behind NAT has none, and either side may dial. So host names are not checked and the URI always is.
"""

from __future__ import annotations

import datetime
import os
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId

SCHEME = "trunkline://"
AUTHORITY_DAYS = 3650
CLOCK_SKEW = datetime.timedelta(hours=1)  # a certificate made now must already be valid at a site whose clock lags


def make_ca(folder: Path, name: str) -> None:
    if (folder / "ca-key.pem").exists():
        raise Invalid(f"authority in {folder}", "it exists, its certificates would all die", "choose an empty folder")
    if not 0 < len(name) <= 64:
        raise Invalid(f"authority {name!r}", "a name has 1 to 64 characters", "choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    _write(folder / "ca-key.pem", _private_pem(key), 0o600)
    _write(folder / "ca.pem", _public_pem(builder.sign(key, hashes.SHA256())), 0o644)


def issue(folder_ca: Path, out: Path, identity: NodeId, days: int = 365) -> None:
    """certificate.pem and key.pem in `out`; an existing pair is replaced (renewal)."""
    authority, authority_key = _load_authority(folder_ca)
    identity = NodeId.parse(str(identity))
    out.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_subject(identity), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(_names(identity), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
    )
    _write(out / "key.pem", _private_pem(key), 0o600)
    _write(out / "certificate.pem", _public_pem(builder.sign(authority_key, hashes.SHA256())), 0o644)


def server_context(ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, ca, certificate, key)
    context.num_tickets = 0  # sessions are never resumed: an unread ticket would only turn a close into a reset
    return context


def client_context(ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    return _context(ssl.PROTOCOL_TLS_CLIENT, ca, certificate, key)


def certified_identity(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> NodeId:
    certificate: Any = ssl_object.getpeercert() or {}
    names = certificate.get("subjectAltName", ())
    uris = [value for kind, value in names if kind == "URI" and value.startswith(SCHEME)]
    if len(uris) != 1:
        why = f"the peer's certificate has {len(uris)} names {SCHEME}<site>/<node>, not one"
        raise RemoteProtocolError("identity", why, "issue a certificate for this node")
    try:
        return NodeId.parse(uris[0].removeprefix(SCHEME))
    except Invalid as error:
        raise RemoteProtocolError("identity", f"the certified name {error}", "issue a new certificate") from None


def _context(protocol: ssl._SSLMethod, ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(ca)
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError too
        why = error.strerror or str(error)
        raise Invalid(f"tls files {ca}, {certificate}, {key}", why, "mend the paths under `tls`, or issue anew") from None
    return context


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(identity: NodeId) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.site),
            x509.NameAttribute(NameOID.COMMON_NAME, identity.node),
        ]
    )


def _names(identity: NodeId) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"{SCHEME}{identity}")])


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise Invalid(f"authority in {folder}", str(error), "make one first, or name its folder") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Invalid(f"authority in {folder}", "its key is not an EC key", "make one with Trunkline")
    return certificate, key


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _public_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others for a moment: the mode is set before the content."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    draft.replace(path)

"""The fleet's authority: a folder from which nodes get certificates, and which says which ones are revoked.

    ca.pem        its certificate: every node's `tls.ca`
    ca-key.pem    its key: stays here; who has it can be any node
    revoked.pem   its signed list of revoked certificates: every node's `tls.revoked`
    ledger.jsonl  what it issued and revoked (`trunkline.net.ledger`)

1. Every file appears whole or not at all. `ca.pem` comes last: an authority exists when it is there.
2. One command at a time works on a folder (a lock on the folder itself, released with the process).
3. A renewed key and its certificate are both written before the first of them takes its name. Between the two renames
   they do not fit each other: whoever reads a pair checks that it fits, and reads again (`trunkline.net.credentials`).
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.certificate import node_uri, read_certificate, serial_text
from trunkline.net.ledger import LEDGER, Entry, Issued, Ledger, Revoked, append, read_ledger
from trunkline.net.revocation import RevokedLists, read_lists, sign_list

CA, CA_KEY, REVOKED = "ca.pem", "ca-key.pem", "revoked.pem"
CERTIFICATE, KEY = "certificate.pem", "key.pem"
AUTHORITY_DAYS = 3650
CLOCK_SKEW = datetime.timedelta(hours=1)  # a certificate made now must already be valid at a site whose clock lags
SERIAL_BITS = 80  # 79 of them random: nobody guesses one, and people can still read it


@dataclass(frozen=True)
class Authority:
    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def name(self) -> str:
        return common_name(self.certificate)


@dataclass(frozen=True)
class Revocation:
    """`now` were revoked by this call, `before` already by an earlier one."""

    now: tuple[Entry, ...]
    before: tuple[Entry, ...]


def make_ca(folder: Path, name: str) -> None:
    if not 0 < len(name) <= 64:
        raise Invalid(f"authority {name!r}", "a name has 1 to 64 characters", "choose another name")
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            _check_vacant(folder)
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _self_signed(name, key)
            _write(folder / CA_KEY, _private_pem(key), 0o600)
            _write(folder / REVOKED, _list(Authority(folder, certificate, key), Ledger(())), 0o644)
            _write(folder / CA, _public_pem(certificate), 0o644)


def issue(folder_ca: Path, out: Path, identity: NodeId, days: float = 365) -> Issued:
    """certificate.pem and key.pem in `out`; an existing pair of the same node is replaced (renewal)."""
    authority = load_authority(folder_ca)
    identity = NodeId.parse(str(identity))
    _check_days(authority, days)
    _check_holder(out, identity)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certify(authority, identity, key.public_key(), days)
    issued = Issued(serial_text(certificate.serial_number), str(identity), _now(), certificate.not_valid_after_utc)
    with _writing(out), _locked(folder_ca):
        out.mkdir(parents=True, exist_ok=True)
        drafts = [
            _draft(out / KEY, _private_pem(key), 0o600),
            _draft(out / CERTIFICATE, _public_pem(certificate), 0o644),
        ]
        append(folder_ca, [issued])
        if not (folder_ca / REVOKED).exists():
            _write(folder_ca / REVOKED, _list(authority, read_ledger(folder_ca)), 0o644)
        for draft in drafts:
            draft.replace(draft.with_suffix(""))
    return issued


def revoke(folder_ca: Path, who: str) -> Revocation:
    """`who` is <site>/<node>, which means all its certificates, or a serial. The list is signed anew in any case."""
    authority = load_authority(folder_ca)
    with _writing(folder_ca), _locked(folder_ca):
        found = _find(read_ledger(folder_ca), who, folder_ca)
        now = tuple(entry for entry in found if entry.revoked_at is None)
        append(folder_ca, [Revoked(entry.issued.serial, _now()) for entry in now])
        _write(folder_ca / REVOKED, _list(authority, read_ledger(folder_ca)), 0o644)
    return Revocation(now, tuple(entry for entry in found if entry.revoked_at is not None))


def load_authority(folder: Path) -> Authority:
    try:
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:  # TypeError: the key has a password
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        next_step = "make one first with `trunkline ca init`, or name its folder"
        raise Invalid(f"authority in {folder}", why, next_step) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Invalid(f"authority in {folder}", "its key is not an EC key", "make one with Trunkline")
    if key.public_key() != certificate.public_key():
        raise Invalid(f"authority in {folder}", "its key is another authority's", "put back the ca.pem it was made with")
    return Authority(folder, certificate, key)


def load_list(authority: Authority) -> RevokedLists:
    path = authority.folder / REVOKED
    try:
        return read_lists(path.read_bytes(), [authority.certificate])
    except OSError as error:
        why = error.strerror or str(error)
        raise Invalid(f"list {path}", why, "`trunkline ca issue` and `ca revoke` make it anew") from None


def common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else certificate.subject.rfc4514_string()


def _check_vacant(folder: Path) -> None:
    if (folder / CA).exists():
        raise Invalid(f"authority in {folder}", "it exists, its certificates would all die", "choose an empty folder")
    if (folder / LEDGER).exists():
        why = f"{CA} is missing, and it has issued certificates"
        raise Invalid(f"authority in {folder}", why, "put it back: every node has a copy, as tls.ca")


def _check_days(authority: Authority, days: float) -> None:
    left = (authority.certificate.not_valid_after_utc - _now()).days
    if not 0 < days <= left:
        why = f"a certificate lives at least one day and ends before its authority, in {left} days"
        raise Invalid(f"certificate of {days:g} days", why, f"ask for 1 to {left} days" if left > 0 else "make a new authority")


def _check_holder(out: Path, identity: NodeId) -> None:
    try:
        held = x509.load_pem_x509_certificate((out / CERTIFICATE).read_bytes())
        holder = read_certificate(held.public_bytes(serialization.Encoding.DER)).identity
    except (OSError, ValueError, RemoteProtocolError):  # nothing there that a node could use
        return
    if holder != identity:
        raise Invalid(f"certificate of {identity}", f"{out} holds the pair of {holder}", "choose another folder")


def _find(ledger: Ledger, who: str, folder: Path) -> list[Entry]:
    serial = who.lower().replace(":", "").removeprefix("0x").lstrip("0")
    found = [entry for entry in ledger.entries() if who == entry.issued.node or serial == entry.issued.serial]
    if not found:
        next_step = f"`trunkline ca show --ca {folder}` lists what it issued"
        raise Invalid(f"certificate {who!r}", "this authority never issued it", next_step)
    return found


# -- certificates


def _self_signed(name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _certify(authority: Authority, identity: NodeId, key: ec.EllipticCurvePublicKey, days: float) -> x509.Certificate:
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _builder(_subject(identity), authority.certificate.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(node_uri(identity))]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _list(authority: Authority, ledger: Ledger) -> bytes:
    made_at = _now() - CLOCK_SKEW
    return sign_list(authority.certificate, authority.key, ledger.revoked(), len(ledger.lines), made_at)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(1 << (SERIAL_BITS - 1) | secrets.randbits(SERIAL_BITS - 1))
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


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


# -- files


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _public_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, data: bytes, mode: int) -> None:
    _draft(path, data, mode).replace(path)


def _draft(path: Path, data: bytes, mode: int) -> Path:
    """`<path>.new`, never readable by others for a moment: the mode is set before the content."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return draft


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = f"{error.filename or folder}: {error.strerror or error}"
        raise Invalid(f"files in {folder}", why, "choose a folder that can be written, with free space") from None

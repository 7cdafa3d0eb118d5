"""Lists of revoked certificates: a file with one signed CRL per authority of the fleet.

1. A list counts only if an authority of `tls.ca` signed it, and each of these must have one: otherwise nobody could tell
   "nothing is revoked" from "the list is lost".
2. A list has a number that only grows; an older one never replaces a newer one (`trunkline.net.credentials`).
3. A revoked certificate is named by its authority and its serial: another authority may use the same serial.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trunkline.core.errors import Invalid

_PEM = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.S)


@dataclass(frozen=True)
class RevokedLists:
    """`since` by (authority, serial), `numbers` by authority; all times in Unix seconds."""

    since: Mapping[tuple[bytes, int], float]
    numbers: Mapping[bytes, int]
    next_update: float

    def older_than(self, other: RevokedLists) -> bool:
        return any(number < other.numbers.get(authority, 0) for authority, number in self.numbers.items())


NO_LISTS = RevokedLists({}, {}, float("inf"))


def sign_list(
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    revoked: Mapping[int, datetime.datetime],
    number: int,
    made_at: datetime.datetime,
) -> bytes:
    """Valid as long as its authority: a file that people copy cannot be made anew every week."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(made_at)
        .next_update(authority.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    for serial, since in sorted(revoked.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read_lists(pem: bytes, authorities: Sequence[x509.Certificate]) -> RevokedLists:
    """Raises Invalid for what breaks rule 1. Whether the lists are outdated is for the caller to judge."""
    since: dict[tuple[bytes, int], float] = {}
    numbers: dict[bytes, int] = {}
    next_update = float("inf")
    for crl in _parse(pem):
        signer = _signer(crl, authorities).subject.public_bytes()
        since |= {(signer, entry.serial_number): entry.revocation_date_utc.timestamp() for entry in crl}
        numbers[signer] = max(_number(crl), numbers.get(signer, 0))
        if crl.next_update_utc is not None:
            next_update = min(next_update, crl.next_update_utc.timestamp())
    for authority in authorities:
        if authority.subject.public_bytes() not in numbers:
            why = f"it has no list of authority {authority.subject.rfc4514_string()!r}"
            raise Invalid("list of revoked certificates", why, "put that authority's revoked.pem into the file")
    return RevokedLists(since, numbers, next_update)


def _parse(pem: bytes) -> list[x509.CertificateRevocationList]:
    try:
        return [x509.load_pem_x509_crl(part) for part in _PEM.findall(pem)]
    except ValueError as error:
        raise Invalid("list of revoked certificates", f"it cannot be read: {error}", "copy it again") from None


def _signer(crl: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate]) -> x509.Certificate:
    for authority in authorities:
        if authority.subject == crl.issuer and _signed(crl, authority):
            return authority
    why = f"no authority in the ca file signed the list of {crl.issuer.rfc4514_string()!r}"
    raise Invalid("list of revoked certificates", why, "copy the revoked.pem that lies beside the authority's ca.pem")


def _signed(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        return crl.is_signature_valid(authority.public_key())  # type: ignore[arg-type]  # others raise TypeError
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def _number(crl: x509.CertificateRevocationList) -> int:
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (x509.ExtensionNotFound, ValueError):
        return 0

"""Whatever a certificate says, it names one node or is refused: nothing else comes of it."""

from __future__ import annotations

import datetime
import functools
import warnings

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.utils import CryptographyDeprecationWarning
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.certificate import Certified, node_uri, read_certificate

A = NodeId("alpha", "node-1")
EXPIRES = datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC)
NAMES = x509.SubjectAlternativeName.oid


@functools.cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(*names: tuple[int, bytes], raw: bytes | None = None) -> bytes:
    """DER of a certificate with these alternative names (tag, content), or with `raw` in their place."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    content = raw if raw is not None else der(0x30, b"".join(der(tag, value) for tag, value in names))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key().public_key())
        .serial_number(77)
        .not_valid_before(EXPIRES - datetime.timedelta(days=1))
        .not_valid_after(EXPIRES)
        .add_extension(x509.UnrecognizedExtension(NAMES, content), critical=False)
        .sign(key(), hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    return bytes([tag, length]) + content if length < 128 else bytes([tag, 0x82, length >> 8, length & 255]) + content


URI, DNS = 0x86, 0x82


def uri(text: str) -> tuple[int, bytes]:
    return URI, text.encode()


def read(der: bytes) -> Certified | None:
    """None if it is refused. The parser's own warnings about odd certificates are no errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        try:
            return read_certificate(der)
        except RemoteProtocolError:
            return None


def test_a_certificate_names_its_node_serial_and_end() -> None:
    found = read_certificate(certificate(uri(node_uri(A))))
    assert (found.identity, found.serial, found.expires_at) == (A, 77, EXPIRES.timestamp())


names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", fullmatch=True)
other_texts = st.from_regex(r"[a-z]{2,5}:[!-~]{0,30}", fullmatch=True)
others = st.lists(st.tuples(st.sampled_from([URI, DNS, 0x81]), other_texts), max_size=4)


@given(names, names, others)
def test_one_right_name_is_found_among_others(site: str, node: str, beside: list[tuple[int, str]]) -> None:
    identity = NodeId(site, node)
    found = read(certificate(*((tag, text.encode()) for tag, text in beside), uri(node_uri(identity))))
    assert found is not None
    assert found.identity == identity


@given(st.lists(st.text(max_size=80).map(lambda text: "trunkline://" + text), min_size=0, max_size=3))
def test_odd_uris_name_what_they_say_or_nobody(uris: list[str]) -> None:
    found = read(certificate(*map(uri, uris)))
    assert found is None or [node_uri(found.identity)] == uris


@given(st.lists(st.tuples(st.integers(0x80, 0xA8), st.binary(max_size=60)), max_size=4))
def test_names_of_any_kind_and_content(names: list[tuple[int, bytes]]) -> None:
    found = read(certificate(*names))
    assert found is None or (URI, node_uri(found.identity).encode()) in names


@given(st.binary(max_size=80))
def test_names_that_are_no_names(raw: bytes) -> None:
    assert read(certificate(raw=raw)) is None


@given(st.binary(max_size=300))
def test_bytes_that_are_no_certificate(data: bytes) -> None:
    assert read(data) is None


@functools.cache
def good() -> bytes:
    return certificate(uri(node_uri(A)), (DNS, b"alpha.example"))


@given(st.lists(st.tuples(st.integers(0, len(good()) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_certificate_with_changed_bytes_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(good())
    for where, value in changes:
        data[where] = value
    found = read(bytes(data))
    assert found is None or isinstance(found.identity, NodeId)


@pytest.mark.parametrize(
    "odd",
    [
        "trunkline://",
        "trunkline:///",
        "trunkline://alpha",
        "trunkline://alpha/",
        "trunkline:///node-1",
        "trunkline://alpha/node-1/",
        "trunkline://alpha/node-1?x",
        "trunkline://alpha/node-1\x00.beta",
        "trunkline://alpha/node-1\n",
        "trunkline://älpha/node-1",
        "trunkline://alpha%2Fnode-1",
        "trunkline://user@alpha/node-1",
        "TRUNKLINE://alpha/node-1",
        " trunkline://alpha/node-1",
    ],
)
def test_names_that_only_look_right_are_refused(odd: str) -> None:
    assert read(certificate(uri(odd))) is None


def test_two_right_names_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="2 names"):
        read_certificate(certificate(uri(node_uri(A)), uri(node_uri(NodeId("beta", "node-1")))))

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.authority import issue, make_ca
from trunkline.net.tls import certified_identity, client_context, server_context

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def shake(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a TLS session over memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_ca(tmp_path / "ca", "test fleet")
    for identity in (A, B):
        issue(tmp_path / "ca", tmp_path / identity.site, identity)
    return tmp_path


def paths(folder: Path, site: str) -> tuple[Path, Path, Path]:
    return folder / "ca" / "ca.pem", folder / site / "certificate.pem", folder / site / "key.pem"


def certify(folder: Path, site: str, names: list[x509.GeneralName]) -> None:
    """A certificate as `issue` would never make it, for the site's existing key."""
    authority = x509.load_pem_x509_certificate((folder / "ca" / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca" / "ca-key.pem").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    _, certificate, _ = paths(folder, site)
    issued = x509.load_pem_x509_certificate(certificate.read_bytes())
    builder = (
        x509.CertificateBuilder()
        .subject_name(issued.subject)
        .issuer_name(authority.subject)
        .public_key(issued.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issued.not_valid_before_utc)
        .not_valid_after(issued.not_valid_after_utc)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def test_both_ends_learn_the_others_name_over_tls_1_3(folder: Path) -> None:
    client, server = shake(client_context(*paths(folder, "alpha")), server_context(*paths(folder, "beta")))
    assert (certified_identity(client), certified_identity(server)) == (B, A)
    assert client.version() == "TLSv1.3"


def test_private_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    assert mode(folder / "ca" / "ca-key.pem") == 0o600
    assert mode(folder / "alpha" / "key.pem") == 0o600
    assert sorted(file.name for file in (folder / "alpha").iterdir()) == ["certificate.pem", "key.pem"]


def test_an_older_tls_is_refused(folder: Path) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.load_verify_locations(folder / "ca" / "ca.pem")
    old.load_cert_chain(*paths(folder, "alpha")[1:])
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol|version"):
        shake(old, server_context(*paths(folder, "beta")))


NAMELESS: list[list[x509.GeneralName]] = [
    [],
    [x509.DNSName("alpha")],
    [x509.UniformResourceIdentifier("https://alpha/node-1")],
    [x509.UniformResourceIdentifier("trunkline://alpha")],
    [x509.UniformResourceIdentifier("trunkline://alpha/node-1/more")],
    [x509.UniformResourceIdentifier("trunkline://Alpha/node-1")],
    [x509.UniformResourceIdentifier(f"trunkline://{identity}") for identity in (A, B)],
]


@pytest.mark.parametrize("names", NAMELESS, ids=str)
def test_a_certificate_of_our_authority_without_one_node_name_certifies_nobody(
    folder: Path, names: list[x509.GeneralName]
) -> None:
    certify(folder, "alpha", names)
    _, server = shake(client_context(*paths(folder, "alpha")), server_context(*paths(folder, "beta")))
    with pytest.raises(RemoteProtocolError, match="certif"):
        certified_identity(server)


def test_a_renewed_certificate_replaces_the_old_one(folder: Path) -> None:
    before = (folder / "alpha" / "certificate.pem").read_bytes()
    issue(folder / "ca", folder / "alpha", A, days=30)
    after = (folder / "alpha" / "certificate.pem").read_bytes()
    assert after != before
    lives = x509.load_pem_x509_certificate(after)
    assert (lives.not_valid_after_utc - lives.not_valid_before_utc).days == 30
    client, _ = shake(client_context(*paths(folder, "beta")), server_context(*paths(folder, "alpha")))
    assert certified_identity(client) == A


def test_an_authority_is_never_overwritten(folder: Path) -> None:
    with pytest.raises(Invalid, match="exists"):
        make_ca(folder / "ca", "another")


def test_missing_files_are_named_with_the_next_step(folder: Path) -> None:
    with pytest.raises(Invalid, match="No such file"):
        client_context(folder / "none.pem", *paths(folder, "alpha")[1:])
    with pytest.raises(Invalid, match="make one first"):
        issue(folder / "nowhere", folder / "out", A)


def test_names_that_are_no_names_get_no_certificate(folder: Path) -> None:
    with pytest.raises(Invalid):
        issue(folder / "ca", folder / "bad", NodeId("Alpha", "node/1"))

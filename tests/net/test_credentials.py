"""A node's tls files while they change under it; the numbers are the rules of `trunkline.net.credentials`."""

from __future__ import annotations

import datetime
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from structlog.testing import capture_logs

from trunkline.core.clock import ManualClock
from trunkline.core.config import TlsConfig
from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.net.authority import issue, load_authority, make_ca, revoke
from trunkline.net.certificate import Certified
from trunkline.net.credentials import SETTLE_SECONDS, Credentials

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")
DAY = 86_400


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall=time.time())


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    make_ca(tmp_path / "ca", "test fleet")
    issue(tmp_path / "ca", tmp_path / "a", A)
    return tmp_path / "ca"


@pytest.fixture
def tls(ca: Path, tmp_path: Path) -> TlsConfig:
    own = tmp_path / "a"
    return TlsConfig(ca=ca / "ca.pem", certificate=own / "certificate.pem", key=own / "key.pem", revoked=ca / "revoked.pem")


def settle(credentials: Credentials, clock: ManualClock) -> None:
    """Looks twice, with the time between that a half-written renewal is given."""
    credentials.refresh()
    clock.advance(SETTLE_SECONDS)
    credentials.refresh()


def peer(ca: Path, folder: Path, identity: NodeId) -> Certified:
    issued = issue(ca, folder, identity)
    issuer = load_authority(ca).certificate.subject.public_bytes()
    return Certified(identity, issuer, int(issued.serial, 16), issued.expires_at.timestamp())


def list_until(ca: Path, end: datetime.datetime) -> bytes:
    """A list that its authority would have signed long ago."""
    authority = load_authority(ca)
    return (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(end - datetime.timedelta(days=30))
        .next_update(end)
        .add_extension(x509.CRLNumber(1), critical=False)
        .sign(authority.key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def refused(tls: TlsConfig, clock: ManualClock, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        Credentials(tls, clock, pause=lambda seconds: None)


# -- the start


def test_what_is_loaded_is_told(tls: TlsConfig, clock: ManualClock) -> None:
    credentials = Credentials(tls, clock)
    shown = x509.load_pem_x509_certificate(tls.certificate.read_bytes())
    assert credentials.identity == A
    assert credentials.expires_at == shown.not_valid_after_utc.timestamp()
    assert credentials.problem == ""
    check = credentials.check()
    assert (check.name, check.ok) == ("certificate", True)
    assert "alpha/node-1" in check.reason
    assert "365 days left" in check.reason


@pytest.mark.parametrize("missing", ["ca", "certificate", "key", "revoked"])
def test_2_a_missing_file_is_refused_at_the_start(tls: TlsConfig, clock: ManualClock, missing: str) -> None:
    path: Path = getattr(tls, missing)
    path.unlink()
    refused(tls, clock, f"{path}: No such file")


@pytest.mark.parametrize("broken", ["ca", "certificate", "key", "revoked"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"])
def test_2_a_broken_file_is_refused_at_the_start(tls: TlsConfig, clock: ManualClock, broken: str, content: bytes) -> None:
    getattr(tls, broken).write_bytes(content)
    refused(tls, clock, "tls|certificate")


def test_2_an_outdated_list_is_refused_at_the_start(tls: TlsConfig, ca: Path, clock: ManualClock) -> None:
    assert tls.revoked is not None
    tls.revoked.write_bytes(list_until(ca, datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)))
    refused(tls, clock, "outdated since")


def test_1_a_key_of_another_certificate_is_refused(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    issue(ca, tmp_path / "b", B)
    (tmp_path / "b" / "key.pem").replace(tls.key)
    refused(tls, clock, "the key is not the certificate's")


def test_1_a_key_with_a_password_asks_nobody(tls: TlsConfig, clock: ManualClock) -> None:
    key = serialization.load_pem_private_key(tls.key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    tls.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    refused(tls, clock, "tls files")


def test_1_a_certificate_of_another_authority_is_refused(tls: TlsConfig, tmp_path: Path, clock: ManualClock) -> None:
    make_ca(tmp_path / "other", "other")
    stranger = tls.model_copy(update={"ca": tmp_path / "other" / "ca.pem", "revoked": tmp_path / "other" / "revoked.pem"})
    refused(stranger, clock, "no authority in .* issued it")


def test_1_a_list_signed_by_another_authority_is_refused(tls: TlsConfig, tmp_path: Path, clock: ManualClock) -> None:
    make_ca(tmp_path / "forger", "test fleet")
    refused(tls.model_copy(update={"revoked": tmp_path / "forger" / "revoked.pem"}), clock, "signed the list")


def test_1_two_authorities_need_two_lists(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    """As while a fleet changes its authority: the files are joined."""
    new = tmp_path / "new"
    make_ca(new, "new authority")
    mine, theirs = peer(ca, tmp_path / "b", B), peer(new, tmp_path / "c", NodeId("gamma", "node-1"))
    revoke(new, "gamma/node-1")
    tls.ca.write_bytes(tls.ca.read_bytes() + (new / "ca.pem").read_bytes())
    refused(tls, clock, "no list of authority 'CN=new authority'")
    assert tls.revoked is not None
    tls.revoked.write_bytes(tls.revoked.read_bytes() + (new / "revoked.pem").read_bytes())
    credentials = Credentials(tls, clock)
    assert credentials.objection(mine) is None
    assert credentials.objection(theirs) is not None


def test_without_a_list_nobody_is_revoked(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    someone = peer(ca, tmp_path / "b", B)
    revoke(ca, str(B))
    assert Credentials(tls.model_copy(update={"revoked": None}), clock).objection(someone) is None
    assert Credentials(tls, clock).objection(someone) is not None


# -- renewal


def test_5_a_renewed_pair_comes_into_use(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    credentials = Credentials(tls, clock)
    before = (credentials.server, credentials.client)
    assert not credentials.refresh()
    assert (credentials.server, credentials.client) == before
    issued = issue(ca, tmp_path / "a", A, days=7)
    assert credentials.refresh()
    assert credentials.serial == issued.serial
    assert credentials.expires_at == issued.expires_at.timestamp()
    assert credentials.server is not before[0]
    assert credentials.client is not before[1]


def test_3_half_a_renewal_is_no_problem_unless_it_stays(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    credentials = Credentials(tls, clock)
    serial = credentials.serial
    issue(ca, tmp_path / "new", A)
    with capture_logs() as logs:
        (tmp_path / "new" / "key.pem").replace(tls.key)
        assert not credentials.refresh()
        assert (credentials.serial, credentials.problem, logs) == (serial, "", [])
        (tmp_path / "new" / "certificate.pem").replace(tls.certificate)
        assert credentials.refresh()
    assert credentials.serial != serial
    assert [entry["event"] for entry in logs] == ["new tls files in use"]


def test_3_a_start_between_the_two_renames_waits_for_the_second(
    tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock
) -> None:
    issued = issue(ca, tmp_path / "new", A)
    (tmp_path / "new" / "key.pem").replace(tls.key)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            (tmp_path / "new" / "certificate.pem").replace(tls.certificate)

    assert Credentials(tls, clock, pause).serial == issued.serial
    assert len(pauses) == 2


def test_3_whoever_reads_during_renewals_has_a_pair_that_fits(
    tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock
) -> None:
    credentials = Credentials(tls, clock)
    before = credentials.serial
    serials = [issue(ca, tmp_path / "a", A).serial]
    seen: set[str] = set()
    enough = threading.Event()

    def renew() -> None:
        while not enough.is_set():
            serials.append(issue(ca, tmp_path / "a", A).serial)

    renewals = threading.Thread(target=renew)
    renewals.start()
    try:
        while len(seen) < 10:
            credentials.refresh()
            seen.add(credentials.serial)
    finally:
        enough.set()
        renewals.join()
    credentials.refresh()
    assert credentials.serial == serials[-1]
    assert seen <= {*serials, before}
    assert credentials.problem == ""


@pytest.mark.parametrize("broken", ["ca", "certificate", "key", "revoked"])
@pytest.mark.parametrize("content", [None, b"", b"half a fi"])
def test_2_the_last_good_files_stay_in_use_with_one_warning(
    tls: TlsConfig, clock: ManualClock, broken: str, content: bytes | None
) -> None:
    credentials = Credentials(tls, clock)
    context, path = credentials.server, getattr(tls, broken)
    good = path.read_bytes()
    with capture_logs() as logs:
        path.unlink() if content is None else path.write_bytes(content)
        for _ in range(5):
            settle(credentials, clock)
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert credentials.server is context
    assert "not used" in credentials.problem
    assert credentials.check().ok
    assert credentials.problem in credentials.check().reason
    path.write_bytes(good)
    credentials.refresh()
    assert credentials.problem == ""


def test_4_a_running_node_keeps_its_name(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    credentials = Credentials(tls, clock)
    issue(ca, tmp_path / "b", B)
    for name in ("certificate.pem", "key.pem"):
        (tmp_path / "b" / name).replace(tmp_path / "a" / name)
    settle(credentials, clock)
    assert credentials.identity == A
    assert "it names beta/node-1, this node is alpha/node-1" in credentials.problem


# -- revocation and time


def test_5_a_newer_list_is_obeyed_and_survives_its_file(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    assert tls.revoked is not None
    someone = peer(ca, tmp_path / "b", B)
    credentials = Credentials(tls, clock)
    assert credentials.objection(someone) is None
    revoke(ca, str(B))
    assert credentials.refresh()
    objection = credentials.objection(someone)
    assert objection is not None
    assert objection.what == "revoked"
    assert "beta/node-1" in objection.why
    tls.revoked.unlink()
    settle(credentials, clock)
    assert credentials.objection(someone) is not None
    assert "revoked.pem: No such file" in credentials.problem


def test_4_an_older_list_does_not_replace_a_newer_one(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    assert tls.revoked is not None
    someone, old = peer(ca, tmp_path / "b", B), tls.revoked.read_bytes()
    revoke(ca, str(B))
    credentials = Credentials(tls, clock)
    tls.revoked.write_bytes(old)
    settle(credentials, clock)
    assert credentials.objection(someone) is not None
    assert "older than the one in use" in credentials.problem


def test_2_a_list_that_is_outdated_later_is_still_obeyed(tls: TlsConfig, ca: Path, clock: ManualClock) -> None:
    assert tls.revoked is not None
    tls.revoked.write_bytes(list_until(ca, datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)))
    credentials = Credentials(tls, clock)
    assert credentials.problem == ""
    clock.advance(3 * DAY)
    assert not credentials.refresh()
    assert "outdated since" in credentials.problem
    assert credentials.check().ok


def test_a_peer_is_objected_to_from_the_second_it_expires(tls: TlsConfig, ca: Path, tmp_path: Path, clock: ManualClock) -> None:
    credentials, someone = Credentials(tls, clock), peer(ca, tmp_path / "b", B)
    clock.advance(someone.expires_at - clock.wall() - 1)
    assert credentials.objection(someone) is None
    clock.advance(1)
    objection = credentials.objection(someone)
    assert objection is not None
    assert objection.what == "expired"


@pytest.mark.parametrize("fate", ["expired", "revoked"])
def test_a_node_knows_that_others_will_refuse_it(tls: TlsConfig, ca: Path, clock: ManualClock, fate: str) -> None:
    credentials = Credentials(tls, clock)
    if fate == "expired":
        clock.advance(366 * DAY)
    else:
        revoke(ca, str(A))
        credentials.refresh()
    assert f"this node's own certificate: certificate {credentials.serial}" in credentials.problem
    assert fate in credentials.problem
    assert not credentials.check().ok

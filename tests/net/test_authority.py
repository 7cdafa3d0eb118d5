"""The authority's folder: what it issues is recorded, what it revokes stays revoked, and nothing is half done."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.net.authority import CA, CA_KEY, REVOKED, issue, load_authority, load_list, make_ca, revoke
from trunkline.net.ledger import LEDGER, State, read_ledger
from trunkline.net.tls import client_context, server_context

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    make_ca(tmp_path / "ca", "test fleet")
    return tmp_path / "ca"


def listed(ca: Path) -> set[str]:
    """Serials of the signed list."""
    return {format(serial, "x") for _, serial in load_list(load_authority(ca)).since}


def number(ca: Path) -> int:
    return max(load_list(load_authority(ca)).numbers.values())


def states(ca: Path) -> dict[str, State]:
    now = load_authority(ca).certificate.not_valid_before_utc
    return {entry.issued.serial: entry.state(now) for entry in read_ledger(ca).entries()}


def fits(folder: Path) -> bool:
    certificate = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), None)
    return certificate.public_key() == key.public_key()


def test_what_is_issued_is_recorded_and_renewal_replaces_it(ca: Path, tmp_path: Path) -> None:
    first = issue(ca, tmp_path / "a", A)
    second = issue(ca, tmp_path / "a", A, days=30)
    other = issue(ca, tmp_path / "b", B)
    assert [entry.issued for entry in read_ledger(ca).entries()] == [first, second, other]
    assert states(ca) == {first.serial: State.REPLACED, second.serial: State.GOOD, other.serial: State.GOOD}
    shown = x509.load_pem_x509_certificate((tmp_path / "a" / "certificate.pem").read_bytes())
    assert (format(shown.serial_number, "x"), shown.not_valid_after_utc) == (second.serial, second.expires_at)


def test_a_name_revokes_all_its_certificates_and_a_later_one_is_good(ca: Path, tmp_path: Path) -> None:
    old = [issue(ca, tmp_path / "a", A).serial for _ in range(2)]
    other = issue(ca, tmp_path / "b", B).serial
    done = revoke(ca, "alpha/node-1")
    assert [entry.issued.serial for entry in done.now] == old
    new = issue(ca, tmp_path / "a", A).serial
    assert listed(ca) == set(old)
    assert states(ca) == {**dict.fromkeys(old, State.REVOKED), other: State.GOOD, new: State.GOOD}


def in_pairs(serial: str) -> str:
    return ":".join(serial[at : at + 2] for at in range(0, len(serial), 2))


@pytest.mark.parametrize("write", [str, str.upper, "0x{}".format, in_pairs])
def test_a_serial_revokes_one_however_it_is_written(ca: Path, tmp_path: Path, write: Callable[[str], str]) -> None:
    first, second = (issue(ca, tmp_path / "a", A).serial for _ in range(2))
    revoke(ca, write(first))
    assert listed(ca) == {first}
    assert states(ca)[second] is State.GOOD


def test_revoking_again_changes_nothing_and_makes_a_lost_list_anew(ca: Path, tmp_path: Path) -> None:
    serial = issue(ca, tmp_path / "a", A).serial
    revoke(ca, str(A))
    before = (number(ca), read_ledger(ca))
    (ca / REVOKED).unlink()
    done = revoke(ca, serial)
    assert (len(done.now), len(done.before)) == (0, 1)
    assert listed(ca) == {serial}
    assert (number(ca), read_ledger(ca)) == before


def test_the_number_of_the_list_only_grows(ca: Path, tmp_path: Path) -> None:
    seen = [number(ca)]
    for identity in (A, B):
        issue(ca, tmp_path / identity.site, identity)
        revoke(ca, str(identity))
        seen.append(number(ca))
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("who", ["gamma/node-1", "alpha", "alpha/node-2", "12ab", "", "0"])
def test_only_what_was_issued_can_be_revoked(ca: Path, tmp_path: Path, who: str) -> None:
    issue(ca, tmp_path / "a", A)
    before = {path.name: path.read_bytes() for path in ca.iterdir()}
    with pytest.raises(Invalid, match="never issued"):
        revoke(ca, who)
    assert {path.name: path.read_bytes() for path in ca.iterdir()} == before


def test_openssl_reads_the_list_and_agrees(ca: Path, tmp_path: Path) -> None:
    for identity in (A, B):
        issue(ca, tmp_path / identity.site, identity)
    revoke(ca, str(B))

    def refused(site: str) -> str:
        server = server_context(ca / CA, tmp_path / site / "certificate.pem", tmp_path / site / "key.pem")
        client = client_context(ca / CA, tmp_path / "alpha" / "certificate.pem", tmp_path / "alpha" / "key.pem")
        client.load_verify_locations(ca / REVOKED)
        client.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLCertVerificationError as error:
                    return error.verify_message
        return ""

    assert refused("alpha") == ""
    assert refused("beta") == "certificate revoked"


# -- crashes, mistakes and company


def test_a_line_cut_off_by_a_crash_is_removed_by_the_next(ca: Path, tmp_path: Path) -> None:
    first = issue(ca, tmp_path / "a", A)
    with (ca / LEDGER).open("ab") as file:
        file.write(b'{"type":"issued","serial":"12')
    assert [entry.issued for entry in read_ledger(ca).entries()] == [first]
    second = issue(ca, tmp_path / "b", B)
    assert [entry.issued for entry in read_ledger(ca).entries()] == [first, second]


def test_a_damaged_line_is_named(ca: Path, tmp_path: Path) -> None:
    issue(ca, tmp_path / "a", A)
    with (ca / LEDGER).open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(Invalid, match=r"ledger\.jsonl:2"):
        revoke(ca, str(A))


def test_an_authority_that_was_never_finished_is_made(ca: Path, tmp_path: Path) -> None:
    (ca / CA).unlink()
    make_ca(ca, "again")
    assert load_authority(ca).name == "again"


def test_an_authority_that_lost_its_certificate_is_not_replaced(ca: Path, tmp_path: Path) -> None:
    issue(ca, tmp_path / "a", A)
    (ca / CA).unlink()
    key = (ca / CA_KEY).read_bytes()
    with pytest.raises(Invalid, match="put it back"):
        make_ca(ca, "again")
    assert (ca / CA_KEY).read_bytes() == key


def test_a_key_of_another_authority_signs_nothing(ca: Path, tmp_path: Path) -> None:
    make_ca(tmp_path / "other", "other")
    (tmp_path / "other" / CA_KEY).replace(ca / CA_KEY)
    with pytest.raises(Invalid, match="another authority's"):
        issue(ca, tmp_path / "a", A)


def test_another_nodes_pair_is_never_overwritten(ca: Path, tmp_path: Path) -> None:
    issue(ca, tmp_path / "a", A)
    key = (tmp_path / "a" / "key.pem").read_bytes()
    with pytest.raises(Invalid, match="holds the pair of alpha/node-1"):
        issue(ca, tmp_path / "a", B)
    assert (tmp_path / "a" / "key.pem").read_bytes() == key


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_a_certificate_ends_before_its_authority(ca: Path, tmp_path: Path, days: int) -> None:
    with pytest.raises(Invalid, match=r"ask for 1 to 36(49|50) days"):
        issue(ca, tmp_path / "a", A, days)
    assert not (tmp_path / "a").exists()


def test_a_folder_that_cannot_be_written_leaves_no_record(ca: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Invalid, match="can be written"):
        issue(ca, tmp_path / "file" / "a", A)
    assert read_ledger(ca).lines == ()


def test_many_at_once_are_all_recorded_and_leave_pairs_that_fit(ca: Path, tmp_path: Path) -> None:
    def work(turn: int) -> str:
        serial = issue(ca, tmp_path / "shared", A).serial
        if turn % 2:
            revoke(ca, serial)
        return serial

    with ThreadPoolExecutor(8) as pool:
        serials = list(pool.map(work, range(24)))
    assert sorted(entry.issued.serial for entry in read_ledger(ca).entries()) == sorted(serials)
    assert listed(ca) == set(serials[1::2])
    assert fits(tmp_path / "shared")

"""Links while certificates are renewed, revoked and expire: rule 5 of `trunkline.net.endpoint`, on both sides."""

from __future__ import annotations

import asyncio
import time

import pytest
from netfleet import Fleet, Member, eventually, exchange, linked, make_hello, to

from trunkline.core.clock import SystemClock
from trunkline.core.config import TlsConfig
from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.net.authority import issue, revoke
from trunkline.net.certificate import serial_text
from trunkline.net.credentials import Credentials
from trunkline.net.hello import Bye
from trunkline.net.tls import certified

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")
C = NodeId("gamma", "node-1")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.endpoint.CHECK_SECONDS", 0.05)


class LaterClock(SystemClock):
    """The wall clock of somebody else: it can be put forward."""

    ahead = 0.0

    def wall(self) -> float:
        return super().wall() + self.ahead


def with_list(fleet: Fleet, identity: NodeId) -> TlsConfig:
    tls = fleet.authority.tls(identity)
    return tls.model_copy(update={"revoked": tls.ca.parent / "revoked.pem"})


def renew(fleet: Fleet, identity: NodeId, days: float = 30) -> str:
    tls = fleet.authority.tls(identity)
    return issue(tls.ca.parent, tls.certificate.parent, identity, days).serial


def revoke_all(fleet: Fleet, identity: NodeId) -> None:
    revoke(fleet.authority.tls(identity).ca.parent, str(identity))


async def strict_and_other(fleet: Fleet) -> tuple[Member, Member]:
    """`A` has the list, `B` has none: so it is A that refuses."""
    return await fleet.member(A, tls=with_list(fleet, A)), await fleet.member(B)


async def test_5_a_revoked_client_gets_no_link_and_learns_why(fleet: Fleet) -> None:
    one, other = await strict_and_other(fleet)
    revoke_all(fleet, B)
    other.endpoint.set_targets(to(one))
    await eventually(lambda: one.endpoint.violations["revoked"] >= 2)
    assert not one.events.ups
    assert not other.events.ups, "a refused client must not take the end of its TLS handshake for a link"
    for _ in range(5):
        raw = await fleet.raw(one.address, B)
        raw.stream.say(make_hello(B))
        goodbye = await asyncio.wait_for(raw.control(), 5)
        assert isinstance(goodbye, Bye)
        assert "was revoked on" in goodbye.reason
        assert await raw.until_closed() is None


async def test_5_a_revoked_server_gets_no_link(fleet: Fleet) -> None:
    one, other = await strict_and_other(fleet)
    revoke_all(fleet, B)
    one.endpoint.set_targets(to(other))
    await eventually(lambda: one.endpoint.violations["revoked"] >= 2)
    assert not one.events.ups
    assert not other.events.ups


@pytest.mark.parametrize("dialled_by", ["the one with the list", "the revoked one"])
async def test_5_a_newer_list_closes_a_live_link_and_no_other(fleet: Fleet, dialled_by: str) -> None:
    one, other = await strict_and_other(fleet)
    friend = await fleet.member(C)
    friend.endpoint.set_targets(to(one))
    if dialled_by == "the revoked one":
        other.endpoint.set_targets(to(one))
    else:
        one.endpoint.set_targets(to(other))
    await linked(one, other)
    await linked(one, friend)
    revoke_all(fleet, B)
    await eventually(lambda: not one.link(B) and not other.link(A))
    assert ["was revoked on" in reason for _, reason in one.events.downs] == [True]
    assert ["was revoked on" in reason for _, reason in other.events.downs] == [True]
    await eventually(lambda: one.endpoint.violations["revoked"] >= 2)
    assert [link.peer for link in one.events.ups].count(B) == 1
    await exchange(one, friend, b"undisturbed")


async def test_5_a_live_link_outlasts_the_renewal_of_its_certificate(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets(to(other))
    await linked(one, other)
    new = [renew(fleet, identity) for identity in (A, B)]
    await eventually(lambda: [member.endpoint.credentials.serial for member in (one, other)] == new)
    await exchange(one, other, b"the same link")
    assert len(one.events.ups) == len(other.events.ups) == 1


async def test_5_new_connections_show_the_new_certificate(fleet: Fleet) -> None:
    one = await fleet.member(A)
    new = renew(fleet, A)
    raw = await fleet.raw(one.address, B)
    assert serial_text(certified(raw.stream.ssl_object).serial) == new


async def test_5_a_renewed_node_comes_back_when_its_old_certificate_is_revoked(fleet: Fleet) -> None:
    """As after a stolen key: renewed first, then revoked by serial, without a restart of anybody."""
    one, other = await strict_and_other(fleet)
    other.endpoint.set_targets(to(one))
    await linked(one, other)
    stolen = other.endpoint.credentials.serial
    renew(fleet, B)
    revoke(fleet.authority.tls(B).ca.parent, stolen)
    await eventually(lambda: len(one.events.ups) == len(other.events.ups) == 2)
    await linked(one, other)
    assert stolen in one.events.downs[0][1]
    assert not one.endpoint.credentials.problem


async def test_5_a_live_link_ends_when_the_peers_certificate_expires(fleet: Fleet) -> None:
    clock = LaterClock()
    one, other = await fleet.member(A, clock=clock), await fleet.member(B)
    other.endpoint.set_targets(to(one))
    await linked(one, other)
    renew(fleet, B, days=1000)
    clock.ahead = 366 * 86_400
    await eventually(lambda: other.events.downs)
    assert "expired on" in one.events.downs[0][1]
    assert "expired on" in other.events.downs[0][1]
    await linked(one, other)  # with the certificate renewed meanwhile
    assert one.endpoint.violations == {"expired": 1}


@pytest.mark.parametrize("outgoing", [True, False])
async def test_5_a_peer_with_an_expired_certificate_gets_no_link(fleet: Fleet, outgoing: bool) -> None:
    one = await fleet.member(A)
    renew(fleet, B, days=1 / 86_400)
    other = await fleet.member(B)
    await eventually(lambda: time.time() > other.endpoint.credentials.expires_at)
    dialler, dialled = (one, other) if outgoing else (other, one)
    dialler.endpoint.set_targets(to(dialled))
    await eventually(lambda: one.endpoint.violations["expired"] >= 2)
    assert not one.events.ups
    assert not other.events.ups
    assert not other.endpoint.checks()[1].ok


async def test_what_is_refused_is_told_and_checks_name_certificate_and_links(fleet: Fleet) -> None:
    told: list[tuple[str, str, str]] = []
    credentials = Credentials(with_list(fleet, A), SystemClock())
    one = await fleet.member(A, tls=credentials, closes=lambda *what: told.append(what))
    other = await fleet.member(B)
    other.endpoint.set_targets(to(one))
    await linked(one, other)
    assert [(check.name, check.ok) for check in one.endpoint.checks()] == [("links", True), ("certificate", True)]
    assert one.endpoint.checks()[0].reason == "1 up"
    revoke_all(fleet, B)
    await eventually(lambda: told)
    kind, peer, reason = told[0]
    assert (kind, peer) == ("revoked", str(B))
    assert "was revoked on" in reason
    await one.endpoint.stop()
    assert not one.endpoint.checks()[0].ok


async def test_a_node_does_not_start_under_another_name_than_its_certificates(fleet: Fleet) -> None:
    with pytest.raises(Invalid, match="it names beta/node-1, this node is alpha/node-1"):
        await fleet.member(A, tls=fleet.authority.tls(B))

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.routes.keys import HOUSE, Tenant
from trunkline.routes.sync.base import Ack, Delta, Item, Operation
from trunkline.routes.sync.postgres import MOST_BYTES
from trunkline.routes.sync.texts import MOST_REASON, ack_text, delta_text, read_ack, read_delta

MINE = Tenant("myorg", "myapp")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TENANTS = st.builds(Tenant, TEXTS, TEXTS) | st.just(HOUSE)
ROUTES = st.builds(
    Delta, st.sampled_from([Operation.ADD, Operation.REMOVE]), TENANTS, TEXTS.filter(bool), TEXTS, TEXTS, st.just(Item.ROUTE)
)
OTHERS = st.builds(Delta, st.just(Operation.ADD), TENANTS, st.just(""), TEXTS, TEXTS, st.just(Item.TENANT)) | st.builds(
    Delta, st.just(Operation.ALL), st.just(HOUSE), st.just(""), TEXTS, TEXTS
)


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (Delta(Operation.ADD, HOUSE, "rid", "iid", "sid"), "add,rid,iid,sid"),
        (Delta(Operation.REMOVE, MINE, "rid", "iid", "sid"), "rem,rid,iid,sid,route,myorg,myapp"),
        (Delta(Operation.ADD, MINE, "", "iid", "sid", Item.TENANT), "add,,iid,sid,tenant,myorg,myapp"),
        (Delta(Operation.ALL, HOUSE, "", "iid", "sid"), "all,,iid,sid"),
        (Delta(Operation.ADD, HOUSE, "a,b%", "site/node", "1\n2"), "add,a%2Cb%25,site/node,1%0A2"),
    ],
)
def test_a_delta_s_text(delta: Delta, text: str) -> None:
    assert delta_text(delta) == text
    assert read_delta(text) == delta


def test_an_ack_s_text() -> None:
    ack = Ack("sid", "iid", 12, "no: a, b", Operation.ADD, MINE, "rid")
    assert ack_text(ack) == "add,rid,iid,sid,route,myorg,myapp,12,no: a%2C b"
    assert read_ack(ack_text(ack)) == ack


def test_an_ack_as_the_design_document_has_it() -> None:
    assert read_ack("add,rid,iid,sid") == Ack("sid", "iid", 0, "", Operation.ADD, HOUSE, "rid")


@given(ROUTES | OTHERS)
def test_every_delta_is_read_as_it_was_written_in_one_line_of_ascii(delta: Delta) -> None:
    text = delta_text(delta)
    assert text.isascii()
    assert text.isprintable()
    assert read_delta(text) == delta


@given(ROUTES | OTHERS, TEXTS, st.integers(0, 2**63 - 1), TEXTS)
def test_every_ack_is_read_as_it_was_written(delta: Delta, instance: str, revision: int, reason: str) -> None:
    ack = Ack.of(delta, instance, revision, reason)
    assert read_ack(ack_text(ack)) == ack


@given(st.text())
def test_no_text_makes_reading_raise(text: str) -> None:
    assert read_delta(text) is None or read_delta(text) == read_delta(delta_text(read_delta(text)))  # type: ignore[arg-type]
    assert read_ack(text) is None or read_ack(text) == read_ack(ack_text(read_ack(text)))  # type: ignore[arg-type]


def test_the_longest_reason_of_the_widest_characters_fits_into_a_notification() -> None:
    ack = Ack("s" * 128, "i" * 128, 2**63 - 1, "\U0001f600" * MOST_REASON, id="r" * 128, tenant=Tenant("o" * 128, "a" * 128))
    assert len(ack_text(ack)) <= MOST_BYTES

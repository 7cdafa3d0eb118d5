"""Lists of clusters: what is read of them, and that COPY gives back the names that were sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.bridge.compliancelists import BETWEEN, read
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps

NAME = st.text(st.characters(exclude_characters=BETWEEN + "\x00", exclude_categories=("Cs",)), min_size=1)
_UNESCAPED = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}


def _unescaped(text: str) -> str:
    out, at = "", 0
    while at < len(text):
        step = 2 if text[at] == "\\" else 1
        out += _UNESCAPED.get(text[at : at + step], text[at : at + step])
        at += step
    return out


@given(policy=NAME, names=st.lists(NAME, min_size=1, unique=True))
def test_a_line_of_copy_gives_back_the_names_that_were_sent(policy: str, names: list[str]) -> None:
    told = read(dumps([{"policyId": policy, "pendingComplianceClusters": names}]), "x")
    assert told.rows == len(names)
    [line] = told.lines("h\t1").split("\n")[:-1]
    site, *columns = [_unescaped(column) for column in line.split("\t")]
    assert (site, columns) == ("h\t1", [policy, "pending", BETWEEN.join(names)])


@pytest.mark.parametrize("odd", list("\\\t\n\r\x1f\x00"))
def test_names_travel_as_they_are_only_if_none_of_them_needs_an_escape(odd: str) -> None:
    def verbatim(policy: str, cluster: str) -> bool:
        return read(dumps([{"policyId": policy, "compliantClusters": [cluster]}]), "x").verbatim

    assert verbatim("P", "ü\x7f'c")
    assert not verbatim("P", f"c{odd}")
    assert not verbatim(f"P{odd}", "c")


def test_a_control_character_that_json_does_not_escape_is_no_json() -> None:
    with pytest.raises(Invalid, match="not JSON"):
        read(b'[{"policyId": "P", "compliantClusters": ["a\tb"]}]', "x")


@pytest.mark.parametrize("nothing", [None, [], "", 0, False])
def test_a_list_that_says_nothing_names_nobody(nothing: Any) -> None:
    item = {"policyId": "P", "compliantClusters": nothing, "nonCompliantClusters": ["c"]}
    assert read(dumps([item]), "x").lists == [("P", "non_compliant", ["c"])]
    assert read(dumps(item), "x").lists == [("P", "non_compliant", ["c"])]

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bridge_hub import cluster, clusters, compliance, events, verdict

from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Bundle, Dependency, Mode, Version
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps


def changed(bundle: Bundle, **fields: Any) -> Bundle:
    return msgspec.structs.replace(bundle, **fields)


@pytest.mark.parametrize("bundle", [clusters("a", 1), compliance("a", 1, None), compliance("a", 1, 1), events("a", 1)])
def test_a_bundle_as_declared_is_accepted(bundle: Bundle) -> None:
    assert SHIPPED.accept(bundle) is bundle


@pytest.mark.parametrize(
    ("bundle", "why"),
    [
        (changed(clusters("a", 1), type="weather"), "not declared"),
        (changed(clusters("a", 1), mode=Mode.APPEND), "mode is append"),
        (changed(events("a", 1), mode=Mode.COMPLETE), "mode is complete"),
        (changed(clusters("a", 1), dependency=Dependency("compliance", Version(1, 1))), "dependency on compliance"),
        (changed(clusters("a", 1), version=Version(2**63, 1)), "above 2"),
        (changed(compliance("a", 1, 1), dependency=Dependency("clusters", Version(1, 2**63))), "above 2"),
    ],
)
def test_anything_else_is_refused_with_its_reason(bundle: Bundle, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        SHIPPED.accept(bundle)


def test_rows_come_in_the_declared_order_without_columns_nobody_declared() -> None:
    row = {**cluster("c1", "ok", 7), "added_by_a_newer_sender": 1}
    assert SHIPPED["clusters"].rows(dumps([row])) == [("c1", "ok", 7, cluster("c1")["changed_at"])]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "not JSON"),
        (b"{}", "not a list"),
        (b"[1]", "not an object"),
        (dumps([{"cluster": "c", "policy": "p", "state": "x"}]), "no column changed_at"),
        (dumps([{**verdict("c"), "state": {"deep": 1}}]), "an object or a list"),
    ],
)
def test_data_that_are_not_rows_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        SHIPPED["compliance"].rows(data)

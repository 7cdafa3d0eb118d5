"""How far a quiet stream is, told to those it has nothing for."""

from __future__ import annotations

from carriers import Fleet

from trunkline.trunk.children import SIGN_SECONDS

CHAIN = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f")]


def test_a_site_far_away_hears_within_one_sign_that_the_log_went_on_without_anything_for_it() -> None:
    fleet = Fleet(CHAIN, delay=0.02)
    fleet.commit("a", "b")
    fleet.run(SIGN_SECONDS + 0.3)
    assert {site: fleet.carriers[site].cursors()["a"] for site in "bcdef"} == dict.fromkeys("bcdef", 1)
    assert fleet.got("b", "a") == [1]
    assert [fleet.got(site, "a") for site in "cdef"] == [[]] * 4

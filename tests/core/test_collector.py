"""The search for cycles rests while many things are made, and goes on whatever happens meanwhile."""

from __future__ import annotations

import gc

import pytest

from trunkline.core.collector import LASTING, MANY, collector_at_rest, patient_collector


def test_it_rests_while_many_things_are_made() -> None:
    with collector_at_rest(MANY):
        assert not gc.isenabled()
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), collector_at_rest():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_for_a_few_things_it_is_left_alone() -> None:
    with collector_at_rest(MANY - 1):
        assert gc.isenabled()


def test_a_very_large_table_is_left_out_of_later_searches() -> None:
    gc.unfreeze()  # whatever ran before in this process
    try:
        with collector_at_rest(LASTING - 1):
            pass
        assert gc.get_freeze_count() == 0
        with collector_at_rest(LASTING):
            table = [[number] for number in range(LASTING)]
        assert gc.get_freeze_count() >= len(table)
    finally:
        gc.unfreeze()


def test_events_that_come_and_go_start_no_search_in_a_process_that_serves() -> None:
    usual = gc.get_threshold()
    patient_collector()
    try:
        gc.collect()
        before = [found["collections"] for found in gc.get_stats()]
        for _ in range(20):
            batch = [[{"event": number}] for number in range(5_000)]
            del batch
        assert [found["collections"] for found in gc.get_stats()] == before
    finally:
        gc.set_threshold(*usual)


def test_who_has_switched_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()

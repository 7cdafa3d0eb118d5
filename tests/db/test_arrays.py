"""Quick arrays say what psycopg's own say."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.db.arrays import use_quick_arrays
from trunkline.db.embedded import EmbeddedPostgres

TEXTS = st.lists(st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), max_size=8), max_size=5)
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)


@pytest.fixture(scope="module")
def conn(postgres: EmbeddedPostgres) -> Any:
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        use_quick_arrays(conn)
        yield conn


def _given_back(conn: psycopg.Connection[Any], kind: str, values: list[Any]) -> Any:
    row = conn.execute(f"SELECT %s::{kind}[]".encode(), (values,)).fetchone()
    assert row is not None
    return row[0]


@settings(max_examples=200, deadline=None)
@given(values=TEXTS)
def test_texts_arrive_as_they_are(conn: psycopg.Connection[Any], values: list[str]) -> None:
    assert _given_back(conn, "text", values) == values


@pytest.mark.parametrize("values", [["NULL", "", "{}", 'a"b\\', "a,b"], ["x", None], [None], []])
def test_words_that_mean_something_in_an_array_are_texts(conn: psycopg.Connection[Any], values: list[Any]) -> None:
    assert _given_back(conn, "text", values) == values


@pytest.mark.parametrize(("kind", "quick", "slow"), [("text", ["x", "y"], ["x", None]), ("bigint", [1, 2], [1, None])])
def test_a_list_with_nulls_is_right_before_and_after_one_without(
    postgres: EmbeddedPostgres, kind: str, quick: list[Any], slow: list[Any]
) -> None:
    with psycopg.connect(postgres.dsn) as fresh:
        use_quick_arrays(fresh)
        for values in (quick, slow, quick, [None], slow, []):
            assert _given_back(fresh, kind, values) == values


@settings(max_examples=100, deadline=None)
@given(values=NUMBERS)
def test_numbers_arrive_as_they_are(conn: psycopg.Connection[Any], values: list[int]) -> None:
    assert _given_back(conn, "bigint", values) == values


def test_a_number_too_large_for_a_bigint_is_still_a_number(conn: psycopg.Connection[Any]) -> None:
    assert _given_back(conn, "numeric", [2**64]) == [2**64]


def test_a_nul_character_is_refused_before_it_is_sent(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        _given_back(conn, "text", ["a\x00b"])
    assert _given_back(conn, "text", ["a"]) == ["a"]


def test_texts_fit_columns_that_are_not_text(conn: psycopg.Connection[Any]) -> None:
    found = conn.execute("SELECT count(*) FROM pg_class WHERE relname = ANY(%s)", (["pg_class", "pg_type"],)).fetchone()
    assert found == (2,)

"""Range digests: sums that tell where two stores differ."""

from __future__ import annotations

from trunkline.store.digest import LEAVES, MASK, ROW_BYTES, WIDTH, Digest, differing, word
from trunkline.store.table import Table
from trunkline.store.values import refresh_of, sealed


def table(**data: bytes) -> Table:
    made = Table()
    made.take({key: sealed(key, 1, "n", value, 3_600_000) for key, value in data.items()}, 0.0)
    return made


def leaf_index(key: str) -> int:
    only = table(**{key: b""})
    return next(index for index in range(LEAVES) if only.digest.keys((index,)))


def test_an_empty_store_is_all_zero() -> None:
    digest = Digest()
    assert digest.root() == 0
    assert digest.ranges() == digest.leaves(0) == bytes(ROW_BYTES)
    assert digest.keys(range(LEAVES)) == []


def test_the_root_is_the_sum_of_the_ranges_and_a_range_of_its_leaves() -> None:
    digest = table(**{f"k{n}": bytes(n) for n in range(1000)}).digest
    zeros = bytes(ROW_BYTES)

    def sums(row: bytes) -> list[int]:
        return [int.from_bytes(row[n : n + 8]) for n in range(0, len(row), 8)]

    ranges = sums(digest.ranges())
    assert len(ranges) == WIDTH
    assert digest.root() == sum(ranges) & MASK
    assert ranges == [sum(sums(digest.leaves(index))) & MASK for index in range(WIDTH)]
    assert differing(digest.ranges(), zeros) == [n for n in range(WIDTH) if ranges[n]]


def test_one_difference_shows_in_one_range_and_one_leaf() -> None:
    data = {f"k{n}": b"v" for n in range(5000)}
    mine, theirs = table(**data), table(**{**data, "k17": b"w"})
    assert mine.digest.root() != theirs.digest.root()
    (index,) = differing(mine.digest.ranges(), theirs.digest.ranges())
    (leaf,) = differing(mine.digest.leaves(index), theirs.digest.leaves(index), index * WIDTH)
    assert leaf == leaf_index("k17")
    assert "k17" in mine.digest.keys((leaf,))
    assert len(mine.digest.keys((leaf,))) < 20


def test_a_swap_of_bytes_or_of_refreshes_between_keys_does_not_cancel_out() -> None:
    assert table(a=b"1", b=b"2").digest.root() != table(a=b"2", b=b"1").digest.root()
    mine, theirs = table(a=b"", b=b""), table(a=b"", b=b"")
    for one, key in ((mine, "a"), (theirs, "b")):
        one.take({key: refresh_of(one.entries[key].value, 3_600_000)}, 0.0)
    assert mine.digest.root() != theirs.digest.root()


def test_what_comes_and_goes_leaves_no_trace_in_the_sums() -> None:
    t = table(stays=b"v")
    before = t.digest.root(), t.digest.ranges()
    t.take({"goes": sealed("goes", 1, "n", b"v", 1000)}, 0.0)
    assert t.digest.root() == (before[0] + word(t.entries["goes"].value)) & MASK
    t.take({"goes": sealed("goes", 2, "n", b"w", 1000)}, 0.0)
    assert set(t.expire(2.0)) == {"goes"}
    assert (t.digest.root(), t.digest.ranges()) == before
    assert t.digest.keys(range(LEAVES)) == ["stays"]

"""What neighbours and people are told: each change once."""

from __future__ import annotations

import pytest
from topologies import Lone, path, rows_of

from trunkline.topology.effects import PublishRows, Tell
from trunkline.topology.links import LinkRow
from trunkline.topology.messages import CODEC, Progress, Told
from trunkline.topology.rows import Row
from trunkline.topology.settings import PublishRowsWhen, Settings

STAR = rows_of(b="x d e", d="b", e="b")


def progress_to(lone: Lone, site: str) -> list[Progress]:
    news, lone.effects = lone.effects, []
    return [e.message for e in news if isinstance(e, Tell) and e.site == site and isinstance(e.message, Progress)]


def test_a_new_neighbour_is_told_everything_and_later_only_what_changed() -> None:
    lone = Lone(STAR)
    lone.up("b")
    lone.wait()
    lone.since()
    lone.up("c")
    first = lone.since()[0]
    assert first == Tell("c", Told((Row("b", "b", ("b",), 1), path("d", "b"), path("e", "b")), full=True))
    lone.links(b="x d")
    lone.wait()
    gone = Told((), ("e",))
    told = [e for e in lone.since() if isinstance(e, Tell) and isinstance(e.message, Told)]
    assert told[-2:] == [Tell("b", gone), Tell("c", gone)]


def test_a_link_that_is_announced_twice_is_told_everything_again_and_nothing_moves() -> None:
    lone = Lone(STAR)
    lone.up("b")
    lone.wait()
    lone.since()
    lone.up("b")
    (effect,) = lone.since()
    assert isinstance(effect, Tell)
    assert isinstance(effect.message, Told)
    assert effect.message.full


def test_a_neighbour_of_another_incarnation_is_another_link() -> None:
    lone = Lone(STAR)
    lone.up("b")
    lone.wait()
    lone.accepts = False
    lone.up("b", incarnation=2)
    assert lone.core.rows == {}


def test_answers_that_come_together_are_told_together() -> None:
    lone = Lone(STAR)
    lone.up("b")
    lone.accepts = False
    lone.wait()
    lone.since()
    for origin in "de":
        lone.take(lone.core.subscribed(origin, "b", lone.now))
    lone.take(lone.core.subscribed("d", "b", lone.now))
    lone.wait(0.02)
    assert [e.message.rows for e in lone.since() if isinstance(e, Tell) and isinstance(e.message, Told)] == [
        (path("d", "b"),),
        (path("e", "b"),),
    ]


def test_progress_is_whole_at_first_then_only_what_changed_once_a_heartbeat() -> None:
    lone = Lone(STAR)
    lone.up("b")
    lone.cursors = {"b": 5, "d": 7}
    lone.progress("b", {"b": 9, "d": 8})
    lone.wait(0.6)
    assert progress_to(lone, "b")[0].cursors == {"b": 5, "d": 7}
    lone.wait(1.0)
    assert progress_to(lone, "b") == []
    lone.cursors = {"b": 6, "d": 7}
    lone.wait(0.6)
    assert progress_to(lone, "b") == [Progress({"b": 6}, {})]
    lone.up("c")
    lone.wait(0.6)
    (whole,) = progress_to(lone, "c")
    assert whole.cursors == {"b": 6, "d": 7}
    assert whole.heads == {"b": 9, "c": 0, "d": 8, "e": 0, "x": 0}


def test_a_head_is_passed_on_from_the_parent_alone_so_a_log_that_begins_anew_is_not_kept_up_by_rumour() -> None:
    lone = Lone(rows_of(b="x o", c="x o", o="b c"))
    lone.up("b", "c")
    lone.progress("b", {"o": 4})
    lone.progress("c", {"o": 900})
    lone.wait(0.6)
    assert lone.vias()["o"] == "b"
    assert progress_to(lone, "c")[-1].heads["o"] == 4


def test_children_are_counted_from_told_rows_and_told() -> None:
    lone = Lone(STAR)
    lone.up("b", "c")
    lone.told("c", path("d", "x", "b"), path("b", "x"))
    lone.wait(0.6)
    assert progress_to(lone, "b")[0].children == {"d": 1, "b": 1}
    lone.told("c", gone="d")
    lone.wait(0.6)
    assert progress_to(lone, "b")[-1].children == {"d": 0}


@pytest.mark.parametrize(
    ("when", "sites", "published"),
    [
        (PublishRowsWhen.AUTO, 3, True),
        (PublishRowsWhen.AUTO, 65, False),
        (PublishRowsWhen.ALWAYS, 65, True),
        (PublishRowsWhen.NEVER, 3, False),
    ],
)
def test_rows_are_published_for_people_in_small_fleets(when: PublishRowsWhen, sites: int, published: bool) -> None:
    leaves = [f"s{i}" for i in range(sites)]
    lone = Lone({"b": LinkRow(1, tuple(leaves)), **{leaf: LinkRow(1, ("b",)) for leaf in leaves}}, Settings(publish_rows=when))
    lone.up("b")
    lone.wait(1.0)
    shown = [e.rows for e in lone.effects if isinstance(e, PublishRows) and e.rows is not None]
    if published:
        assert shown[-1] == tuple(row for _, row in sorted(lone.core.rows.items()))
    else:
        assert all(len(rows) <= 1 for rows in shown)
        assert [e for e in lone.effects if isinstance(e, PublishRows)][-1:] in ([], [PublishRows(None)])


def test_a_fleet_that_grew_too_large_lets_go_of_its_published_rows() -> None:
    lone = Lone(STAR, Settings(publish_rows_sites=4))
    lone.up("b")
    lone.wait(1.0)
    assert [len(e.rows) for e in lone.effects if isinstance(e, PublishRows) and e.rows is not None][-1] == 3
    lone.effects.clear()
    lone.links(b="x d e f", f="b")
    lone.wait(1.0)
    assert [e for e in lone.effects if isinstance(e, PublishRows)] == [PublishRows(None)]


def test_messages_survive_the_wire() -> None:
    for message in (Told((path("d", "b"),), ("e",)), Progress({"d": 7}, {"d": 9}, {"d": 1})):
        assert CODEC.decode(CODEC.encode(message)) == message


def test_what_a_site_without_a_link_says_is_ignored() -> None:
    lone = Lone(STAR)
    lone.since()
    lone.told("b", path("d"))
    lone.progress("b", d=7)
    lone.down("b")
    assert lone.since() == []

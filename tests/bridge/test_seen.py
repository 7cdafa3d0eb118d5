"""When a site was last heard is what its bundles say, and never more than is possible."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from bridge_hub import Hub, auto

from trunkline.bridge.batch import Arrived, moment
from trunkline.bridge.seen import newest, see
from trunkline.core.bundle import Mode

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def heard(time: datetime | str, at: float | None = None, site: str = "a") -> Arrived:
    text = time if isinstance(time, str) else time.isoformat()
    return Arrived(auto(site, "clusters", Mode.COMPLETE, 1, 1, [], time=text), "q", 1, at)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T12:00:00Z", NOON.timestamp()),
        ("2026-01-01T13:00:00+01:00", NOON.timestamp()),
        ("2026-01-01T12:00:00", NOON.timestamp()),
        ("2026-01-01T12:00:00.123456789Z", NOON.timestamp() + 0.123456),
        ("", None),
        ("noon", None),
        ("0001-01-01T00:00:00+23:59", -62135683140.0),
    ],
)
def test_times_are_read_as_cloud_events_write_them(text: str, expected: float | None) -> None:
    assert moment(text) == expected


def test_a_bundle_is_sent_not_later_than_its_record_is() -> None:
    record = NOON.timestamp()
    assert heard(NOON + timedelta(hours=1), record).sent == record
    assert heard(NOON - timedelta(hours=1), record).sent == record - 3600
    assert heard("", record).sent == record
    assert heard(NOON).sent == NOON.timestamp()
    assert heard("").sent is None


def test_the_newest_of_a_site_counts() -> None:
    two = [heard(NOON), heard(NOON - timedelta(1)), heard(NOON + timedelta(1), site="b")]
    assert newest(two) == newest(two[::-1]) == {"a": NOON.timestamp(), "b": (NOON + timedelta(1)).timestamp()}
    assert newest([heard(NOON), heard("")]) == newest([heard(""), heard(NOON)]) == {"a": None}


def test_last_seen_never_goes_back_and_never_ahead_of_the_hub(hub: Hub) -> None:
    def last_seen() -> datetime:
        [(seen,)] = hub.conn.execute("SELECT last_seen FROM bridge.site WHERE site = 'a'").fetchall()
        assert isinstance(seen, datetime)
        return seen

    [(now,)] = hub.conn.execute("SELECT now()").fetchall()
    see(hub.conn, "queues", [heard(NOON)])
    assert last_seen() == NOON
    see(hub.conn, "queues", [heard(NOON - timedelta(1))])
    assert last_seen() == NOON
    see(hub.conn, "kafka", [heard(NOON + timedelta(minutes=1))])
    assert last_seen() == NOON + timedelta(minutes=1)
    assert hub.conn.execute("SELECT transport, state, first_seen = now() FROM bridge.site").fetchall() == [
        ("kafka", "active", True)
    ]
    see(hub.conn, "kafka", [heard(now + timedelta(days=365))])
    assert last_seen() == now
    hub.conn.rollback()


def test_taking_in_says_who_was_heard_and_keeps_the_time_of_each_bundle(hub: Hub) -> None:
    hub.take_in(
        auto("a", "clusters", Mode.COMPLETE, 1, 1, [], time="2026-01-01T12:00:00Z"),
        auto("b", "clusters", Mode.COMPLETE, 1, 1, [], time="2999-01-01T12:00:00Z"),
        auto("c", "clusters", Mode.COMPLETE, 1, 1, [], time="soon"),
    )
    found = hub.rows("SELECT i.site, event_time, event_time = arrived_at, last_seen = event_time FROM bridge.inbox i"
                     " JOIN bridge.site USING (site) ORDER BY 1")  # fmt: skip
    assert [(site, equal, same) for site, _, equal, same in found] == [("a", False, True), ("b", True, True), ("c", None, None)]
    assert found[0][1] == NOON
    assert hub.rows("SELECT site, transport FROM bridge.site ORDER BY 1") == [("a", "queues"), ("b", "queues"), ("c", "queues")]

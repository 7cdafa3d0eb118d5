"""Routes from Kafka, on Spark, a real broker and Postgres."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_topics import Topics
from route_jobs import RouteJobs
from trunkline.core.jsoncodec import dumps, loads
from waiting import eventually

MakeJobs = Callable[..., RouteJobs]


def received(topics: Topics, topic: str, start: str = "earliest") -> dict[str, Any]:
    return {"plugin": "kafka", "config": {"brokers": topics.bootstrap, "topic": topics.name(topic), "startAt": start}}


def sent(topics: Topics, topic: str, **more: Any) -> dict[str, Any]:
    return {"plugin": "kafka", "config": {"brokers": topics.bootstrap, "topic": topics.name(topic), **more}}


def only(**pattern: Any) -> dict[str, Any]:
    return {"plugin": "match", "config": {"matcher": "pattern", "pattern": pattern}}


def came(topics: Topics, topic: str) -> list[Any]:
    return [loads(value) for value in topics.values(topic)]


def test_records_go_through_their_routes_to_topics(topics: Topics, make_jobs: MakeJobs) -> None:
    topics.create("in", "alarms", "all")
    topics.put("in", *(dumps({"kind": "alarm" if n % 3 == 0 else "note", "n": n}) for n in range(30)))
    jobs = make_jobs()
    jobs.put("alarms", received(topics, "in"), sent(topics, "alarms"), only(kind="alarm"))
    jobs.put("all", received(topics, "in"), sent(topics, "all"))
    eventually(lambda: len(topics.values("all")) >= 30, 60, jobs.failing)
    assert [one["n"] for one in came(topics, "all")] == list(range(30))
    assert [one["n"] for one in came(topics, "alarms")] == list(range(0, 30, 3))
    eventually(lambda: jobs.count("all").sent == 30)
    assert jobs.count("alarms").sent == 10


def test_a_topic_that_goes_backward_stands_still_says_so_and_stops_no_other(topics: Topics, make_jobs: MakeJobs) -> None:
    topics.create("cut", "well", "out")
    topics.put("cut", *(dumps({"cut": n}) for n in range(3)))
    jobs = make_jobs()
    jobs.put("cut", received(topics, "cut"), sent(topics, "out"))
    jobs.put("well", received(topics, "well"), sent(topics, "out"))
    eventually(lambda: len(topics.values("out")) == 3, 60, jobs.failing)
    jobs.rows("UPDATE pipeline.kafka_offset SET next_offset = 9 WHERE next_offset = 3 RETURNING 1")
    topics.put("cut", dumps({"cut": 3}))
    topics.put("well", *(dumps({"well": n}) for n in range(2)))
    eventually(lambda: came(topics, "out")[3:] == [{"well": 0}, {"well": 1}], 60, jobs.failing)
    (failing,) = jobs.failing()
    assert "it goes backward: read up to 9, but it ends at 4" in failing
    assert "set its offset in pipeline.kafka_offset" in failing
    jobs.rows("UPDATE pipeline.kafka_offset SET next_offset = 3 WHERE next_offset = 9 RETURNING 1")
    eventually(lambda: came(topics, "out")[5:] == [{"cut": 3}], 60, jobs.failing)
    eventually(lambda: jobs.failing() == [""], 30, jobs.failing)

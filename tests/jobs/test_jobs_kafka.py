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

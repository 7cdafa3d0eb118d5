"""Routes that share a receiver share its events; what one makes of them no other ever sees."""

from __future__ import annotations

import copy
import threading
from typing import Any

from trunkline.routes.chain import Chain, Step
from trunkline.routes.event import Event
from trunkline.routes.filters.mapping import MAPPING
from trunkline.routes.filters.match import MATCH
from trunkline.routes.filters.modify import MODIFY
from trunkline.routes.filters.transform import TRANSFORM
from trunkline.routes.filters.unwrap import UNWRAP
from trunkline.routes.plugin import Around, FilterPlugin

EVENTS = 10_000
THREADS = 4


def chain(*filters: tuple[FilterPlugin[Any], dict[str, Any]]) -> Chain:
    return Chain([Step(plugin.name, plugin.compile(plugin.config.model_validate(raw), Around())) for plugin, raw in filters])


UNWRAPPING = chain((UNWRAP, {"path": ".a"}), (MODIFY, {"path": ".x", "toUpper": True}))
PLAIN = chain()


def test_s20_a_route_does_not_see_what_another_made_of_the_same_event() -> None:
    batch = [Event({"a": {"x": "v"}})]
    assert [e.payload for e in UNWRAPPING.run(batch).out] == [{"x": "V"}]
    assert [e.payload for e in PLAIN.run(batch).out] == [{"a": {"x": "v"}}]
    assert batch == [Event({"a": {"x": "v"}})]


def test_s20_ten_thousand_events_through_two_routes_from_several_threads() -> None:
    batch = [Event({"a": {"x": f"v{n}"}}, {"n": n}) for n in range(EVENTS)]
    before = copy.deepcopy(batch)
    ready, results = threading.Barrier(THREADS), dict[int, list[Event]]()

    def work(number: int) -> None:
        ready.wait()
        results[number] = (UNWRAPPING if number % 2 else PLAIN).run(batch).out

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    upper = [{"x": f"V{n}"} for n in range(EVENTS)]
    assert [[e.payload for e in results[n]] for n in range(THREADS)] == [
        upper if n % 2 else [e.payload for e in before] for n in range(THREADS)
    ]
    assert [e.metadata for e in results[1]] == [e.metadata for e in before]
    assert batch == before


def test_s20_no_filter_that_sets_something_changes_what_it_was_given() -> None:
    raw = {"a": {"x": "v", "l": [{"k": 1}, {"k": 2}]}, "other": {"deep": []}}
    changing = [
        (MATCH, {"matcher": "pattern", "pattern": {"a": {"x": "v"}}}),
        (TRANSFORM, {"toPath": ".a.new", "transformation": {"l": "{.a.l}"}, "metadata": {"m": "{metadata.m}!"}}),
        (MAPPING, {"arrayPath": ".a.l", "path": ".k", "map": [{"from": 1, "to": "one"}], "defaultValue": 0}),
        (MODIFY, {"path": ".a.x", "toUpper": True}),
    ]
    event = Event(copy.deepcopy(raw), {"m": 1})
    (made,) = chain(*changing).run([event]).out
    assert (event.payload, event.metadata) == (raw, {"m": 1})
    new = {"l": [{"k": 1}, {"k": 2}]}
    assert made.payload == {"a": {"x": "V", "l": [{"k": "one"}, {"k": 0}], "new": new}, "other": {"deep": []}}
    assert made.metadata == {"m": "1!"}
    assert made.payload["other"] is event.payload["other"]
    assert made.origin is event

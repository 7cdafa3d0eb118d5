"""The numbers: the node's views, its checks, and the API's own requests under few labels."""

from __future__ import annotations

from typing import Any

import httpx

from memory_node import MemoryNode, client_over
from trunkline.api.topologymetrics import trunk_metrics
from trunkline.core.errors import Retryable
from trunkline.core.health import Check


async def lines(client: httpx.AsyncClient) -> list[str]:
    return (await client.get("/metrics")).text.splitlines()


class Busy(MemoryNode):
    def status(self) -> dict[str, Any]:
        tasks = {"tick": {"failures": 3, "state": "runs"}, "probe": {"failures": 4}}
        return {**super().status(), "tasks": tasks, "failures": 7}


async def test_the_views_numbers_have_their_place_as_label() -> None:
    async with client_over(Busy()) as client:
        found = await lines(client)
    for line in (
        'trunkline_status_leader{of=""} 1.0',
        'trunkline_status_epoch{of=""} 17.0',
        'trunkline_status_age_seconds{of=""} 0.5',
        'trunkline_status_failures{of="tasks.tick"} 3.0',
        'trunkline_status_failures{of="tasks.probe"} 4.0',
        'trunkline_status_failures{of=""} 7.0',
    ):
        assert line in found
    assert not any("state" in line for line in found)


async def test_paths_and_moves_are_numbers(client: httpx.AsyncClient) -> None:
    found = await lines(client)
    for line in (
        "# TYPE trunkline_topology_rows gauge",
        "trunkline_topology_rows 3.0",
        "trunkline_topology_neighbours 2.0",
        "# TYPE trunkline_topology_moves_total counter",
        'trunkline_topology_moves_total{manner="first"} 3.0',
        'trunkline_topology_moves_total{manner="forced"} 2.0',
        'trunkline_topology_moves_total{manner="voluntary"} 1.0',
        'trunkline_topology_moves_total{manner="watchdog"} 0.0',
        'trunkline_view_answers{view="topology"} 1.0',
    ):
        assert line in found


async def test_what_was_carried_is_counted_by_link_and_its_lag_by_origin(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.paths.lag = 5
    node.paths.links["oslo"] = {}
    found = await lines(client)
    for line in (
        "# TYPE trunkline_trunk_received_total counter",
        'trunkline_trunk_received_total{link="hub"} 4711.0',
        'trunkline_trunk_received_total{link="oslo"} 0.0',
        'trunkline_trunk_duplicate_total{link="rome"} 0.0',
        'trunkline_trunk_stray_total{link="rome"} 1.0',
        'trunkline_trunk_catch_up_total{link="rome"} 12.0',
        'trunkline_trunk_hole_total{link="hub"} 1.0',
        'trunkline_trunk_bytes_total{direction="sent",link="hub"} 8316.0',
        'trunkline_trunk_bytes_total{direction="received",link="hub"} 3.145728e+06',
        'trunkline_trunk_lag_entries{origin="lyon"} 5.0',
    ):
        assert line in found
    assert 'trunkline_trunk_hole_total{link="oslo"}' not in "".join(found)


async def test_of_two_streams_of_an_origin_the_greater_lag_counts_and_an_unknown_one_is_none() -> None:
    streams = [{"origin": "lyon", "lag": 3}, {"origin": "lyon", "lag": 70}, {"origin": "rome", "lag": None}]
    (lags,) = (family for family in trunk_metrics({"streams": streams}) if family.name == "trunkline_trunk_lag_entries")
    assert [(sample.labels, sample.value) for sample in lags.samples] == [({"origin": "lyon"}, 70)]


async def test_readiness_and_each_check_are_numbers(client: httpx.AsyncClient, node: MemoryNode) -> None:
    assert {"trunkline_ready 1.0", 'trunkline_check{name="lease"} 1.0'} <= set(await lines(client))
    node.well[1] = Check("lease", False, "held by another")
    assert {"trunkline_ready 0.0", 'trunkline_check{name="lease"} 0.0', 'trunkline_check{name="database"} 1.0'} <= set(
        await lines(client)
    )


async def test_a_view_that_fails_takes_only_its_own_numbers_away(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.fails = Retryable("node", "it has not started yet", "ask again")
    found = await lines(client)
    for line in (
        "trunkline_ready 0.0",
        'trunkline_view_answers{view="status"} 0.0',
        'trunkline_view_answers{view="trunk"} 1.0',
        'trunkline_trunk_sent_total{link="hub"} 42.0',
    ):
        assert line in found
    assert not any(line.startswith("trunkline_status_") for line in found)


async def test_requests_are_counted_by_template_method_and_status(client: httpx.AsyncClient) -> None:
    for path in ("/v1/store/fleet", "/v1/store/plant-1", "/wp-login.php", "/.env"):
        await client.get(path)
    await client.request("BREW", "/v1/status")
    found = await lines(client)
    for line in (
        'trunkline_http_requests_total{method="GET",route="/v1/store/{area}",status="200"} 2.0',
        'trunkline_http_requests_total{method="GET",route="(none)",status="404"} 2.0',
        'trunkline_http_requests_total{method="other",route="/v1/status",status="405"} 1.0',
        'trunkline_http_request_seconds_count{method="GET",route="/v1/store/{area}",status="200"} 2.0',
    ):
        assert line in found
    assert not any(outside in line for line in found for outside in ("wp-login", "BREW", "env"))


async def test_a_refused_request_counts_too(client: httpx.AsyncClient) -> None:
    await client.get("/v1/status", headers={"Host": "evil.example"})
    assert 'trunkline_http_requests_total{method="GET",route="/v1/status",status="403"} 1.0' in await lines(client)


async def test_the_form_is_what_the_reader_asks_for(client: httpx.AsyncClient) -> None:
    plain = await client.get("/metrics")
    open_form = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert open_form.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert open_form.text.endswith("# EOF\n")

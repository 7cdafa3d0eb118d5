"""The numbers: the node's views, its checks, and the API's own requests under few labels."""

from __future__ import annotations

import httpx
from memory_node import MemoryNode

from trunkline.core.errors import Retryable
from trunkline.core.health import Check


async def lines(client: httpx.AsyncClient) -> list[str]:
    return (await client.get("/metrics")).text.splitlines()


async def test_the_views_numbers_have_their_place_as_label(client: httpx.AsyncClient) -> None:
    found = await lines(client)
    for line in (
        'trunkline_status_leader{of=""} 1.0',
        'trunkline_status_epoch{of=""} 17.0',
        'trunkline_status_age_seconds{of=""} 0.5',
        'trunkline_trunk_sent{of="links.hub"} 3.0',
        'trunkline_trunk_sent{of="links.site-b"} 4.0',
        'trunkline_trunk_sent{of=""} 7.0',
    ):
        assert line in found
    assert not any("state" in line for line in found)


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
        'trunkline_trunk_sent{of=""} 7.0',
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

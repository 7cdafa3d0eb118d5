"""The queue sender: the message a chain's last event becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.core.ids import ALL_SITES, check_name
from trunkline.core.jsoncodec import dumps
from trunkline.routes.event import Event, Outgoing
from trunkline.routes.model import QueueConfig
from trunkline.routes.paths import as_text, compile_tree

Send = Callable[[Event], Outgoing]


def compile_queue(route_id: str, config: QueueConfig, constants: Mapping[str, str]) -> Send:
    """Headers and destinations are evaluated on the event as it entered the chain; the payload is what left it.

    An event without what a header or a destination refers to is refused: `Invalid`, and nothing of its batch is sent.
    """
    headers = compile_tree(config.headers, constants)
    destinations = compile_tree(list(config.destinations), constants)

    def send(event: Event) -> Outgoing:
        return Outgoing(
            route_id=route_id,
            client=config.client,
            destinations=_sites(route_id, destinations(event.origin)),
            headers={name: _header(route_id, name, value) for name, value in headers(event.origin).items()},
            payload=dumps(event.payload),
        )

    return send


def _header(route_id: str, name: str, value: Any) -> str:
    text = as_text(value)
    if value is None or "\0" in text:
        why = "the event has no value for it" if value is None else "its value holds a NUL character"
        raise Invalid(f"route {route_id}: header {name}", why, "send an event with the field its template names")
    return text


def _sites(route_id: str, values: list[Any]) -> tuple[str, ...]:
    """A template may give one site or a list of them; each site once."""
    flat = [site for value in values for site in (value if isinstance(value, list) else [value])]
    for site in flat:
        if not isinstance(site, str):
            raise Invalid(f"route {route_id}: destination {site!r}", "it is not a text", "send an event that names a site")
        if site != ALL_SITES:
            check_name("site", site)
    if not flat:
        raise Invalid(f"route {route_id}", "its destinations are empty", "send an event that names a site")
    return tuple(dict.fromkeys(flat))

"""The queue sender: the message a chain's last event becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from trunkline.core.errors import Invalid
from trunkline.core.ids import ALL_SITES, check_name
from trunkline.routes.ends import Place, Sending
from trunkline.routes.event import Event, Outgoing
from trunkline.routes.fields import ClientName, Destination, RouteModel, Template
from trunkline.routes.paths import compile_tree
from trunkline.routes.plugin import Around, Runs, SenderPlugin
from trunkline.routes.senders.prepared import json_of, text_of


class QueueConfig(RouteModel):
    """A message for a client at other sites. Templates see the event as it *entered* the chain, not what the filters made of
    it.

    Messages of one call are one transaction, in their order. One to a site that nobody knows, or that is too large, is refused
    alone; one whose destinations have all fallen too far behind is tried again."""

    client: ClientName = Field(examples=["status"], description="whose queue it goes to")
    destinations: tuple[Destination, ...] = Field(
        min_length=1, examples=[["hub"]], description="sites, '*', or templates that give them"
    )
    headers: dict[str, Template] = Field(
        default_factory=dict, examples=[{"ce_id": "{payload.id}"}], description="the message's headers"
    )


def compile_queue(config: QueueConfig, around: Around) -> Callable[[Event], Outgoing]:
    """Headers and destinations are evaluated on the event as it entered the chain; the payload is what left it.

    An event without what a header or a destination refers to is refused: `Invalid`, and nothing of its batch is sent.
    """
    headers = compile_tree(config.headers, around.constants)
    destinations = compile_tree(list(config.destinations), around.constants)

    def send(event: Event) -> Outgoing:
        return Outgoing(
            client=config.client,
            destinations=_sites(destinations(event.origin)),
            headers={name: text_of(f"header {name}", value) for name, value in headers(event.origin).items()},
            payload=json_of("payload", event.payload).encode(),
        )

    return send


def _sites(values: list[Any]) -> tuple[str, ...]:
    """A template may give one site or a list of them; each site once."""
    flat = [site for value in values for site in (value if isinstance(value, list) else [value])]
    for site in flat:
        if not isinstance(site, str):
            raise Invalid(f"destination {site!r}", "it is not a text", "send an event that names a site")
        if site != ALL_SITES:
            check_name("site", site)
    if not flat:
        raise Invalid("destinations", "there are none", "send an event that names a site")
    return tuple(dict.fromkeys(flat))


async def _open(config: QueueConfig, place: Place) -> Sending:
    from trunkline.routes.senders.queue_sending import QueueSending

    return QueueSending(place)


QUEUE = SenderPlugin("queue", QueueConfig, Runs.BOTH, compile_queue, Outgoing, _open, once=True, spread=True)

"""What a route says or makes of an event, without its secrets: reasons, messages, dead letters.

Taken out are the secrets that its plugins were given, and all that is hidden where the route itself is shown (W1 to W3 of
`trunkline.routes.redaction`), wherever they stand. Headers and addresses of a message are masked as those of a route are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.core.secret import STARS
from trunkline.routes.keys import RouteKey
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.redaction import hidden_texts, shown_parts
from trunkline.routes.route import Route
from trunkline.routes.secrets import scrubbed
from trunkline.routes.shown import models_of
from trunkline.routes.storage.base import Body
from trunkline.routes.workshop import Workshop


class Hiding:
    """Of one route; `route`: with its references followed."""

    def __init__(self, workshop: Workshop, body: Body, route: Route) -> None:
        self._texts = hidden_texts(body, models_of(workshop.plugins))
        self._configs = [use.config for _, use in route.places if use.config is not None]

    @classmethod
    def stored(cls, workshop: Workshop, key: RouteKey, body: Body) -> Hiding | None:
        """None: nobody can read this route now, so nothing is known of its secrets."""
        reading = read_route({**body, "id": key.id}, RouteReader(workshop.plugins), key.tenant)
        if reading.mistakes:
            return None
        route = reading.routes[0].route
        try:
            return cls(workshop, body, workshop.followed(route))
        except Invalid:
            return cls(workshop, body, route)

    def message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.of(value) for key, value in shown_parts(message).items()}

    def text(self, text: str) -> str:
        for config in self._configs:
            text = scrubbed(text, config)
        for hidden in self._texts:
            text = text.replace(hidden, STARS)
        return text

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.of(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(item) for item in value]
        return STARS if str(value) in self._texts else value

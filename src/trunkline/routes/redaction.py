"""How a route is shown: every way out (REST, CLI, logs, errors) goes through `redacted`.

W1  In a field that the plugin's model calls a `Secret` a reference is shown as it is, and anything else as that type shows
    itself: stars, or of a connection string its harmless parts.
W2  What nobody knows is hidden: all texts and numbers of a plugin without a model, and under keys that its model lacks.
W3  Passwords and keys in addresses are hidden wherever they stand.
W4  What was shown may come back: where it is as it was shown, it means what it was (`filled`), but never for another plugin,
    or one that now sends elsewhere. In a list it may stand elsewhere; where it cannot be said which it was, it means nothing.
    Stars that mean nothing are refused, so that no password ever becomes three stars.
W5  What a route makes of an event is shown without what is hidden of the route itself (`trunkline.routes.hiding`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel

from trunkline.core.errors import Invalid
from trunkline.core.fields import kinds, named
from trunkline.core.mistakes import Location, key_text
from trunkline.core.secret import SCHEME, STARS, Secret
from trunkline.routes.secrets import Text
from trunkline.routes.storage.base import Body

ModelOf = Callable[[str, str], type[BaseModel] | None]
"""The model of a plugin's configuration: (receiver | filter | sender, plugin) → model; none if nobody knows the plugin."""

_KINDS = {"receiver": "receiver", "sender": "sender", "filterChain": "filter", "filter_chain": "filter"}
_IN_ADDRESS = (
    re.compile(r"(://[^\s/?#:@]*:)(?!\d+(?:[/?#\s]|$))(\S+)(?=@)"),
    re.compile(r"([?&][\w.\-]*(?:passw|secret|token|credential|key|sig|signature)=)(?!\{)([^&#\s]+)", re.I),
    re.compile(r"(://(?:[\w.\-]*discord(?:app)?\.com/api/(?:v\d+/)?webhooks|hooks\.slack\.com/\w+)/)([^\s?#{]+)", re.I),
)
_STARRED = re.compile(r":\*\*\*@|[?&][\w.\-]+=\*\*\*|://[^\s?#]+/\*\*\*")
_SHORTEST = 4  # letters of a hidden text that is looked for in others: shorter ones are in every second word
_TELLING = re.compile(r"authorization|passw|secret|token|cookie|credential|api[-_]?key", re.I)
_WHERE = re.compile(r"url|uri|broker|endpoint|address|host|server|database|tls|cert|^client$|^destinations?$", re.I)
_CONTENT = frozenset({"payload", "metadata", "body"})
_REFERS = re.compile(r"\{[^{}]*\}")


class _Told(Secret):
    """What stands under a telling name."""

    @classmethod
    def plain(cls, text: str) -> Self:
        return cls(text, text if _REFERS.fullmatch(text) else STARS)


@dataclass(frozen=True)
class _Sort:
    """What may stand at a place: values that `secret` shows, and maps that have the fields of one of `models`."""

    secret: type[Secret] | None = None
    models: tuple[type[BaseModel], ...] = ()

    def below(self, key: str) -> _Sort:
        fields = [field for model in self.models if (field := named(model, key))]
        if fields:
            return _sort(*(field.annotation for field in fields))
        if self.models:
            return _Sort(Secret, self.models)
        open = self.secret is None or issubclass(self.secret, Text)
        return _TOLD if open and _TELLING.search(key) else self


_OPEN, _HIDDEN, _TOLD = _Sort(), _Sort(Secret), _Sort(_Told)


def _sort(*annotations: Any) -> _Sort:
    found = [kind for annotation in annotations for kind in kinds(annotation)]
    secret = next((kind for kind in found if issubclass(kind, Secret)), None)
    return _Sort(secret, tuple(kind for kind in found if issubclass(kind, BaseModel)))


def redacted(route: Body, model_of: ModelOf) -> dict[str, Any]:
    return {key: _shown_part(_KINDS.get(key), value, model_of) for key, value in route.items()}


def redacted_plugin(kind: str, plugin: Body, model_of: ModelOf) -> dict[str, Any]:
    """A plugin of a route, or a fragment."""
    model = model_of(kind, str(plugin.get("plugin", "")))
    sort = _Sort(models=(model,)) if model else _HIDDEN
    return {key: _shown(value, sort if key == "config" else _OPEN) for key, value in plugin.items()}


def shown_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a sender is given, or a dead letter holds: of an event only what is written around it is looked at."""
    return {key: value if key in _CONTENT else _shown(value, _OPEN) for key, value in message.items()}


def hidden_texts(route: Body, model_of: ModelOf) -> list[str]:
    """What of this route nobody is shown, the longest first: of templates what stands between references."""
    found = set(_hidden(route, redacted(route, model_of)))
    return sorted((text for text in found if len(text) >= _SHORTEST), key=len, reverse=True)


def filled(route: Body, before: Body, model_of: ModelOf) -> dict[str, Any]:
    """The route that somebody sends who was shown the one before."""
    made: dict[str, Any] = _filled(dict(route), before, redacted(before, model_of))
    left = [key_text(at, made) for at in _stars(made, ())]
    if left:
        next_step = "write the secret, or secret:// and its key; stars mean the one before only where plugin and address stay"
        raise Invalid(", ".join(left), "stars stand there instead of a secret", next_step)
    return made


def _shown_part(kind: str | None, value: Any, model_of: ModelOf) -> Any:
    if kind and isinstance(value, Mapping):
        return redacted_plugin(kind, value, model_of)
    if kind and isinstance(value, list | tuple):
        return [_shown_part(kind, plugin, model_of) for plugin in value]
    return _shown(value, _OPEN)


def _shown(value: Any, sort: _Sort) -> Any:
    if isinstance(value, Mapping):
        return {key: _shown(item, sort.below(str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item, sort) for item in value]
    if not isinstance(value, str):
        return STARS if sort.secret and not isinstance(value, bool | None) else value
    if sort.secret and not value.startswith(SCHEME):
        value = sort.secret.plain(value).shown
    for pattern in _IN_ADDRESS:
        value = pattern.sub(rf"\1{STARS}", value)
    return value


def _hidden(value: Any, shown: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _hidden(item, shown[key])
    elif isinstance(value, list | tuple):
        for item, said in zip(value, shown, strict=True):
            yield from _hidden(item, said)
    elif value != shown and shown == STARS:
        yield from (piece.strip() for piece in _REFERS.split(str(value)))
    elif isinstance(value, str):
        yield from (found[2] for pattern in _IN_ADDRESS for found in pattern.finditer(value))


def _filled(value: Any, before: Any, shown: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        if value.get("plugin") != before.get("plugin") or _goes(value.get("config")) != _goes(shown.get("config")):
            return value
        return {key: _filled(item, before.get(key), shown.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(before, list):
        return _filled_list(value, before, shown)
    return before if isinstance(value, str) and value == shown else value


def _filled_list(value: list[Any], before: list[Any], shown: list[Any]) -> list[Any]:
    """One item may have changed where it stands; others that are not where they were are known by all that they show."""
    if len(value) == len(before) and sum(item != said for item, said in zip(value, shown, strict=True)) <= 1:
        return [_filled(*three) for three in zip(value, before, shown, strict=True)]
    return [_meant(item, [old for old, said in zip(before, shown, strict=True) if said == item]) for item in value]


def _meant(item: Any, olds: list[Any]) -> Any:
    return olds[0] if olds and _stars(item, ()) and all(old == olds[0] for old in olds) else item


def _goes(config: Any) -> list[tuple[Location, Any]]:
    """Where a plugin of this configuration sends, and how it knows that it is there."""
    return list(_places(config, ()))


def _places(value: Any, at: Location) -> Iterator[tuple[Location, Any]]:
    if isinstance(value, Mapping):
        for key, item in sorted(value.items(), key=lambda pair: str(pair[0])):
            if _WHERE.search(str(key)):
                yield (*at, str(key)), item
            else:
                yield from _places(item, (*at, str(key)))


def _stars(value: Any, at: Location) -> list[Location]:
    if isinstance(value, Mapping):
        return [found for key, item in value.items() for found in _stars(item, (*at, str(key)))]
    if isinstance(value, list | tuple):
        return [found for n, item in enumerate(value) for found in _stars(item, (*at, n))]
    return [at] if isinstance(value, str) and (value == STARS or _STARRED.search(value)) else []

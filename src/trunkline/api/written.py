"""Bodies and answers of the routing table's endpoints: JSON, or YAML where the request says so.

A body is YAML if its `Content-Type` says `yaml`; an answer is if the request's `Accept` or `Content-Type` does. What was sent
is plain JSON afterwards: YAML's dates and sets, whole numbers of more than 64 bits, keys that are no texts and endless aliases
are refused.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import yaml
from fastapi import Request, Response

from trunkline.core.document import Document
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads
from trunkline.core.mistakes import Location, Mistake, Mistakes, key_text, quoted
from trunkline.routes.fields import WHOLE

JSON, YAML = "application/json", "application/yaml"
MAX_DEPTH = 64
MAX_PARTS = 1_000_000  # a body of some megabytes; aliases can make a short text endless
_SCALARS = (str, int, float, bool, type(None))


def read_body(request: Request, body: bytes) -> Any:
    """Takes its time, for YAML about a second for each 200 kB."""
    value = _from_yaml(body) if _says_yaml(request, "content-type") else loads(body, "body")
    check_plain(value)
    return value


def answer(request: Request, content: dict[str, Any]) -> Response:
    if _says_yaml(request, "accept") or _says_yaml(request, "content-type"):
        text = yaml.dump(loads(dumps(content)), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
        return Response(text, media_type=YAML)
    return Response(dumps(content), media_type=JSON)


def enveloped(**content: Any) -> dict[str, Any]:
    """As EARS answers: `status`, and `item` or `items`."""
    return {"status": {"code": 200, "message": "OK"}, **content}


def check_plain(value: Any) -> None:
    """Level by level, so that what is nested too deep is refused and not walked into."""
    level, parts, depth = [value], 0, 0
    while level:
        parts, depth = parts + len(level), depth + 1
        if depth > MAX_DEPTH + 1:
            raise Invalid("body", f"it is nested deeper than {MAX_DEPTH}", "make it flatter")
        if parts > MAX_PARTS:
            raise Invalid("body", f"it has more than {MAX_PARTS} parts", "make it smaller")
        for one in level:
            if isinstance(one, int) and one not in WHOLE:
                raise Invalid(
                    _place(value, one), "a whole number has at most 64 bits", "put it in quotes, or write it as 1.0e+30"
                )
            _check_one(one)
        level = [inner for one in level for inner in _inner(one)]


def _place(value: Any, wanted: int) -> str:
    """Where this number stands first."""
    places: deque[tuple[Any, Location]] = deque([(value, ())])
    while places:
        one, at = places.popleft()
        if one is wanted:
            return key_text(at, value) or "body"
        items = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        places += [(item, (*at, key)) for key, item in items]
    return "body"


def _inner(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _check_one(value: Any) -> None:
    if isinstance(value, dict):
        strange = next((key for key in value if not isinstance(key, str)), None)
        if strange is not None:
            raise Invalid(f"key {quoted(strange)}", "keys are texts in JSON", "put it in quotes")
    elif isinstance(value, float) and not math.isfinite(value):
        raise Invalid(f"value {value}", "JSON has no such number", "leave it out")
    elif not isinstance(value, (*_SCALARS, list)):
        raise Invalid("body", f"a {type(value).__name__} in it is not JSON", "put it in quotes")


def _says_yaml(request: Request, header: str) -> bool:
    return "yaml" in request.headers.get(header, "").lower()


def _from_yaml(body: bytes) -> Any:
    try:
        document = Document(body.decode("utf-8-sig"), "", "body")
    except UnicodeDecodeError:
        mistake = Mistake("", None, "", "it is not YAML: not text in UTF-8", "send it as UTF-8")
        raise Mistakes("body", [mistake], "mend it") from None
    if twice := document.twice():
        raise Mistakes("body", twice, "keep one of each")
    return document.value

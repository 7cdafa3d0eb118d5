"""What bundles of the fleet hold: JSON objects, whose fields become values of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from trunkline.bridge.staging import NULL, plain
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads

# As agents write them, in any case and with or without the underscore.
STATES = {
    "compliant": "compliant", "pending": "pending", "unknown": "unknown", "noncompliant": "non_compliant",
}  # fmt: skip


def objects(data: bytes, what: str) -> list[dict[str, Any]]:
    """A list of objects, or one object alone."""
    document = loads(data, f"data of {what}")
    items = document if isinstance(document, list) else [document]
    if not all(isinstance(item, dict) for item in items):
        raise Invalid(f"data of {what}", "it is not made of objects", "send a JSON array of objects")
    return items


def moment(text: str) -> datetime:
    """Raises ValueError; a time without a zone is of UTC."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def day_of(text: str) -> date:
    """Of UTC."""
    return moment(text).astimezone(UTC).date()


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise ValueError("it is an object or a list")
    if isinstance(value, bool):
        return "true" if value else "false"
    return plain(value) if isinstance(value, str) else str(value)


def _time(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it is not a time")
    return moment(value).astimezone(UTC).isoformat()


def _whole(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise ValueError("it is not a whole number of 32 bits")
    return str(value)


def _state(value: Any) -> str:
    state = STATES.get(value.lower().replace("_", "")) if isinstance(value, str) else None
    if state is None:
        raise ValueError(f"it is none of {', '.join(STATES.values())}")
    return state


_BY_TYPE: dict[str, Callable[[Any], str]] = {
    "timestamptz": _time,
    "int": _whole,
    "jsonb": lambda value: plain(dumps(value).decode()),
    "fleet.compliance_state": _state,
}


@dataclass(frozen=True)
class Field:
    """Where in an object a column's value is. `otherwise` stands for one that is missing, empty or null; without it there must
    be one."""

    path: tuple[str, ...]
    otherwise: str | None = None
    nullable: bool = False

    def read(self, item: Mapping[str, Any], sql_type: str) -> str:
        """The value, as COPY reads it."""
        value: Any = item
        for step in self.path:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None or value == "":
            return self._missing()
        try:
            return _BY_TYPE.get(sql_type, _text)(value)
        except (ValueError, OverflowError) as error:
            raise Invalid(f"field {'.'.join(self.path)}", str(error), f"send a value for {sql_type}") from None

    def _missing(self) -> str:
        if self.otherwise is not None:
            return self.otherwise
        if self.nullable:
            return NULL
        raise Invalid(f"field {'.'.join(self.path)}", "it is missing or empty", "send it with every object")

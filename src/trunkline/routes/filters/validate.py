"""validate: JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, Json, RouteModel, validated
from trunkline.routes.filters.schemas import DRAFT, check_schema, validator, within
from trunkline.routes.paths import event_path, reader
from trunkline.routes.patience import Patience, TooSlow
from trunkline.routes.plugin import Around, Faults, Filter, FilterPlugin

MAX_REASON = 300  # characters: a mistake quotes the value, however large that is


class ValidateConfig(RouteModel):
    """Lets an event pass if the value at `path` fits a JSON Schema; one that does not fit cannot be processed."""

    path: EventPath = Field(default=".", description="what is checked; what is not there is checked as null")
    json_schema: Json = Field(
        alias="schema",
        examples=[{"type": "object", "required": ["id"]}],
        description=f"of the draft that its $schema names; without one of {DRAFT}",
    )

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, value: Any) -> Any:
        return validated(check_schema, value)


def compile_validate(config: ValidateConfig, around: Around) -> Filter:
    path, check = event_path(config.path), validator(config.json_schema)
    read, patience = reader(path), Patience()

    def validate(batch: list[Event], faults: Faults) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            wrong = _first_mistake(check, read(event), patience)
            if wrong:
                faults.add(event, f"{path}{wrong}")
            else:
                out.append(event)
        return out

    return validate


def _first_mistake(check: Any, value: Any, patience: Patience) -> str:
    """Where below the path, and what; empty if there is none."""
    try:
        with within(patience.until()):
            error = next(check.iter_errors(value), None)
    except TooSlow:
        return f": to check it takes more than {patience.gave_up():g} s"
    except RecursionError:
        return ": nested too deeply to be checked"
    patience.done()
    if error is None:
        return ""
    said = error.message if len(error.message) <= MAX_REASON else error.message[:MAX_REASON] + "…"
    return f"{error.json_path[1:]}: {said}"


VALIDATE = FilterPlugin("validate", ValidateConfig, compile_validate, pure=True, heavy=True)

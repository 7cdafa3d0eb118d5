"""Environment variables that override a file: TRUNKLINE_SITE=hub, TRUNKLINE_LINK__LISTEN=0.0.0.0:7400.

The name is the key's path in capitals with `__` between. A text is taken as it is; numbers, lists and maps are written
as YAML. An empty variable overrides nothing. An unknown TRUNKLINE_ variable is a mistake: silence would hide a typo.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trunkline.core.document import Document
from trunkline.core.fields import is_single, kinds, nearest, sections
from trunkline.core.mistakes import Location, Mistake, Mistakes, key_text, printable
from trunkline.core.secret import Secret

PREFIX = "TRUNKLINE_"
OTHERS = frozenset({"TRUNKLINE_API_TOKEN", "TRUNKLINE_API_URL", "TRUNKLINE_CACHE", "TRUNKLINE_DEMO", "TRUNKLINE_SOAK"})
# Kubernetes puts such variables into every pod beside a service whose name begins with "trunkline".
_OF_A_SERVICE = re.compile(r"TRUNKLINE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


@dataclass(frozen=True)
class Override:
    variable: str
    location: Location
    text: str
    value: Any


def overrides(environ: Mapping[str, str], top: type[BaseModel]) -> tuple[list[Override], list[Mistake]]:
    """Whole sections before the keys in them."""
    known = _variables(top)
    found: list[Override] = []
    mistakes: list[Mistake] = []
    for variable in sorted(name for name in environ if name.startswith(PREFIX) and environ[name]):
        if variable in known:
            location, field = known[variable]
            try:
                found.append(Override(variable, location, environ[variable], _value(field, environ[variable], variable)))
            except Mistakes as error:
                mistakes += [Mistake(variable, None, key_text(location), m.reason, m.next_step) for m in error.mistakes]
        elif variable not in OTHERS and not _OF_A_SERVICE.fullmatch(variable):
            mistakes.append(_unknown(variable, list(known)))
    return sorted(found, key=lambda one: len(one.location)), mistakes


def variable_of(location: Location) -> str:
    return PREFIX + "__".join(str(part).upper() for part in location)


def _variables(top: type[BaseModel]) -> dict[str, tuple[Location, FieldInfo]]:
    return {
        variable_of((*above, name)): ((*above, name), field)
        for above, model in sections(top)
        for name, field in model.model_fields.items()
    }


def _value(field: FieldInfo, text: str, variable: str) -> Any:
    as_it_is = is_single(field.annotation) and all(issubclass(kind, str | Path | Secret) for kind in kinds(field.annotation))
    return text if as_it_is else Document(text, variable).value


def _unknown(variable: str, known: list[str]) -> Mistake:
    reason = f"there is no setting of this name, the nearest is {nearest(variable, known)}"
    return Mistake(printable(variable), None, "", reason, "correct the name, or unset it")

"""Kinds of single values in a configuration, each with the check that every value of it must pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from trunkline.core.address import check_dialled, check_listen
from trunkline.core.ids import check_name
from trunkline.core.reasons import Unfit, checked
from trunkline.core.references import References
from trunkline.core.secret import Secret


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise Unfit("a number is wanted; this is true or false to YAML, as are yes, no, on and off", "write a number")
    return value


def _in_folder(path: Path, info: ValidationInfo) -> Path:
    if "\0" in str(path):
        raise Unfit("a path has no character 0", "write the path of a file")
    return info.context.path(path) if isinstance(info.context, References) else path


def _check_token_hash(secret: Secret) -> Secret:
    if secret.known and not re.fullmatch("[0-9a-fA-F]{64}", secret.reveal()):
        raise Unfit("a SHA-256 is 64 hexadecimal digits", "`trunkline token new` prints it; the token itself stays out of here")
    return secret


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise Unfit("this is not an http or https URL", "write it like http://127.0.0.1:4318/v1/traces")
    if "@" in parts.netloc:
        raise Unfit("it has a password in it, which would be printed", "send it in headers, as secret://env/NAME")
    return url


def _check_area(name: str) -> None:
    if name == "fleet" or name.startswith("site:"):
        raise Unfit("every node is in it already", "name further areas only, or remove this line")
    check_name("area", name)


SiteName = Annotated[str, checked(lambda name: check_name("site", name))]
NodeName = Annotated[str, checked(lambda name: check_name("node", name))]
ClientName = Annotated[str, checked(lambda name: check_name("client", name))]
AreaName = Annotated[str, checked(_check_area)]
Listen = Annotated[str, checked(check_listen)]
Dialled = Annotated[str, checked(check_dialled)]
Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_number)]
Cost = Annotated[int, Ge(1), Le(1000), BeforeValidator(_number)]
LocalPath = Annotated[Path, AfterValidator(_in_folder)]
Url = Annotated[str, AfterValidator(_check_url)]
TokenHash = Annotated[Secret, AfterValidator(_check_token_hash)]

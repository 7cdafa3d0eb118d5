"""What a process is told about the routing table of its site."""

from __future__ import annotations

import re
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field

from trunkline.core.scalars import Number
from trunkline.core.secret import STARS, Secret
from trunkline.core.section import Model

POSTGRES = "postgres"
_DATABASE = re.compile(r"(/\d*)?")


class Where(Secret):
    """The site's own Postgres, or the address of a Redis: of that people see all but the password."""

    @classmethod
    def plain(cls, text: str) -> Self:
        return cls(text, _shown(text))

    @classmethod
    def mistake(cls, text: str) -> str:
        if text == POSTGRES or _is_redis(text):
            return ""
        return f"it is neither {POSTGRES} nor the address of a Redis such as redis://127.0.0.1:6379/0"


def _is_redis(text: str) -> bool:
    try:
        parts = urlsplit(text)
        there = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text and _DATABASE.fullmatch(parts.path) is not None
    return parts.scheme in ("redis", "rediss") and there and plain


def _shown(text: str) -> str:
    if not _is_redis(text):
        return text
    parts = urlsplit(text)
    login, at, host = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    rest = f"?{STARS}" if parts.query or parts.fragment else ""
    return f"{parts.scheme}://{user}{colon and ':' + STARS}{at}{host}{parts.path}{rest}"


class RoutingConfig(Model):
    """The routing table that all instances of the site share."""

    storage: Where = Field(
        default=Where(POSTGRES, POSTGRES),
        examples=["redis://127.0.0.1:6379/0"],
        description="where it is kept: postgres, the site's own database, or a Redis; the same at all instances",
    )
    sync: Where = Field(
        default=Where(POSTGRES, POSTGRES),
        examples=["redis://127.0.0.1:6379/0"],
        description="by what instances tell each other of changes: postgres or a Redis; the same at all instances",
    )
    region: str = Field(
        default="",
        max_length=255,
        examples=["eu-west"],
        description="this instance runs routes of this region, and those without",
    )
    repair_seconds: Number = Field(
        default=300.0,
        ge=1,
        le=86_400,
        description="how often an instance compares its table with the stored one, a tenth more or less",
    )
    look_seconds: Number = Field(
        default=3.0,
        ge=0.1,
        le=86_400,
        description="how often an instance asks for changes that it was not told of, a tenth more or less",
    )
    event_seconds: Number = Field(
        default=5.0, gt=0, le=3_600, description="an event given over the API that is not done by then counts as failed"
    )


RouteSecrets = dict[str, dict[str, dict[str, Secret]]]
"""organisation → application → key → secret"""

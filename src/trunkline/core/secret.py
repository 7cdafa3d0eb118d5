"""A secret: it is used by `reveal()`, and everything that prints it prints where it comes from, or stars.

A configuration gives a secret's text or, better, says where it is: `secret://env/NAME` or `secret://file/path`. A
reference is followed while the file is read (see `references`); a model made without a file keeps it unfollowed.
Pickled or copied, a secret stays a secret; dumped by pydantic, it is what people see.
"""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import core_schema

from trunkline.core.errors import Invalid

STARS = "***"
SCHEME = "secret://"
FORMS = f"{SCHEME}env/NAME or {SCHEME}file/path"


class Secret:
    """`shown` is what people see: the reference, or stars, or the harmless parts of the text."""

    __slots__ = ("_text", "shown")

    def __init__(self, text: str | None, shown: str = STARS) -> None:
        self._text, self.shown = text, shown

    @property
    def known(self) -> bool:
        return self._text is not None

    def reveal(self) -> str:
        if self._text is None:
            raise Invalid(f"secret {self.shown}", "nobody has followed this reference", "read it with load_config")
        return self._text

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._text, self.shown) == (other._text, other.shown)

    def __hash__(self) -> int:
        return hash(self._text)

    @classmethod
    def plain(cls, text: str) -> Self:
        """A secret written out in the file: all of it is hidden."""
        return cls(text)

    @classmethod
    def mistake(cls, text: str) -> str:
        """Why this text cannot be such a secret, without showing it; empty when it can."""
        return "" if text else "it is empty"

    @classmethod
    def _validated(cls, value: Any, as_text: core_schema.ValidatorFunctionWrapHandler, info: ValidationInfo) -> Self:
        if isinstance(value, cls):
            return value
        text: str = as_text(value)
        if not text.startswith(SCHEME):
            return cls.plain(_checked(text, cls.mistake(text)))
        if info.context is None or not info.context.follows:
            return cls(None, text)
        found: str = info.context.follow(text)
        why = cls.mistake(found)
        return cls(_checked(found, why and f"what {text} holds cannot be used: {why}"), text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_wrap_validator_function(
            cls._validated,
            core_schema.str_schema(strict=True),
            serialization=core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema()),
        )


def _checked(text: str, why: str) -> str:
    if why:
        raise ValueError(why)
    return text


_HARMLESS = frozenset(["host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name", "connect_timeout"])
_VALUE = r"""'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)+"""
_PAIR = re.compile(rf"\s*([a-z_]+)\s*=\s*({_VALUE}|)(?=\s|$)\s*", re.S)
_SIMPLE = re.compile(r"'[\w.,:/ -]*'|[\w.,:/-]*")
_HOST = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?"
_URL = re.compile(
    rf"(postgres(?:ql)?://)(?:([\w.%-]*)(:[^?]*)?@)?((?:{_HOST})?(?:,{_HOST})*)(/[\w.%-]*)?(\?.*)?", re.S
)  # a password may hold an @: the last one ends it


class ConnectionString(Secret):
    """Of a connection string people see host, port, database and user; whatever else it has may be a password."""

    @classmethod
    def plain(cls, text: str) -> Self:
        return cls(text, _shown(text))

    @classmethod
    def mistake(cls, text: str) -> str:
        if text.startswith(("postgres://", "postgresql://")) or _pairs(text):
            return ""
        return "it is not a connection string such as host=db.example.com dbname=site user=trunkline"


def _pairs(text: str) -> list[tuple[str, str]] | None:
    """The settings of `key=value key=value`; nothing when that is not what the text is."""
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None:
            return None
        pairs.append((found[1], found[2]))
        at = found.end()
    return pairs


def _shown(text: str) -> str:
    if found := _URL.fullmatch(text):
        scheme, user, password, hosts, database, options = found.groups(default="")
        login = f"{user}{password and ':' + STARS}@" if user or password else ""
        return f"{scheme}{login}{hosts}{database}{options and '?' + STARS}"
    return " ".join(f"{key}={value if _harmless(key, value) else STARS}" for key, value in _pairs(text) or ()) or STARS


def _harmless(key: str, value: str) -> bool:
    return key in _HARMLESS and _SIMPLE.fullmatch(value) is not None

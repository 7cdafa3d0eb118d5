"""A secret: it is used by `reveal()`, and everything that prints it prints where it comes from, or stars."""

from __future__ import annotations

import re
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

STARS = "***"
_PASSWORD = re.compile(r"""(password\s*=\s*)('[^']*'|\S+)|(://[^:/@\s]*:)([^@\s]+)(?=@)""", re.I)


class Secret:
    """`shown` is what people see: the reference, or the text with its password replaced."""

    __slots__ = ("_text", "shown")

    def __init__(self, text: str, shown: str = STARS) -> None:
        self._text, self.shown = text, shown

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Secret({self.shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        from_text = core_schema.no_info_after_validator_function(cls.plain, core_schema.str_schema())
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), from_text]),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def plain(cls, text: str) -> Secret:
        """A secret written out in the file: all of it is hidden."""
        return cls(text)


class ConnectionString(Secret):
    """Of a connection string only the password is hidden."""

    @classmethod
    def plain(cls, text: str) -> ConnectionString:
        return cls(text, _PASSWORD.sub(lambda m: f"{m[1] or m[3]}{STARS}", text))

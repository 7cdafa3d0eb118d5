"""What requests to the store carry, checked, and how the API's description shows it."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator
from pydantic.json_schema import models_json_schema

from trunkline.api.bridgemodels import ResyncWanted
from trunkline.api.queuesmodels import SyncWanted
from trunkline.api.routesmodels import ApplyWanted, ExplainWanted, TestWanted
from trunkline.api.storeview import Put
from trunkline.core.address import check_dialled
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.store.values import MAX_VERSION

MAX_TTL_MS = 10 * 365 * 24 * 3600 * 1000
MOST_AT_ONCE = 10_000
_REFERENCE = "#/components/schemas/{model}"

Ttl = Annotated[int, Field(ge=1, le=MAX_TTL_MS, description="milliseconds to live, at most ten years", examples=[30_000])]
_M = TypeVar("_M", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class StorePut(_Body):
    text: str | None = Field(default=None, description="the value, as text", examples=["on"])
    base64: str | None = Field(default=None, description="the value, as bytes; either this or `text`")
    ttl_ms: Ttl | None = Field(default=None, description="left out: for ever or, if it is kept, the node's default")
    version: int | None = Field(default=None, ge=1, le=MAX_VERSION, description="left out: one above what is stored")
    keep: Literal["no", "set", "persist"] = Field(
        default="no",
        description="no: written once. set: this node refreshes it until somebody else writes it. persist: this node also "
        "raises it above whatever overrides it",
    )

    @model_validator(mode="after")
    def _one_value(self) -> StorePut:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("give either text or base64")
        return self

    def put(self) -> Put:
        return Put(self._data(), self.ttl_ms, self.version, self.keep)

    def _data(self) -> bytes:
        if self.base64 is None:
            return (self.text or "").encode()
        try:
            return base64.b64decode(self.base64, validate=True)
        except (binascii.Error, ValueError):
            raise Invalid("value", "its base64 is not base64", "encode the bytes, with padding") from None


class StorePuts(_Body):
    values: dict[str, StorePut] = Field(min_length=1, max_length=MOST_AT_ONCE)


class StoreTtls(RootModel[dict[str, Ttl | None]]):
    """key → its new ttl; null: for ever."""

    model_config = ConfigDict(strict=True)
    root: dict[str, Ttl | None] = Field(min_length=1, max_length=MOST_AT_ONCE)


class StoreKeys(_Body):
    keys: list[str] = Field(min_length=1, max_length=MOST_AT_ONCE)


class StorePeer(_Body):
    addresses: list[str] = Field(min_length=1, max_length=16, examples=[["lyon.example.com:7400"]])

    def checked(self) -> list[str]:
        return [check_dialled(address) for address in self.addresses]


BODIES: tuple[type[BaseModel], ...] = (
    StorePut, StorePuts, StoreTtls, StoreKeys, StorePeer, SyncWanted, ResyncWanted, ApplyWanted, ExplainWanted, TestWanted,
)  # fmt: skip


def read_body(model: type[_M], body: bytes) -> _M:
    """Read by our own codec: the framework's lets through text that is not Unicode."""
    return checked_body(model, loads(body, "body"))


def checked_body(model: type[_M], value: Any) -> _M:
    what = "body"
    try:
        return model.model_validate(value)
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, e['loc'])) or what}: {e['msg']}" for e in error.errors()[:5])
        raise Invalid(what, why, "see /docs for what it may have") from None


def body_of(model: type[BaseModel], example: Any) -> dict[str, Any]:
    """For `openapi_extra`."""
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


def body_schemas() -> dict[str, Any]:
    _, found = models_json_schema([(model, "validation") for model in BODIES], ref_template=_REFERENCE)
    definitions: dict[str, Any] = found["$defs"]
    return definitions

"""A commented file to begin with: every setting with its description and default, all of it taken from the models.

`# ` begins a comment for people; a `#` without a space begins a setting that may be switched on by removing it.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Invalid
from trunkline.core.fields import example, is_single, limits, models_in, yaml_text
from trunkline.core.ids import check_name

_WIDTH = 110
_HUB = {"seeds": ["hub.example.com:7400"], "links": ["hub"]}
_TLS = {"ca": "tls/ca.pem", "certificate": "tls/certificate.pem", "key": "tls/key.pem", "revoked": "tls/revoked.pem"}
_HEAD = """\
A {kind} of a Trunkline fleet: {about}.

What stands here without a # must fit your site. A key behind a # has its default: remove the # to change it.
Relative paths begin in this file's folder. A variable overrides a key: TRUNKLINE_LINK__LISTEN=0.0.0.0:7400.

  DATABASE_URL='host=... dbname=... user=... password=...'; export DATABASE_URL
  trunkline ca init --out ca                                 once for the whole fleet
  trunkline ca issue --ca ca {site}/node-1 --out tls
  cp ca/ca.pem ca/revoked.pem tls/                          again after each `ca revoke`
  trunkline config lint {file}
  trunkline node run --config {file}{more}

Help while editing: trunkline config schema > trunkline.schema.json
yaml-language-server: $schema=trunkline.schema.json"""


@dataclass(frozen=True)
class Kind:
    about: str
    site: str
    chosen: Mapping[str, Any]
    more: str = ""


KINDS = {
    "site": Kind(
        "it dials the hub, sends and receives, and carries nothing for others",
        "site-1",
        {"link": _HUB},
    ),
    "relay": Kind(
        "it has a link with the hub, and other sites have theirs with it",
        "relay",
        {"link": {"listen": "0.0.0.0:7400", "advertise": ["relay.example.com:7400"], **_HUB}},
    ),
    "hub": Kind(
        "the other sites find it, and it takes in their status",
        "hub",
        {"link": {"listen": "0.0.0.0:7400", "advertise": ["hub.example.com:7400"]}, "bridge": {"client": "status"}},
        "\n  trunkline pipeline run --config {file}",
    ),
}


def starter(kind: str, site: str | None = None, file: str = "FILE") -> str:
    if kind not in KINDS:
        raise Invalid(f"kind {kind!r}", "there is no such kind of process", f"write one of: {', '.join(KINDS)}")
    plan = KINDS[kind]
    name = check_name("site", site or plan.site)
    if name in plan.chosen["link"].get("links", ()):
        raise Invalid(f"site {name!r}", f"this is what the new {kind} would be linked with", "choose another name with --site")
    chosen = {"site": name, "node": "node-1", "database": "secret://env/DATABASE_URL", "tls": _TLS}
    head = _HEAD.format(kind=kind, about=plan.about, site=name, file=file, more=plan.more.format(file=file))
    comment = "\n".join(f"# {line}".rstrip() for line in head.splitlines())
    return "\n".join([comment, *_section(ProcessConfig, {**chosen, "api": {"listen": "127.0.0.1:8400"}, **plan.chosen})]) + "\n"


def _section(model: type[BaseModel], chosen: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = models_in(field.annotation)
        if not indent:
            yield ""
        yield from textwrap.wrap(_about(field), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        if name not in chosen:
            yield from (f"{indent}#{line}" for line in _switched_off(name, field, inner))
        elif inner:
            yield f"{name}:"
            yield from _section(inner[0], chosen[name], "  ")
        else:
            yield f"{indent}{name}: {yaml_text(chosen[name])}"


def _switched_off(name: str, field: FieldInfo, inner: list[type[BaseModel]]) -> Iterator[str]:
    if not inner:
        yield f"{name}: {_value(field)}"
        return
    yield f"{name}:"
    leads = itertools.repeat("  ") if is_single(field.annotation) else itertools.chain(["  - "], itertools.repeat("    "))
    for lead, (key, each) in zip(leads, inner[0].model_fields.items(), strict=False):
        yield f"{lead}{key}: {_value(each)}  # {_about(each)}"


def _value(field: FieldInfo) -> str:
    """The default; where there is none, an example."""
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return example(field) if default is None else yaml_text(default)


def _about(field: FieldInfo) -> str:
    docs = [" ".join(model.__doc__.split()) for model in models_in(field.annotation) if model.__doc__]
    unset = "not set by default" if field.default is None else ""
    sentence = "; ".join(text for text in (field.description, limits(field), unset) if text)
    return " ".join([*docs, sentence[:1].upper() + sentence[1:] + "." if sentence else ""]).strip()

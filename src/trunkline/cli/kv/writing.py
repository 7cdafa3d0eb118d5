"""`trunkline kv set`, `refresh`, `erase`, `clear`, `add-peer` and `delete-peer`."""

from __future__ import annotations

import base64
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO, AreaOption, KeyArgument, KeysArgument, TokenOption, UrlOption, ttl_ms
from trunkline.cli.options import JsonOption
from trunkline.core.errors import Invalid

_MOST = 1024 * 1024  # far more than a value may have: the node says no, with its own limit

PeerArgument = Annotated[str, typer.Argument(metavar="SITE/NODE")]


class Keep(StrEnum):
    NO = "no"
    SET = "set"
    PERSIST = "persist"


def set_(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value; @FILE: what is in it; -: standard input.")],
    url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet",
    ttl: Annotated[str | None, typer.Option(help="How long it lives: 30s, 5m, 1h, never.", show_default="never ends")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Its version.", show_default="one above what is stored")] = None,
    keep: Annotated[
        Keep,
        typer.Option(
            help="set: the node refreshes it until somebody else writes it. persist: it also raises it above whatever "
            "overrides it. Both write it within a moment."
        ),
    ] = Keep.NO,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Writes a key: 0 when it is taken, 1 when it is refused.

    Example: [bold]trunkline kv set app/lamp on --ttl 30s[/]
    """
    from trunkline.cli.kv.client import Client, Refusal, at

    body = _value(value) | {"ttl_ms": ttl_ms(ttl), "version": version, "keep": keep.value}
    try:
        with Client(url, token) as client:
            stored = client.ask("PUT", at(area, "keys", key), body)["stored"]
    except Refusal as refusal:
        if refusal.slug not in ("not-taken", "too-large"):
            raise
        if as_json:
            shown.print_json({"key": key, "taken": False, "why": refusal.why, "next": refusal.next_step})
        else:
            shown.print_refusal(refusal.what, refusal.why, refusal.next_step)
        raise typer.Exit(NO) from None
    if as_json:
        shown.print_json({"key": key, "taken": True, "stored": stored})
    else:
        typer.echo(f"taken: {shown.harmless(key)}, " + (f"version {stored['version']}" if stored else "written in a moment"))


def _value(text: str) -> dict[str, str]:
    if text != "-" and not text.startswith("@"):
        return {"text": text}
    data = _read(text)
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _read(text: str) -> bytes:
    if text == "-":
        data = sys.stdin.buffer.read(_MOST + 1)
    else:
        try:
            with Path(text[1:]).open("rb") as file:
                data = file.read(_MOST + 1)
        except OSError as error:
            raise Invalid(
                f"value {text!r}", f"the file cannot be read: {error.strerror}", "name a file, or give - for input"
            ) from None
    if len(data) > _MOST:
        raise Invalid(f"value {text!r}", "it is larger than any value may be", "store a reference to it")
    return data


def refresh(
    keys: KeysArgument,
    ttl: Annotated[str, typer.Option(help="How long it lives from now on: 30s, 5m, 1h, never.")],
    url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet", as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Gives keys a new time to live, and leaves their values: 0 when all are taken, else 1.

    Example: [bold]trunkline kv refresh app/lamp --ttl 5m[/]
    """
    _many(url, token, area, "refresh", dict.fromkeys(keys, ttl_ms(ttl)), "refreshed", as_json)


def clear(
    keys: KeysArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    area: AreaOption = "fleet",
    as_json: JsonOption = False,
) -> None:
    """The node no longer keeps these keys alive; they stay until their time ends: 0 when it kept all of them, else 1.

    Example: [bold]trunkline kv clear app/lamp[/]
    """
    _many(url, token, area, "clear", {"keys": keys}, "cleared", as_json)


def _many(url: str | None, token: str | None, area: str, what: str, body: Any, done: str, as_json: bool) -> None:
    from trunkline.api.storereasons import words_of
    from trunkline.cli.kv.client import Client, at

    with Client(url, token) as client:
        found = client.ask("POST", at(area, what), body)
    if as_json:
        shown.print_json(found)
    else:
        for key in found["taken"]:
            typer.echo(f"{done}: {shown.harmless(key)}")
        for key, reason in found["refused"].items():
            why, next_step = ("this node does not keep it", "see `trunkline kv own`") if what == "clear" else words_of(reason)
            shown.print_refusal(f"key {key!r}", why, next_step)
    raise typer.Exit(NO if found["refused"] else 0)


def erase(
    keys: KeysArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    area: AreaOption = "fleet",
    as_json: JsonOption = False,
) -> None:
    """Erases keys at every node: 0 when all were there, else 1.

    Example: [bold]trunkline kv erase app/lamp app/door[/]
    """
    from trunkline.cli.kv.client import Client, Refusal, at

    refused: dict[str, Refusal] = {}
    with Client(url, token) as client:
        for key in keys:
            try:
                client.ask("DELETE", at(area, "keys", key))
            except Refusal as refusal:
                if refusal.slug not in ("no-such-key", "not-taken"):
                    raise
                refused[key] = refusal
    erased = [key for key in keys if key not in refused]
    if as_json:
        shown.print_json({"erased": erased, "refused": {key: found.why for key, found in refused.items()}})
    else:
        for key in erased:
            typer.echo(f"erased: {shown.harmless(key)}")
        for found in refused.values():
            shown.print_refusal(found.what, found.why, found.next_step)
    raise typer.Exit(NO if refused else 0)


def add_peer(
    peer: PeerArgument,
    addresses: Annotated[list[str], typer.Argument(metavar="HOST:PORT...")],
    url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet", as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The node dials this peer from now on, until it restarts. A peer that is there gets these addresses.

    Example: [bold]trunkline kv add-peer lyon/node-1 lyon.example.com:7400[/]
    """
    from trunkline.cli.kv.client import Client, at

    with Client(url, token) as client:
        found = client.ask("PUT", at(area, "peers", *_names(peer)), {"addresses": addresses})
    if as_json:
        shown.print_json(found)
    else:
        typer.echo(f"added: {found['peer']} at {', '.join(found['addresses'])}")


def delete_peer(
    peer: PeerArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    area: AreaOption = "fleet",
    as_json: JsonOption = False,
) -> None:
    """The node no longer dials this peer: 0 when it was there, else 1.

    Example: [bold]trunkline kv delete-peer lyon/node-1[/]
    """
    from trunkline.cli.kv.client import Client, Refusal, at

    try:
        with Client(url, token) as client:
            found = client.ask("DELETE", at(area, "peers", *_names(peer)))
    except Refusal as refusal:
        if refusal.slug != "not-found":
            raise
        shown.print_refusal(refusal.what, refusal.why, "see `trunkline kv peers`")
        raise typer.Exit(NO) from None
    if as_json:
        shown.print_json(found)
    else:
        typer.echo(f"deleted: {found['peer']}")


def _names(peer: str) -> tuple[str, str]:
    from trunkline.core.ids import NodeId

    found = NodeId.parse(peer)
    return found.site, found.node

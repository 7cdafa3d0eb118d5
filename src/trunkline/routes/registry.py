"""The plugins that routes may name: ours, and those of installed packages.

R1  A package offers plugins by an entry point of the group `trunkline.plugins`: a declaration, or a list of them.
R2  What a package does wrong is reported and harms nobody else: its other plugins, and all others, are there.
R3  Nobody can take a name that is ours, or that of a package that came before by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
from pydantic import BaseModel

from trunkline.core.fields import nearest
from trunkline.core.mistakes import printable
from trunkline.routes.filters import FILTERS
from trunkline.routes.plugin import FilterPlugin, Plugin, ReceiverPlugin, SenderPlugin
from trunkline.routes.receivers import RECEIVERS
from trunkline.routes.senders import SENDERS

GROUP = "trunkline.plugins"


class Kind(StrEnum):
    RECEIVER = "receiver"
    FILTER = "filter"
    SENDER = "sender"


_KINDS: Mapping[type, Kind] = {ReceiverPlugin: Kind.RECEIVER, FilterPlugin: Kind.FILTER, SenderPlugin: Kind.SENDER}

_INSTEAD: Mapping[tuple[Kind, str], tuple[str, str]] = {
    (Kind.RECEIVER, "sqs"): ("queue", "messages for one of several readers, each kept until it is done"),
    (Kind.SENDER, "sqs"): ("queue", "messages for one of several readers, each kept until it is done"),
    (Kind.RECEIVER, "kinesis"): ("kafka", "a log in partitions"),
    (Kind.SENDER, "kinesis"): ("kafka", "a log in partitions"),
    (Kind.RECEIVER, "s3"): ("files", "objects of a bucket are read as files, at any address that pyarrow can open"),
    (Kind.SENDER, "s3"): ("files", "objects of a bucket are written as files"),
    (Kind.SENDER, "gears"): ("kafka", "with a transform that makes the envelope, and hash for the partition"),
    (Kind.RECEIVER, "discord"): ("http", "let a bot post what it hears"),
    (Kind.SENDER, "discord"): ("http", "it posts to the channel's webhook"),
    (Kind.RECEIVER, "syslog"): ("http", "let the log collector post its lines"),
    (Kind.FILTER, "ws"): ("js", "it computes from the event alone: a chain calls nobody, so put what it needs into the event"),
    (Kind.FILTER, "sample"): ("expr", "let pass by a hash of the event, so that a replay takes the same ones"),
}


class Failure(msgspec.Struct, frozen=True):
    """What an installed package offers, and why it is not there."""

    package: str
    entry: str
    reason: str

    def __str__(self) -> str:
        return f"{self.entry} of {self.package}: {self.reason}"


class Registry:
    def __init__(self, plugins: Iterable[Plugin], entries: Iterable[EntryPoint] = ()) -> None:
        self._found: dict[Kind, dict[str, Plugin]] = {kind: {} for kind in Kind}
        self._packages: dict[tuple[Kind, str], str] = {}
        self.failures: list[Failure] = []
        for plugin in plugins:
            self._found[_KINDS[type(plugin)]][plugin.name] = plugin
        for entry in sorted(entries, key=_order):
            self._take(entry)

    def find(self, kind: Kind, name: str) -> Plugin | None:
        return self._found[kind].get(name)

    def filter(self, name: str) -> FilterPlugin[Any] | None:
        plugin = self.find(Kind.FILTER, name)
        return plugin if isinstance(plugin, FilterPlugin) else None

    def receiver(self, name: str) -> ReceiverPlugin[Any] | None:
        plugin = self.find(Kind.RECEIVER, name)
        return plugin if isinstance(plugin, ReceiverPlugin) else None

    def sender(self, name: str) -> SenderPlugin[Any] | None:
        plugin = self.find(Kind.SENDER, name)
        return plugin if isinstance(plugin, SenderPlugin) else None

    def names(self, kind: Kind) -> list[str]:
        return sorted(self._found[kind])

    def package(self, kind: Kind, name: str) -> str:
        """The package it comes from; empty for ours."""
        return self._packages.get((kind, name), "")

    def unknown(self, kind: Kind, name: str) -> tuple[str, str]:
        """Why no such plugin can be used, and what to write instead."""
        instead, known = _INSTEAD.get((kind, name)), self.names(kind)
        if not known:
            return f"{printable(name)!r} is not known", f"no {kind} is installed"
        near, about = instead if instead and instead[0] in known else (nearest(name, known), "")
        return f"{printable(name)!r} is not known, write {near!r}", about or f"known {kind}s: {', '.join(known)}"

    def _take(self, entry: EntryPoint) -> None:
        try:
            offered = entry.load()
        except (Exception, SystemExit) as error:
            self._fail(entry, f"{type(error).__name__}: {error}")
            return
        for plugin in offered if isinstance(offered, list | tuple) else (offered,):
            reason = self._refusal(plugin)
            if reason:
                self._fail(entry, reason)
            else:
                kind = _KINDS[type(plugin)]
                self._found[kind][plugin.name] = plugin
                self._packages[kind, plugin.name] = _package(entry)

    def _refusal(self, plugin: Any) -> str:
        kind = _KINDS.get(type(plugin))
        if kind is None:
            return f"it is {printable(repr(plugin))}, not a FilterPlugin, ReceiverPlugin or SenderPlugin, or a list of them"
        if not (isinstance(plugin.config, type) and issubclass(plugin.config, BaseModel)):
            return f"the config of {kind} {plugin.name!r} is not a pydantic model"
        if plugin.name in self._found[kind]:
            return f"there is a {kind} {plugin.name!r} already, from {self.package(kind, plugin.name) or 'trunkline'}"
        return ""

    def _fail(self, entry: EntryPoint, reason: str) -> None:
        self.failures.append(Failure(_package(entry), entry.name, reason))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


def _order(entry: EntryPoint) -> tuple[str, str]:
    return _package(entry), entry.name


OURS: tuple[Plugin, ...] = (*RECEIVERS, *FILTERS, *SENDERS)


@cache
def registry() -> Registry:
    """Of this process: what is installed when it is first asked for."""
    return Registry(OURS, entry_points(group=GROUP))

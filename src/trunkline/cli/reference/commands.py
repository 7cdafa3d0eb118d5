"""Every command of `trunkline`, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer
from rich.text import Text

from trunkline.cli.main import app

_EXAMPLE = re.compile(r"\[bold\](.*?)\[/\]", re.S)


@dataclass(frozen=True)
class Command:
    """`path` is without `trunkline`; `click` is typer's own object."""

    path: tuple[str, ...]
    click: Any

    @property
    def is_group(self) -> bool:
        return hasattr(self.click, "commands")

    @property
    def is_alone(self) -> bool:
        return len(self.path) == 1 and not self.is_group

    @property
    def name(self) -> str:
        return " ".join(("trunkline", *self.path))

    @property
    def options(self) -> frozenset[str]:
        return frozenset(word for p in self.click.params for word in (*p.opts, *p.secondary_opts) if word.startswith("--"))


def commands() -> Iterator[Command]:
    """All that people see, each group before what is in it."""
    yield from _below((), typer.main.get_command(app))


def _below(path: tuple[str, ...], click: Any) -> Iterator[Command]:
    yield Command(path, click)
    for name, inner in getattr(click, "commands", {}).items():
        if not inner.hidden:
            yield from _below((*path, name), inner)


def page() -> str:
    """Commands that stand alone first."""
    found = sorted((command for command in commands() if command.path), key=lambda command: command.is_alone, reverse=True)
    return "\n".join(line for command in found for line in (_group(command) if command.is_group else _command(command)))


def _group(group: Command) -> list[str]:
    return [f"## `{group.name}` {{ #{'-'.join(group.path)} }}", "", _plain(group.click.help), ""]


def _command(command: Command) -> list[str]:
    paragraphs = (command.click.help or "").split("\n\n")
    prose = [part for part in paragraphs if not _is_example(part)]
    examples = [" ".join(words.split()) for part in paragraphs if _is_example(part) for words in _EXAMPLE.findall(part)]
    rows = [_row(parameter) for parameter in command.click.params if not parameter.hidden]
    return [
        f"{'##' if command.is_alone else '###'} `{command.name}` {{ #{'-'.join(command.path)} }}", "",
        *(f"{_plain(part)}\n" for part in prose),
        *(["```sh", *examples, "```", ""] if examples else []),
        *(["| option | meaning | |", "|---|---|---|", *rows, ""] if rows else []),
    ]  # fmt: skip


def _is_example(paragraph: str) -> bool:
    return paragraph.lstrip().startswith("Example")


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    words = (
        " / ".join((*parameter.opts, *parameter.secondary_opts)) if is_option else parameter.metavar or parameter.name.upper()
    )
    default = "**required**" if parameter.required else _default(parameter)
    return f"| `{words}` | {_escaped(_plain(parameter.help or ''))} | {default} |"


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or isinstance(value, bool) or callable(value):
        return ""
    return f"default `{value}`"


def _plain(text: str) -> str:
    """Without markup, on one line."""
    return " ".join(Text.from_markup(text).plain.split())


def _escaped(text: str) -> str:
    """In `code` a | is safe in a table's cell; elsewhere it would end the cell."""
    return text.replace("|", "\\|")

"""`trunkline plugins`: what routes can be made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from trunkline.routes.catalogue import Entry
    from trunkline.routes.registry import Registry


def plugins(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this one, with all it can be told.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The receivers, filters and senders that routes can name here, those of installed packages too; of one all the keys of its
    configuration, and an example. It ends with 1 if a package offers something that cannot be used.

    Example: [bold]trunkline plugins expr[/]
    """
    from trunkline.routes.catalogue import catalogue
    from trunkline.routes.registry import registry

    found = registry()
    entries = list(catalogue(found))
    if name is not None:
        _print_some([entry for entry in entries if entry.name == name] or _unknown(name, entries), as_json)
        return
    if as_json:
        failures = [{"package": one.package, "entry": one.entry, "reason": one.reason} for one in found.failures]
        shown.print_json({"plugins": [entry.as_json() for entry in entries], "failures": failures})
    else:
        _print_all(entries, found)
    raise typer.Exit(1 if found.failures else 0)


def _unknown(name: str, entries: list[Entry]) -> list[Entry]:
    from trunkline.core.errors import Invalid
    from trunkline.core.fields import nearest

    near = nearest(name, [entry.name for entry in entries])
    raise Invalid(f"plugin {name!r}", "there is none of this name", f"the nearest is {near!r}; see `trunkline plugins`")


def _print_all(entries: list[Entry], found: Registry) -> None:
    rows = [(entry.kind.value, entry.name, ", ".join(entry.runs), entry.package, entry.summary) for entry in entries]
    shown.print_table(("kind", "name", "runs in", "package", ""), [(*row[:4], shown.shortened(row[4], 100)) for row in rows])
    for failure in found.failures:
        typer.secho(f"cannot be used: {shown.harmless(str(failure))}", fg="red", err=True)


def _print_some(entries: list[Entry], as_json: bool) -> None:
    if as_json:
        shown.print_json({"plugins": [entry.in_full() for entry in entries]})
        return
    for n, entry in enumerate(entries):
        typer.echo(("\n" if n else "") + "\n".join(_lines(entry)))


def _lines(entry: Entry) -> list[str]:
    place = {"filter": "filterChain"}.get(entry.kind.value, entry.kind.value)
    head = f"{entry.kind.value} {entry.name} (runs in: {', '.join(entry.runs)}; package: {entry.package})"
    return [head, "", *_wrapped(entry.about), "", *_fields(entry), f"{place}:", *_example(entry)]


def _wrapped(text: str) -> list[str]:
    import textwrap

    paragraphs = [textwrap.wrap(part, 100) for part in text.split("\n\n")]
    return [line for paragraph in paragraphs for line in (*paragraph, "")][:-1]


def _fields(entry: Entry) -> list[str]:
    from trunkline.cli.reference.settings import Section, facts, sections
    from trunkline.core.fields import yaml_text

    lines: list[str] = []
    for section in sections(Section(("config",), entry.config)):
        for key, field in section.fields:
            said = ", ".join(fact.replace("``", "''").replace("`", "").replace("**", "") for fact in facts(field) if fact)
            lines.append(f"  {section.title}.{key}: {said}")
            if field.description:
                lines.append(f"      {field.description}")
            if field.examples:
                lines.append(f"      for example {shown.harmless(yaml_text(field.examples[0]))}")
    return [*lines, ""] if lines else []


def _example(entry: Entry) -> list[str]:
    import yaml

    example: Any = entry.example()
    text = yaml.safe_dump([example] if entry.kind.value == "filter" else example, sort_keys=False, allow_unicode=True)
    return [f"  {line}" for line in text.splitlines()]

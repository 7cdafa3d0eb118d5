"""`trunkline routes apply` and `diff`: a node's table becomes equal to a folder, in one change, or that is only shown.

1. What is compared is also what is changed: every part of the change names the revision that was looked at, so that whoever
   changed a route meanwhile is not overridden: the change as a whole is refused.
2. Only tenants that the files name are touched.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO, TokenOption, UrlOption
from trunkline.cli.options import JsonOption
from trunkline.cli.routes.lint import PathsArgument, checked, print_mistakes
from trunkline.cli.routes.options import WaitOption, YesOption

if TYPE_CHECKING:
    from trunkline.cli.kv.client import Client, Refusal
    from trunkline.cli.routes.plan import Step
    from trunkline.routes.files import Files

PruneOption = Annotated[
    bool,
    typer.Option("--prune/--keep", help="Whether routes of the same tenants that are in none of the files are removed."),
]
PIECE = 500  # routes that are compared at once: a node takes no endless request
_SIGNS = {"added": ("+", "green"), "changed": ("~", "yellow"), "removed": ("-", "red")}


class Compared(NamedTuple):
    """`routes`: what the node says would become of each step."""

    steps: list[Step]
    routes: list[dict[str, Any]]

    @property
    def differing(self) -> list[tuple[Step, dict[str, Any]]]:
        both = zip(self.steps, self.routes, strict=True)
        return [(step, route) for step, route in both if route["what"] in _SIGNS]


def diff(
    paths: PathsArgument, url: UrlOption = None, token: TokenOption = None, prune: PruneOption = True,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Shows what `apply` would do, field by field; nothing is changed. It ends with 0 if there is no difference, else with 1.

    Example: [bold]trunkline routes diff routes/[/]
    """
    from trunkline.cli.routes.table import table_client

    files = _right(paths)
    with table_client(url, token) as client:
        compared = _compared(client, files, prune)
    if as_json:
        shown.print_json(_as_json(compared))
    else:
        _print(compared)
    raise typer.Exit(NO if compared.differing else 0)


def apply(
    paths: PathsArgument, url: UrlOption = None, token: TokenOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and change nothing.")] = False,
    prune: PruneOption = True, yes: YesOption = False, wait: WaitOption = 30.0, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Makes a site's routing table equal to files and folders of routes, as one change, for the tenants that they name; then
    waits until all instances have it. It ends with 1 if one of them refuses a route or has not answered by then.

    Routes of these tenants that are in none of the files are removed: it asks first, unless --yes is given. With --keep they
    stay.

    Example: [bold]trunkline routes apply routes/ --dry-run[/]
    """
    from trunkline.cli.routes.table import table_client

    files = _right(paths)
    with table_client(url, token, wait) as client:
        compared = _compared(client, files, prune)
        if not as_json:
            _print(compared)
        if dry_run or not compared.differing:
            if as_json:
                shown.print_json(_as_json(compared))
            return
        _confirm(compared, yes, as_json)
        done = _ask(client, [step for step, _ in compared.differing], False, wait)
    if as_json:
        shown.print_json(done)
    ok = _told(done, quiet=as_json)
    raise typer.Exit(0 if ok else NO)


def _right(paths: list[Path]) -> Files:
    """Without a mistake; warnings are shown."""
    from trunkline.core.mistakes import Mistakes

    files, mistakes = checked(paths)
    if mistakes:
        raise Mistakes("routes", mistakes, "mend them; nothing was changed")
    print_mistakes([], [warning for warning in files.warnings if not warning.key.endswith("userId")], err=True)
    return files


def _compared(client: Client, files: Files, prune: bool) -> Compared:
    from trunkline.cli.routes.plan import plan, tenants_of
    from trunkline.cli.routes.table import routes_of
    from trunkline.core.errors import Invalid
    from trunkline.routes.registry import registry
    from trunkline.routes.shown import models_of

    if not files.routes:
        raise Invalid("files", "there is no route in them", "remove routes with `trunkline routes rm`")
    stored = routes_of(client, tenants_of(files))
    steps = plan(files, stored, prune, models_of(registry()))
    pieces = [steps[start : start + PIECE] for start in range(0, len(steps), PIECE)]
    return Compared(steps, [route for piece in pieces for route in _ask(client, piece, True)["routes"]])


def _ask(client: Client, steps: list[Step], dry_run: bool, wait: float = 0.0) -> dict[str, Any]:
    from trunkline.cli.kv.client import Refusal

    body = {"changes": [step.change() for step in steps], "dry_run": dry_run}
    try:
        return client.ask("POST", "/v1/routes/apply", body, {"wait": wait})
    except Refusal as refusal:
        raise _placed(refusal, steps) from None


def _placed(refusal: Refusal, steps: list[Step]) -> Exception:
    """Mistakes that the node found, at their places in the files."""
    import re

    from trunkline.core.mistakes import Mistake, Mistakes

    if not refusal.mistakes:
        return refusal
    found = []
    for one in refusal.mistakes:
        at = re.match(r"changes\[(\d+)\](?:\.put)?\.?", one["key"])
        step = steps[int(at[1])] if at and int(at[1]) < len(steps) else None
        source, line = step.place if step else ("", None)
        key = f"{step.key.id}: {one['key'][at.end() :]}" if step and at else one["key"]
        found.append(Mistake(source, line, key, one["reason"], one["next"]))
    return Mistakes("routes", found, refusal.next_step)


def _confirm(compared: Compared, yes: bool, as_json: bool) -> None:
    from trunkline.cli.queues.drop import confirm
    from trunkline.core.errors import Invalid

    removed = [step.key.id for step, route in compared.differing if route["what"] == "removed"]
    if not removed or yes:
        return
    if not as_json and not sys.stdin.isatty():
        why = f"it would remove {len(removed)} routes, and nobody can be asked whether that is meant"
        raise Invalid("apply", why, "give --yes, or --keep to leave them")
    confirm("apply", f"remove {len(removed)} routes: {shown.shortened(', '.join(removed), 200)}?", yes, as_json)


# -- words


def _print(compared: Compared) -> None:
    several = len({step.key.tenant for step in compared.steps}) > 1
    for step, route in compared.differing:
        sign, colour = _SIGNS[route["what"]]
        typer.secho(f"{sign} {shown.harmless(str(step.key) if several else step.key.id)}", fg=colour)
        for line in _fields(step, route):
            typer.echo(f"    {shown.harmless(line)}")
        for warning in route["warnings"]:
            typer.echo(f"    warning: {shown.harmless(warning['key'])}: {shown.harmless(warning['reason'])}")
    counted = Counter(route["what"] for route in compared.routes)
    words = [f"{counted[what]} {name}" for what, name in _TO_DO.items() if counted[what]]
    typer.echo(
        ", ".join(words) if compared.differing else f"no difference: {counted['unchanged']} routes are as they are written"
    )


_TO_DO = {"added": "to add", "changed": "to change", "removed": "to remove", "unchanged": "unchanged"}


def _as_json(compared: Compared) -> dict[str, Any]:
    both = zip(compared.steps, compared.routes, strict=True)
    return {
        "equal": not compared.differing,
        "routes": [
            {"id": step.key.id, "tenant": route["tenant"], "what": route["what"], "fields": _fields(step, route)}
            for step, route in both
        ],
    }


def _fields(step: Step, route: dict[str, Any]) -> list[str]:
    from trunkline.cli.routes.plan import differences

    return differences(step.before, step.after) if route["what"] == "changed" and step.before and step.after else []


def _told(done: dict[str, Any], quiet: bool) -> bool:
    """Whether every instance has all of it; says so, unless it is to be quiet."""
    lines, ok = verdict_lines(done)
    if not quiet:
        for line in lines:
            typer.secho(shown.harmless(line), fg="green" if ok else "red")
    return ok


def verdict_lines(done: dict[str, Any]) -> tuple[list[str], bool]:
    """What became of a change at this instance and at the others."""
    change = done["change"]
    refused = [f"{route['id']} here: {route['here']['reason']}" for route in done["routes"] if route["here"]["refused"]]
    refused += [f"at {instance}: {why}" for instance, why in change["refused"].items()]
    total = 1 + len(change["acked"]) + len(change["refused"]) + len(change["missing"])
    bad = len(change["refused"]) + len(change["missing"]) + any(route["here"]["refused"] for route in done["routes"])
    lines = [f"live on {total - bad} of {total} instances"]
    lines += [f"refused, {one}" for one in refused]
    lines += [f"no answer yet from {instance}: see `trunkline routes status --wait 60`" for instance in change["missing"]]
    return lines, not bad

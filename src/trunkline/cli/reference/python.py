"""What applications call, from the source: signatures and what each says about itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from trunkline.core.errors import Invalid

# In each module, what applications use of it.
SECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "send": {"trunkline.queues.client": ("QueueClient", "AsyncQueueClient", "Message", "NoRoom")},
    "receive": {
        "trunkline.queues.listener": ("QueueListener", "Pace"),
        "trunkline.queues.callbacks": ("Callbacks",),
        "trunkline.queues.reader": ("Received",),
        "trunkline.queues.kinds": ("Kind",),
        "trunkline.queues.consumers": (
            "attach",
            "reattach",
            "detach",
            "positions",
            "advance",
            "Place",
            "Detached",
            "Overtaken",
        ),
    },
    "snapshots": {
        "trunkline.queues.provider": ("SnapshotProvider", "SnapshotContext"),
        "trunkline.pipeline.snapshot_frame": ("read_frame", "transmit_frame"),
    },
    "status": {
        "trunkline.bridge.reporter_queue": ("StatusReporter",),
        "trunkline.pipeline.reporter_kafka": ("KafkaStatusReporter",),
        "trunkline.bridge.reporter": ("Changes",),
    },
    "types": {
        "trunkline.bridge.types": ("Types", "BundleType", "Missing", "Match"),
        "trunkline.bridge.handler": ("Handler", "Part", "Work", "Written"),
    },
    "plugins": {
        "trunkline.routes.plugin": (
            *("FilterPlugin", "Filter", "Faults", "StatefulFilter", "ReceiverPlugin", "SenderPlugin", "Runs", "Around"),
        ),
        "trunkline.routes.ends": ("Sending", "TimedSending", "Sendable", "Undelivered"),
    },
    "errors": {"trunkline.core.errors": ("TrunklineError", "Retryable", "Terminal", "Invalid")},
}

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_WIDTH = 100


def section(name: str) -> str:
    if name not in SECTIONS:
        raise Invalid(f"section {name!r} of the page of the library", "there is none", f"write one of: {', '.join(SECTIONS)}")
    return "\n".join(line for module, names in SECTIONS[name].items() for line in _module(module, names))


def _module(module: str, names: tuple[str, ...]) -> Iterator[str]:
    found = {name: one for one in _tree(module).body for name in _names(one)}
    for name in names:
        if name not in found:
            raise Invalid(f"{module}.{name}", "it is on the page of the library and not in the module", "mend one of them")
        node = found[name]
        yield from (f"### {name}", "", f"`from {module} import {name}`", "")
        if isinstance(node, ast.ClassDef):
            yield from _class(node, found)
        elif isinstance(node, _Function):
            yield from _call(node, node.name, node.args.args)
        else:
            yield from ("```python", ast.unparse(node), "```", "")


def _names(one: ast.stmt) -> Iterator[str]:
    if isinstance(one, ast.ClassDef | _Function):
        yield one.name
    elif isinstance(one, ast.Assign):
        yield from map(ast.unparse, one.targets)


def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise Invalid(f"module {module}", "it is on the page of the library and not there", "mend the page")
    return ast.parse(Path(spec.origin).read_text())


def _class(node: ast.ClassDef, around: Mapping[str, ast.AST]) -> Iterator[str]:
    yield from _said(node)
    fields = list(_fields(node.body))
    if fields:
        yield from ("```python", *fields, "```", "")
    for one in sorted(_functions(node, around), key=lambda one: one.name != "__init__"):
        yield from _call(one, node.name if one.name == "__init__" else one.name, one.args.args[1:])


def _fields(body: list[ast.stmt]) -> Iterator[str]:
    """Each after what is said about it."""
    for one, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if not isinstance(one, ast.AnnAssign | ast.Assign):
            continue
        if not _is_public(ast.unparse(one.target if isinstance(one, ast.AnnAssign) else one.targets[0])):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield from (f"# {line.strip()}" for line in str(after.value.value).strip().splitlines())
        yield ast.unparse(one)


def _functions(node: ast.ClassDef, around: Mapping[str, ast.AST]) -> Iterator[_Function]:
    """Its own, and those of a base class beside it, which nobody has to know."""
    for one in node.body:
        if isinstance(one, _Function) and (one.name in ("__init__", "__call__") or _is_public(one.name)):
            yield one
    for base in map(ast.unparse, node.bases):
        if not _is_public(base) and isinstance(found := around.get(base), ast.ClassDef):
            yield from _functions(found, around)


def _call(node: _Function, name: str, positional: list[ast.arg]) -> Iterator[str]:
    returns = ast.unparse(node.returns) if node.returns and node.name != "__init__" else ""
    if any(ast.unparse(one) == "property" for one in node.decorator_list):
        lines = [f"{name}: {returns}"]
    else:
        waits = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
        lines = _signature(f"{waits}{name}", list(_arguments(node.args, positional)), f" -> {returns}" if returns else "")
    yield from ("```python", *lines, "```", "")
    yield from _said(node)


def _arguments(all: ast.arguments, positional: list[ast.arg]) -> Iterator[str]:
    without: list[ast.expr | None] = [None] * (len(positional) - len(all.defaults))
    yield from map(_argument, positional, [*without, *all.defaults])
    if all.vararg:
        yield f"*{ast.unparse(all.vararg)}"
    elif all.kwonlyargs:
        yield "*"
    yield from map(_argument, all.kwonlyargs, all.kw_defaults)
    if all.kwarg:
        yield f"**{ast.unparse(all.kwarg)}"


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(one) + (f" = {ast.unparse(default)}" if default else "")


def _signature(name: str, arguments: list[str], returns: str) -> list[str]:
    line = f"{name}({', '.join(arguments)}){returns}"
    return [line] if len(line) <= _WIDTH else [f"{name}(", *(f"    {one}," for one in arguments), f"){returns}"]


def _said(node: ast.ClassDef | _Function) -> Iterator[str]:
    said = ast.get_docstring(node)
    if said:
        yield from (said, "")


def _is_public(name: str) -> bool:
    return not name.startswith("_")

"""Packages that come with the extra `pipeline` only: asked for when a plugin is opened."""

from __future__ import annotations

import importlib.util

from trunkline.core.errors import Terminal


def needs(package: str, what: str) -> None:
    if importlib.util.find_spec(package) is None:
        shown = package.replace("_", "-")
        raise Terminal(what, f"the package {shown} is not installed", "pip install 'trunkline[pipeline]' at this site")

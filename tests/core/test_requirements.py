"""What is locked can be installed wherever the project says that it runs."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


def test_every_locked_package_takes_the_oldest_python_of_the_project() -> None:
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    names = [line.partition("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    wants = {name: _python(name) for name in names}
    assert len(wants) > 50
    assert {n: w for n, w in wants.items() if w is not None and f"{oldest}.0" not in SpecifierSet(w)} == {}


def _python(name: str) -> str | None:
    try:
        return metadata(name).get("Requires-Python")
    except PackageNotFoundError:  # a runtime of Java, where the machine has one
        return None

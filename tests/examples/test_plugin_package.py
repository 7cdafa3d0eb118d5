"""The example of a plugin package: installed beside Trunkline it is found, shown, and runs in routes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "examples" / "trunkline-celsius"


def install(package: Path, folder: Path) -> None:
    """As an installer does it, without a network and a builder: the code, and beside it what the project says of itself."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    for source in (package / "src").iterdir():
        shutil.copytree(source, folder / source.name)
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(groups))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    install(PACKAGE, folder)
    return folder


def ran(installed: Path, *words: str | Path) -> str:
    path = os.pathsep.join([str(installed), *filter(None, sys.path)])
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_plugins_are_listed_and_described_as_ours_are(installed: Path) -> None:
    rows = ran(installed, "trunkline.cli.main", "plugins").splitlines()
    (celsius,) = (row.split() for row in rows if " celsius " in row)
    assert celsius[:5] == ["filter", "celsius", "node,", "pipeline", "trunkline-celsius"]
    said = ran(installed, "trunkline.cli.main", "plugins", "logbook")
    assert said.startswith("sender logbook (runs in: node; package: trunkline-celsius)")
    assert "config.path: text, required" in said


def test_a_route_with_its_plugins_is_linted_tested_and_explained(installed: Path) -> None:
    command = "trunkline.cli.main"
    assert ran(installed, command, "routes", "lint", PACKAGE / "routes") == "ok: 1 route\n"
    assert ran(installed, command, "routes", "test", PACKAGE / "routes") == "2 of 2 cases hold\n"
    said = ran(installed, command, "routes", "explain", '{"temperature": 50}', "--routes", PACKAGE / "routes")
    assert 'sends {"payload":{"temperature":10.0}}' in said


def test_its_own_tests_pass(installed: Path) -> None:
    said = ran(installed, "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-c", "/dev/null", PACKAGE / "tests")
    assert "3 passed" in said

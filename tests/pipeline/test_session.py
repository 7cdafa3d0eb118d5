from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from trunkline.pipeline.filesystem import local_files
from trunkline.pipeline.java import find_java
from trunkline.pipeline.session import Spark

pytestmark = pytest.mark.spark


def test_the_settings_that_must_precede_the_jvm_are_in_effect(spark: Spark) -> None:
    conf = spark.session.sparkContext.getConf()
    cores = str(os.cpu_count())
    expected = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.scheduler.mode": "FAIR",
    }
    assert {key: conf.get(key) for key in expected} == expected
    [row] = spark.session.sql("SELECT current_timezone() AS zone").collect()
    assert row.zone == "UTC"


def test_workers_run_this_python_with_a_fixed_hash_seed(spark: Spark) -> None:
    def ask(_: object) -> tuple[str, str | None]:
        return sys.executable, os.environ.get("PYTHONHASHSEED")

    assert spark.session.sparkContext.parallelize([0], 1).map(ask).collect() == [(sys.executable, "0")]


@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac here: the other file system runs")
def test_local_files_go_through_our_class_and_keep_their_permissions(spark: Spark, tmp_path: Path) -> None:
    assert spark.filesystem == "ForklessFileSystem"
    context = spark.session.sparkContext
    assert context._jvm is not None
    hadoop = context._jvm.org.apache.hadoop.fs
    path = hadoop.Path((tmp_path / "file").as_uri())
    files = path.getFileSystem(context._jsc.hadoopConfiguration())
    assert files.getClass().getName() == "io.trunkline.ForklessFileSystem"
    files.create(path).close()
    files.setPermission(path, hadoop.permission.FsPermission("640"))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_without_a_javac_the_next_best_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    files = local_files(tmp_path, tmp_path)
    assert files.description.startswith("RawLocalFs")
    assert list(files.settings) == ["spark.hadoop.fs.AbstractFileSystem.file.impl"]


def test_a_javac_that_fails_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_CACHE", str(tmp_path / "cache"))
    files = local_files(find_java(), tmp_path / "no-jars")
    assert files.description.startswith("RawLocalFs")

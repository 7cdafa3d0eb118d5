"""SPARK_HOME: the installed Spark under a path that stays the same, with what was made once beside it.

The folder is in the cache and belongs to one installation of pyspark. It leaves out Spark's zipped copy of pyspark, which each
new Python worker would compile again (0.7 s): without it they import the installed one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from trunkline.pipeline.cache import locked

_PARTS = ("bin", "jars")


def installed() -> Path:
    return Path(pyspark.__file__).resolve().parent


def spark_home() -> Path:
    mark = hashlib.blake2b(f"{pyspark.__version__} {installed()}".encode(), digest_size=8).hexdigest()
    with locked("spark") as folder:
        home = folder / mark
        home.mkdir(exist_ok=True)
        for name in _PARTS:
            if not (home / name).is_symlink():
                (home / name).symlink_to(installed() / name)
    return home

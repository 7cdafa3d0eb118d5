"""Kafka's jars: fetched by name with Maven, once per machine, into the cache folder. They appear whole or not at all."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from trunkline.cli.dev.debian import Say, program, quiet
from trunkline.core.errors import Retryable
from trunkline.pipeline.cache import cache_folder, locked

KAFKA = "4.3.1"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

# Kafka's own jar names no logger behind slf4j; without one a broker that cannot start does not say why.
_WANTED = {"org.apache.kafka:kafka_2.13": KAFKA, "org.slf4j:slf4j-simple": "1.7.36"}


def kafka_folder() -> Path:
    """Belongs to exactly these jars."""
    mark = hashlib.blake2b(_pom().encode(), digest_size=4).hexdigest()
    return cache_folder() / "kafka" / f"{KAFKA}-{mark}"


def fetched() -> bool:
    return (kafka_folder() / "jars").exists()


def fetch(say: Say = quiet) -> Path:
    """The folder of Kafka's jars."""
    with locked("kafka"):
        jars = kafka_folder() / "jars"
        if not jars.exists():
            jars.parent.mkdir(exist_ok=True)
            maven = program("mvn", "maven", say)
            say(f"fetching the jars of Kafka {KAFKA} with Maven into {jars} (50 MB, once, about 20 s)")
            with tempfile.TemporaryDirectory(dir=jars.parent, prefix="fetching-") as fresh:
                _fetch(maven, Path(fresh)).rename(jars)
    return jars


def _fetch(maven: str, fresh: Path) -> Path:
    (fresh / "pom.xml").write_text(_pom())
    words = [
        maven, "-B", "-q", "-f", str(fresh / "pom.xml"), f"-Dmaven.repo.local={fresh / 'repository'}", _COPY,
        "-DincludeScope=runtime", f"-DoutputDirectory={fresh / 'jars'}",
    ]  # fmt: skip
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = [line for line in done.stdout.splitlines() if "ERROR" in line][:1] or [f"Maven ended with {done.returncode}"]
        raise Retryable(
            f"the jars of Kafka {KAFKA}", why[0], "see that Maven reaches its repository (~/.m2/settings.xml), try again"
        )
    return fresh / "jars"


def _pom() -> str:
    wanted = "".join(
        f"<dependency><groupId>{name.split(':')[0]}</groupId><artifactId>{name.split(':')[1]}</artifactId>"
        f"<version>{version}</version></dependency>"
        for name, version in _WANTED.items()
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>trunkline</groupId>'
        f"<artifactId>broker</artifactId><version>1</version><packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )

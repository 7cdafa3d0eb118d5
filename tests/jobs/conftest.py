"""Route jobs on the run's one Spark driver and one broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hand_job import HandJob, make_sink
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from kafka_topics import Topics
from route_jobs import PARTS, RouteJobs
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.pipeline.jobs.stored import Member
from trunkline.pipeline.session import Spark

_numbers = itertools.count(1)


@pytest.fixture
def topics(kafka: KafkaBroker) -> Iterator[Topics]:
    with closing(Topics(kafka.bootstrap, f"jobs{next(_numbers)}")) as topics:
        yield topics


@pytest.fixture
def make_jobs(spark: Spark, make_database: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., RouteJobs]]:
    """`make_jobs()` starts a pipeline at a new site, `make_jobs(dsn)` another one at that site."""
    made: list[RouteJobs] = []

    def make(dsn: str | None = None, **config: Any) -> RouteJobs:
        jobs = RouteJobs(spark, dsn or make_database(*PARTS), tmp_path / f"jobs-{len(made)}", **config)
        made.append(jobs)
        return jobs.start()

    yield make
    for jobs in made:
        jobs.stop()


@pytest.fixture(scope="module")
def empty_site(make_databases: Callable[..., str]) -> str:
    """A database to copy: that is quicker than to migrate another one."""
    dsn = make_databases(*PARTS)
    make_sink(dsn)
    return dsn


@pytest.fixture
def site(postgres: EmbeddedPostgres, empty_site: str) -> Iterator[str]:
    """A new site's database, with a table `public.sink`."""
    name, of = f"site{next(_numbers)}", str(conninfo_to_dict(empty_site)["dbname"])
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(of)))
    yield postgres.dsn.replace("dbname=postgres", f"dbname={name}")
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def by_hand(site: str, topics: Topics) -> Iterator[Callable[..., HandJob]]:
    """`by_hand(*routes)` is the holder of a new site's group, or the next one of the same site."""
    made: list[HandJob] = []

    def make(*routes: Member) -> HandJob:
        made.append(HandJob(site, topics, *routes))
        return made[-1]

    yield make
    for job in made:
        job.close()

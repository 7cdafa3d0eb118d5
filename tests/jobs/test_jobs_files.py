"""Routes from files, on Spark and Postgres."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from files_feeding import GROUP, write, write_parquet

from route_jobs import RouteJobs
from route_runner_suite import messages_at
from trunkline.pipeline.jobs.stored import JobPlan, open_plan
from waiting import eventually

pytestmark = pytest.mark.timeout(240)  # a batch that is given back is tried again with growing pauses

MakeJobs = Callable[..., RouteJobs]
TABLE = {
    "plugin": "postgres",
    "config": {"table": "public.came", "columns": {"n": "{payload.n}", "file": "{metadata.files.name}"}},
}
GIVEN_BACK = {"plugin": "validate", "config": {"schema": {"type": "object", "required": ["n"]}}, "onError": "fail"}


def received(folder: Path, **more: Any) -> dict[str, Any]:
    return {"plugin": "files", "config": {"path": str(folder), **more}}


def with_table(jobs: RouteJobs) -> RouteJobs:
    with psycopg.connect(jobs.dsn) as conn:
        conn.execute("CREATE TABLE public.came (id bigserial, n int, file text)")
    return jobs


def came(jobs: RouteJobs) -> list[tuple[int, str]]:
    return [(n, file) for n, file in jobs.rows("SELECT n, file FROM public.came ORDER BY id")]


def until_came(jobs: RouteJobs, count: int) -> list[tuple[int, str]]:
    eventually(lambda: len(came(jobs)) >= count, 60, jobs.failing)
    return came(jobs)


def queued(jobs: RouteJobs) -> list[Any]:
    return [payload for _, payload, *_ in messages_at(jobs.dsn, "app")]


def plan_of(jobs: RouteJobs) -> JobPlan | None:
    with closing(psycopg.connect(jobs.dsn, autocommit=True)) as conn:
        return open_plan(conn, GROUP.lease)


def done(jobs: RouteJobs) -> list[list[str]]:
    """The names of the files of each batch that is done."""
    rows = jobs.rows("SELECT body FROM pipeline.job_batch WHERE jsonb_array_length(body) > 0 ORDER BY moves")
    return [[Path(file["path"]).name for file in body] for (body,) in rows]


def test_files_go_through_their_routes_to_a_table_and_a_queue_each_once(tmp_path: Path, make_jobs: MakeJobs) -> None:
    lines, rows = tmp_path / "lines", tmp_path / "rows"
    write(lines, "a.jsonl", {"n": 1}, {"n": 2})
    write_parquet(rows, "b.parquet", [{"n": 3}, {"n": 4}])
    jobs = with_table(make_jobs())
    jobs.rows("INSERT INTO queues.site (name) VALUES ('shop') RETURNING name")
    jobs.put("lines", received(lines), TABLE)
    jobs.put("rows", received(rows, format="parquet"), TABLE)
    jobs.put(
        "texts", received(lines, format="text"), {"plugin": "queue", "config": {"client": "app", "destinations": ["shop"]}}
    )
    assert sorted(until_came(jobs, 4)) == [(1, "a.jsonl"), (2, "a.jsonl"), (3, "b.parquet"), (4, "b.parquet")]
    eventually(lambda: len(queued(jobs)) >= 2, 60, jobs.failing)
    assert queued(jobs) == ['{"n":1}', '{"n":2}']
    jobs.stop()
    again = make_jobs(jobs.dsn)
    write(lines, "c.jsonl", {"n": 5})
    assert until_came(again, 5)[4:] == [(5, "c.jsonl")]
    eventually(lambda: len(queued(again)) >= 3 and again.events == 2, 60, again.failing)
    assert sorted(name for batch in done(again) for name in batch) == ["a.jsonl", "a.jsonl", "b.parquet", "c.jsonl", "c.jsonl"]
    assert len(came(again)) == 5


def given_back(tmp_path: Path, make_jobs: MakeJobs) -> tuple[RouteJobs, JobPlan]:
    """A pipeline that ended while the batch of `bad` was planned, and not done."""
    write(tmp_path / "in", "bad", {"n": 1}, {"other": 2})
    jobs = with_table(make_jobs())
    jobs.put("checked", received(tmp_path / "in"), TABLE, GIVEN_BACK)
    eventually(lambda: "given back" in "".join(jobs.failing()), 60, jobs.failing)
    jobs.stop()
    plan = plan_of(jobs)
    assert plan is not None
    write(tmp_path / "in", "good", {"n": 3})
    return jobs, plan


def test_h29_a_batch_of_files_that_was_planned_and_not_done_is_the_first_of_the_next_holder(
    tmp_path: Path, make_jobs: MakeJobs
) -> None:
    before, plan = given_back(tmp_path, make_jobs)
    jobs = make_jobs(before.dsn)
    eventually(lambda: len(done(jobs)) == 2, 150, jobs.failing)
    assert done(jobs) == [["bad"], ["good"]]
    assert (3, "good") in came(jobs)
    assert jobs.rows("SELECT body, moves FROM pipeline.job_batch ORDER BY moves LIMIT 1") == [(plan.body, plan.moves + 1)]
    assert (1, "bad") in came(jobs)
    assert jobs.rows("SELECT count(*) FROM routes.dead_letter") == [(1,)], "it was given back too often"


def test_a_planned_file_that_is_gone_is_left_out_and_what_comes_after_it_is_read(tmp_path: Path, make_jobs: MakeJobs) -> None:
    before, _ = given_back(tmp_path, make_jobs)
    (tmp_path / "in" / "bad").unlink()
    (tmp_path / "in" / "good").rename(tmp_path / "in" / ".good")
    jobs = make_jobs(before.dsn)
    jobs.until_running("files")
    assert plan_of(jobs) is None, "nothing is left of it"
    (tmp_path / "in" / ".good").rename(tmp_path / "in" / "good")
    eventually(lambda: done(jobs), 60, jobs.failing)
    assert done(jobs) == [["good"]]
    assert (3, "good") in came(jobs)
    assert jobs.rows("SELECT path LIKE '%%good' FROM pipeline.file_seen") == [(True,)]

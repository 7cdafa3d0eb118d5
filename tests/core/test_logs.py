"""One log: ours and the libraries', text or JSON, with what the context bound."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from trunkline.core.config import LogConfig
from trunkline.core.logs import configure_logs

log = structlog.get_logger("made before anything was configured")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def written(config: LogConfig) -> io.StringIO:
    out = io.StringIO()
    configure_logs(config, out)
    return out


def test_json_has_one_object_per_event_with_the_request_it_belongs_to() -> None:
    out = written(LogConfig(format="json"))
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        log.info("event taken", site="a")
    log.info("after it")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert first == {"level": "info", "event": "event taken", "site": "a", "request_id": "r-1"}
    assert "request_id" not in second


def test_text_is_one_line_per_event() -> None:
    out = written(LogConfig())
    log.warning("the database does not answer", reason="Connection refused")
    [line] = out.getvalue().splitlines()
    assert "[warning  ] the database does not answer reason='Connection refused'" in line


@pytest.mark.parametrize(("level", "said"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_what_is_below_the_level_is_not_written(level: str, said: int) -> None:
    out = written(LogConfig.model_validate({"level": level, "format": "json"}))
    for say in (log.debug, log.info, log.warning, log.error):
        say("word")
    assert len(out.getvalue().splitlines()) == said


def test_libraries_speak_through_the_same_log_when_something_is_wrong() -> None:
    out = written(LogConfig(format="json"))
    logging.getLogger("some.pool").warning("error connecting in %r:\n\tit is away", "trunk")
    logging.getLogger("some.library").info("Started server process")
    [entry] = map(json.loads, out.getvalue().splitlines())
    assert entry["event"] == "error connecting in 'trunk': it is away"
    assert (entry["logger"], entry["level"]) == ("some.pool", "warning")


def test_debug_shows_all_that_libraries_say() -> None:
    out = written(LogConfig(level="debug", format="json"))
    logging.getLogger("some.library").info("Started server process")
    assert "Started server process" in out.getvalue()


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_traceback_is_kept(kind: str) -> None:
    out = written(LogConfig.model_validate({"format": kind}))
    try:
        raise ValueError("the reason")
    except ValueError as error:
        log.error("a task failed", exc_info=error)
        logging.getLogger("library").exception("it failed, too")
    assert out.getvalue().count("ValueError: the reason") == 2
    if kind == "json":
        assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["a task failed", "it failed, too"]

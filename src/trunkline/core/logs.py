"""One log per process: every event, ours or a library's, is one entry on standard error, as text or as JSON.

Ours carry what the context bound (a request's id). Libraries speak through `logging`; of theirs only warnings and worse are
written, unless the level is debug: what they say when all is well is not about Trunkline.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

from trunkline.core.config import LogConfig

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _IntoStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = " ".join(record.getMessage().split())
            structlog.get_logger().log(record.levelno, said, logger=record.name, exc_info=record.exc_info or None)
        except Exception:
            self.handleError(record)


def configure_logs(config: LogConfig, out: TextIO | None = None) -> None:
    """May be called again: the last call counts, also for loggers that exist already."""
    stream = out if out is not None else sys.stderr
    level = _LEVELS[config.level]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(config, stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(
        handlers=[_IntoStructlog()], level=level if level == logging.DEBUG else max(level, logging.WARNING), force=True
    )


def _rendering(config: LogConfig, stream: TextIO) -> list[Any]:
    if config.format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    return [plain]

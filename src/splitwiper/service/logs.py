"""Logs as JSON lines. They never contain labels, data or secrets."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from splitwiper.service.connections.limits import RateLimiter

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_LIMITED = ("uvicorn", "asyncio", "splitwiper.service.connections", "splitwiper.service.refused")
"""Loggers that peers can trigger at any rate."""


class JsonLines(logging.Formatter):
    """Formats a log record as JSON: timestamp, level, message, extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OWN},
        }
        if record.exc_info:
            fields["problem"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


class RateLimit(logging.Filter):
    """Passes a burst of records, then one every few seconds, with the number of records dropped before it."""

    def __init__(self, burst: int = 30, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._rates, self._left_out = RateLimiter(1 / seconds, burst, clock), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if not self._rates.has("records"):
            self._left_out += 1
            return False
        self._rates.take("records")
        if self._left_out:
            record.left_out, self._left_out = self._left_out, 0
        return True


def to_stderr(level: int = logging.INFO) -> None:
    """Send the logs of the service, uvicorn and asyncio to standard error."""
    for name in ("splitwiper", *_LIMITED):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        if name in _LIMITED:
            handler.addFilter(RateLimit())
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.propagate = False
        log.setLevel(level)

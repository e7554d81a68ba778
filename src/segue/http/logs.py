"""Log as lines of JSON on standard error.

Log lines of requests have their id, route, status, time and workspace, but no key, body or query.
"""

from __future__ import annotations

import logging
import sys

from segue.model import clock, codec

FIELDS = "fields"  # the attribute of a log record that holds further fields of its line


class JsonFormatter(logging.Formatter):
    """Format each log record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": clock.to_rfc3339(int(record.created * clock.SECOND)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return codec.encode(line).decode()


def configure(level: str) -> None:
    """Send the process's log records of at least `level` to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper())

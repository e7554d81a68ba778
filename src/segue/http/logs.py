"""Logs as lines of JSON: for machines to read, and without anything secret to begin with.

A request is told by its id, route, status, time and workspace: no key, no body, no query text.
"""

from __future__ import annotations

import logging
import sys

from segue.model import clock, codec

FIELDS = "fields"  # the attribute of a record that carries more than its message


class Lines(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": clock.to_rfc3339(int(record.created * clock.SECOND)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return codec.encode(told).decode()


def start(level: str) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(handlers=[handler], level=level.upper())

"""Times: integer microseconds since the epoch, in UTC.

Code that needs the time calls `now()` or takes it as an argument, so tests can set it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

SECOND = 1_000_000
DAY = 86_400 * SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
# 0001-01-01 and 9999-12-31, the range of datetime.
EARLIEST = -62_135_596_800 * SECOND
LATEST = 253_402_300_799 * SECOND
# A time as text: UTC, with up to six digits of a second.
TIME_PATTERN = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z$"
)
Time = Annotated[str, msgspec.Meta(pattern=TIME_PATTERN)]


def now() -> int:
    """Return the current time in microseconds."""
    return time.time_ns() // 1000


def to_rfc3339(at: int) -> str:
    """Return a time as text, such as `1970-01-01T00:00:00.000000Z` for 0."""
    moment = _NAIVE_EPOCH + timedelta(0, 0, at)
    return moment.isoformat(timespec="microseconds") + "Z"


def to_datetime(at: int) -> datetime:
    """Return a time as a datetime in UTC."""
    return _EPOCH + timedelta(0, 0, at)


def from_rfc3339(text: str) -> int:
    """Return the microseconds of an RFC 3339 or ISO 8601 time; without a zone it is in UTC.

    Raises ValueError for other text.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds

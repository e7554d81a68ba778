"""Parse and format times: `2d`, `2025-01-31`, `5m`."""

from __future__ import annotations

import re

import click

from segue.model import clock

_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DAYS_AGO = {"today": 0, "yesterday": 1}
_AGE_LIMITS = ((60, "s"), (3600, "m"), (86_400, "h"), (86_400 * 365, "d"))


class TimeType(click.ParamType[int]):
    """A time in microseconds, from a duration (that long ago), a date or an RFC 3339 time.

    A date is the time at which it begins, or with `end_of_day` ends; `today` and `yesterday` are
    dates.
    """

    name = "when"

    def __init__(self, *, end_of_day: bool = False) -> None:
        self._end_of_day = end_of_day

    def convert(
        self, value: str | int, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        if (duration := _parse_duration(value)) is not None:
            return clock.now() - duration
        if value in _DAYS_AGO:
            value = clock.to_rfc3339(clock.now() - _DAYS_AGO[value] * clock.DAY)[:10]
        try:
            at = clock.from_rfc3339(value)
        except (ValueError, OverflowError):
            message = f"cannot read {value!r} as a time; try 12h, 7d, yesterday or 2025-01-31"
            self.fail(message, param, context)
        is_date = _DATE.fullmatch(value) is not None
        return at + clock.DAY if is_date and self._end_of_day else at


class DurationType(click.ParamType[int]):
    """A duration in microseconds."""

    name = "duration"

    def convert(
        self, value: str | int, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        duration = _parse_duration(value)
        if duration is None:
            self.fail(f"{value!r} is not a duration; use 45m, 12h, 7d or 2w", param, context)
        return duration


def _parse_duration(text: str) -> int | None:
    """Return the microseconds of a duration such as `12h`; None if it is not one."""
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_SECONDS[match[2]] * clock.SECOND


def age(at: int, now: int) -> str:
    """Return the time since `at` in the largest unit that fits: `5m`."""
    seconds = max(0, now - at) // clock.SECOND
    unit = 1
    for limit, letter in _AGE_LIMITS:
        if seconds < limit:
            return f"{seconds // unit}{letter}"
        unit = limit
    return f"{seconds // unit}y"

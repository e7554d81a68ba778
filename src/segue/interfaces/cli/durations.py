"""Times as people give and read them: `2d`, `2025-01-31`; `5m`, `3h ago`."""

from __future__ import annotations

import re

import click

from segue.model import clock

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGO = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_AGES = ((60, "s"), (3600, "m"), (86_400, "h"), (86_400 * 365, "d"))


class When(click.ParamType[int]):
    """An option's value that is a time: how long ago, a day, or a moment in RFC 3339."""

    name = "when"

    def convert(
        self, value: str | int, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        if ago := _AGO.fullmatch(value):
            return clock.now() - int(ago[1]) * _UNITS[ago[2]] * clock.SECOND
        try:
            return clock.from_rfc3339(value)
        except (ValueError, OverflowError):
            hint = "give 45m, 12h, 7d or 2w ago, a day as 2025-01-31, or a moment in RFC 3339"
            self.fail(f"{value!r} is no time: {hint}", param, context)


class Lasting(click.ParamType[int]):
    """An option's value that is a length of time, in microseconds."""

    name = "duration"

    def convert(
        self, value: str | int, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        if length := _AGO.fullmatch(value):
            return int(length[1]) * _UNITS[length[2]] * clock.SECOND
        self.fail(f"{value!r} is no length of time: give 45m, 12h, 7d or 2w", param, context)


def age(at: int, now: int) -> str:
    """How long ago, in the largest unit that fits: `5m`."""
    seconds = max(0, now - at) // clock.SECOND
    unit = 1
    for limit, letter in _AGES:
        if seconds < limit:
            return f"{seconds // unit}{letter}"
        unit = limit
    return f"{seconds // unit}y"

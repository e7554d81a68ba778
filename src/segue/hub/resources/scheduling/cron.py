"""Cron schedules of five fields in a time zone.

A local time that a clock change skips runs an hour later. A local time that occurs twice runs
once, unless the schedule runs every hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from segue.model import clock
from segue.model.errors import InvalidInput

# (name, least, greatest)
_FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("day of week", 0, 7),
)
_PART = re.compile(r"(?:\*|([0-9]{1,2})(?:-([0-9]{1,2}))?)(?:/([0-9]{1,2}))?", re.ASCII)
# A 29th of February on a given day of the week comes back within this many days.
_HORIZON_DAYS = 366 * 41
# More times on a day than these are computed from midnight, unless the clock changes on it.
_MAX_LISTED_TIMES = 48


class Cron(NamedTuple):
    """A parsed schedule."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int] | None  # None for any
    months: frozenset[int]
    weekdays: frozenset[int] | None
    zone: tzinfo

    def after(self, at: int) -> Iterator[int]:
        """Yield the times of the schedule after `at`, in microseconds, in order."""
        day = datetime.fromtimestamp(at // clock.SECOND, self.zone).date() - timedelta(1)
        end = day + min(timedelta(_HORIZON_DAYS), date(date.max.year, 1, 1) - day)
        last = at
        while day < end:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(31)).replace(day=1)
                continue
            if self._on(day):
                for time in self._times(day, last):
                    if time > last:
                        last = time
                        yield time
            day += timedelta(1)

    def _on(self, day: date) -> bool:
        of_month = self.days is None or day.day in self.days
        of_week = self.weekdays is None or day.isoweekday() % 7 in self.weekdays
        if self.days is not None and self.weekdays is not None:
            return of_month or of_week  # as cron has it
        return of_month and of_week

    def _times(self, day: date, after: int) -> Iterable[int]:
        """Return the times on a day, in order, and at least those after a time."""
        if len(self.hours) * len(self.minutes) <= _MAX_LISTED_TIMES:
            return sorted(self._convert_each(day))
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        hours = [midnight + timedelta(hours=hour) for hour in range(25)]
        if len({hour.replace(fold=fold).utcoffset() for hour in hours for fold in (0, 1)}) > 1:
            return sorted(self._convert_each(day))
        start = int(midnight.timestamp())
        return (
            (start + 3600 * hour + 60 * minute) * clock.SECOND
            for hour in self.hours
            if (start + 3600 * hour + 3600) * clock.SECOND > after
            for minute in self.minutes
        )

    def _convert_each(self, day: date) -> Iterator[int]:
        folds = (0, 1) if len(self.hours) == 24 else (0,)
        for hour in self.hours:
            for minute in self.minutes:
                for fold in folds:
                    local = datetime(
                        day.year, day.month, day.day, hour, minute, tzinfo=self.zone, fold=fold
                    )
                    yield int(local.astimezone(UTC).timestamp()) * clock.SECOND


def parse(expression: str, timezone: str) -> Cron:
    """Parse a cron expression. Raises InvalidInput that names the invalid field."""
    fields = expression.split()
    if len(fields) != 5:
        raise InvalidInput(f"expression: cron has 5 fields, and {expression!r} has {len(fields)}")
    field_values = [_values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)]
    cron = Cron(
        minutes=tuple(sorted(field_values[0])),
        hours=tuple(sorted(field_values[1])),
        days=None if fields[2] == "*" else field_values[2],
        months=field_values[3],
        weekdays=None if fields[4] == "*" else frozenset(value % 7 for value in field_values[4]),
        zone=_zone(timezone),
    )
    if next(cron.after(clock.now()), None) is None:
        raise InvalidInput(f"expression: {expression!r} matches no date")
    return cron


def _values(text: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise InvalidInput(f"expression: {part!r} is not a valid {name}")
        first, last, step = (None if number is None else int(number) for number in match.groups())
        if first is None:
            first, last = low, high
        elif last is None:
            last = first if step is None else high
        if not low <= first <= last <= high or step == 0:
            raise InvalidInput(f"expression: {part!r} is not a valid {name} ({low} to {high})")
        values |= set(range(first, last + 1, step or 1))
    return frozenset(values)


def _zone(name: str) -> tzinfo:
    if name in ("UTC", "Etc/UTC"):  # UTC needs no database
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(f"timezone: {name!r} is no time zone of the IANA database") from None

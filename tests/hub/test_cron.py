"""Cron schedules in time zones with clock changes."""

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.hub.resources.scheduling import cron
from segue.model import clock
from segue.model.errors import InvalidInput


def parse_time(text: str) -> int:
    return clock.from_rfc3339(text)


def next_times(expression: str, start_text: str, count: int = 3, zone: str = "UTC") -> list[str]:
    times = islice(cron.parse(expression, zone).after(parse_time(start_text)), count)
    return [clock.to_rfc3339(moment)[:16] for moment in times]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["2026-11-16T10:31", "2026-11-16T10:32", "2026-11-16T10:33"]),
        ("*/20 * * * *", ["2026-11-16T10:40", "2026-11-16T11:00", "2026-11-16T11:20"]),
        ("30 10 * * *", ["2026-11-17T10:30", "2026-11-18T10:30", "2026-11-19T10:30"]),
        ("0 9 * * 1-5", ["2026-11-17T09:00", "2026-11-18T09:00", "2026-11-19T09:00"]),
        ("0 0 * * 0", ["2026-11-22T00:00", "2026-11-29T00:00", "2026-12-06T00:00"]),
        ("0 0 * * 7", ["2026-11-22T00:00", "2026-11-29T00:00", "2026-12-06T00:00"]),
        ("5,10-11 3/12 1 * *", ["2026-12-01T03:05", "2026-12-01T03:10", "2026-12-01T03:11"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
        # If both day fields are set, either may match.
        ("0 0 20 * 2", ["2026-11-17T00:00", "2026-11-20T00:00", "2026-11-24T00:00"]),
    ],
)
def test_expression_gives_the_expected_times(expression: str, expected: list[str]) -> None:
    assert next_times(expression, "2026-11-16T10:30:00Z") == expected


def test_times_follow_the_zone_through_clock_changes() -> None:
    zone = "America/New_York"
    # Clocks go from 2 to 3 on the 8th of March, and from 2 back to 1 on the 1st of November.
    expected = ["2026-03-07T07:30", "2026-03-08T07:30", "2026-03-09T06:30"]
    assert next_times("30 2 * * *", "2026-03-06T12:00:00Z", zone=zone) == expected
    expected = ["2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30"]
    assert next_times("30 1 * * *", "2026-10-30T12:00:00Z", zone=zone) == expected
    # An hourly schedule runs every hour.
    for start_text in ("2026-11-01T03:59:00Z", "2026-03-08T04:59:00Z"):
        hours = [text[11:] for text in next_times("0 * * * *", start_text, 6, zone)]
        first = int(hours[0][:2])
        assert hours == [f"{first + number:02}:00" for number in range(6)]


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * * *", "* * * * * *", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *"),
        *("* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "x * * * *", "1.5 * * * *"),
        *("* * L * *", "* * ? * *", "* * * * 1#2", "-1 * * * *", ", * * * *", "0 0 31 2 *"),
    ],
)
def test_invalid_schedule_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput):
        cron.parse(expression, "UTC")


@pytest.mark.parametrize("zone", ["", "Nowhere", "../etc/passwd", "/etc/passwd", "a\0b"])
def test_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInput):
        cron.parse("* * * * *", zone)


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    begin=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),
    zone=st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
)
def test_times_increase_and_are_whole_minutes(
    minute: int, hour: int, begin: datetime, zone: str
) -> None:
    start = int(begin.replace(tzinfo=UTC).timestamp()) * clock.SECOND
    for expression in (f"{minute} {hour} * * *", f"{minute} * * * *"):
        times = [start, *islice(cron.parse(expression, zone).after(start), 40)]
        assert times == sorted(set(times))
        assert all(moment % (60 * clock.SECOND) == 0 for moment in times[1:])


def test_utc_needs_no_time_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_no_zone(name: str) -> ZoneInfo:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(cron, "ZoneInfo", find_no_zone)
    start = clock.from_rfc3339("2026-11-16T10:00:00Z")
    for name in ("UTC", "Etc/UTC"):
        times = next(cron.parse("30 9 * * *", name).after(start))
        assert clock.to_rfc3339(times) == "2026-11-17T09:30:00.000000Z"
    with pytest.raises(InvalidInput):
        cron.parse("* * * * *", "Asia/Kathmandu")

"""Format and parse times."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from segue.model import clock


@given(st.integers(clock.EARLIEST, clock.LATEST))
@example(clock.EARLIEST)
@example(clock.LATEST)
@example(-1)
def test_time_is_parsed_back_from_its_text(at: int) -> None:
    text = clock.to_rfc3339(at)
    assert clock.from_rfc3339(text) == at
    assert len(text) == len("1970-01-01T00:00:00.000000Z")


def test_times_are_microseconds_since_the_epoch() -> None:
    assert clock.to_rfc3339(0) == "1970-01-01T00:00:00.000000Z"
    assert clock.from_rfc3339("1970-01-01T00:00:01Z") == clock.SECOND
    assert clock.from_rfc3339("1970-01-02T01:00:00+01:00") == clock.DAY


def test_time_without_a_zone_is_utc() -> None:
    assert clock.from_rfc3339("1970-01-01T00:00:01.5") == 1_500_000


@pytest.mark.parametrize("text", ["", "yesterday", "2024-13-01T00:00:00Z", "1700000000"])
def test_invalid_time_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        clock.from_rfc3339(text)


def test_now_is_in_microseconds() -> None:
    assert 1_600_000_000 * clock.SECOND < clock.now() < clock.LATEST

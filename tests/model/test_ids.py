"""Create, format and parse ids."""

import threading
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model import ids

uuids = st.uuids(allow_nil=True).map(str)
MAX_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


@given(uuids)
def test_all_formats_of_an_id_parse_to_the_same_id(id: str) -> None:
    rest_id = ids.format_id("sesn", id)
    assert len(rest_id) == len("sesn_01") + 22
    for text in (id, id.upper(), id.replace("-", ""), rest_id):
        assert ids.parse(text) == id


@given(st.sets(uuids, min_size=2, max_size=2))
def test_different_ids_have_different_formats(pair: set[str]) -> None:
    first, second = sorted(pair)
    assert ids.format_id("sesn", first) != ids.format_id("sesn", second)


def test_parse_accepts_only_the_expected_type_prefix() -> None:
    id = ids.new_id()
    rest_id = ids.format_id("agent", id)
    assert ids.parse(rest_id) == ids.parse(rest_id, "agent") == id
    assert ids.parse(rest_id, "sesn") is None
    assert ids.parse(id, "sesn") == id


def test_largest_id_parses_and_larger_numbers_do_not() -> None:
    largest = ids.format_id("sesn", MAX_ID)
    assert ids.parse(largest) == MAX_ID
    next_char = chr(ord(largest[-1]) + 1)
    for text in (largest[:-1] + next_char, "sesn_01" + "z" * 22):
        assert ids.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "sesn_01",
        "sesn_01" + "1" * 21,
        "sesn_01" + "1" * 23,
        "sesn_02" + "1" * 22,
        "sesn_01" + "0" + "1" * 21,  # base 58 has no digits 0, O, I and l
        "sesn_01" + "O" + "1" * 21,
        "SESN_01" + "1" * 22,
        "sesn_01" + "1" * 22 + "\n",
        "0" * 31,
        "0" * 33,
        "0000-00000000-0000-0000-000000000000",
        MAX_ID + "\n",
        " " + MAX_ID,
        MAX_ID.replace("f", "g"),
        "{" + MAX_ID + "}",
        "urn:uuid:" + MAX_ID,
        "\uff10" * 32,  # full-width digits
    ],
)
def test_parse_returns_none_for_an_invalid_id(text: str) -> None:
    assert ids.parse(text) is None


@given(st.text())
def test_parse_returns_canonical_ids(text: str) -> None:
    id = ids.parse(text)
    assert id is None or str(uuid.UUID(id)) == id


def test_new_ids_increase() -> None:
    new_ids = [ids.new_id() for _ in range(5_000)]
    assert new_ids == sorted(set(new_ids))


def test_new_ids_have_version_7_and_the_current_time(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 4_000_000_000_123  # milliseconds, later than any earlier id
    monkeypatch.setattr(time, "time_ns", lambda: moment * 1_000_000)
    monkeypatch.setattr(ids, "_last", 0)
    new_ids = uuid.UUID(ids.new_id())
    assert (new_ids.version, new_ids.variant) == (7, uuid.RFC_4122)
    assert new_ids.int >> 80 == moment


def test_new_ids_increase_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    times = iter([2_000_000_000, 1_000_000_000, 1_000_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    new_ids = [ids.new_id() for _ in range(3)]
    assert new_ids == sorted(set(new_ids))


def test_threads_create_distinct_ids() -> None:
    new_ids: list[list[str]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(
            target=lambda target=target: target.extend(ids.new_id() for _ in range(500))
        )
        for target in new_ids
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_ids = [id for distinct_ids in new_ids for id in distinct_ids]
    assert len(set(all_ids)) == 2_000
    assert all(distinct_ids == sorted(distinct_ids) for distinct_ids in new_ids)


def test_derived_id_is_deterministic_and_depends_on_its_parts() -> None:
    assert ids.derived_id("a", "b") == ids.derived_id("a", "b")
    assert uuid.UUID(ids.derived_id("a")).version == 5
    distinct_ids = {
        ids.derived_id(*parts) for parts in [("a", "b"), ("ab",), ("b", "a"), ("a",), ("a", "")]
    }
    assert len(distinct_ids) == 5
    assert ids.derived_id("\ud800") != ids.derived_id("\udc00")


@given(uuids, st.integers(1, 32))
def test_prefix_range_contains_the_ids_with_this_prefix(id: str, length: int) -> None:
    for prefix in (id[:length], id[:length].upper(), id.replace("-", "")[:length]):
        low, high = ids.prefix_range(prefix, "sesn") or ("", "")
        assert ids.parse(low) == low <= id <= high == ids.parse(high)
        digits = prefix.lower().replace("-", "")
        assert all(bound.replace("-", "").startswith(digits) for bound in (low, high))
    prefix_of_rest_id = ids.format_id("sesn", id)[: 7 + min(length, 22)]
    low, high = ids.prefix_range(prefix_of_rest_id, "sesn") or ("", "")
    assert low <= id <= high
    assert all(ids.format_id("sesn", bound).startswith(prefix_of_rest_id) for bound in (low, high))


@pytest.mark.parametrize(
    "text", ["", "sesn_01", "sesn_01zzz", "sesn_010", "xyz", "agent_01abc", "-"]
)
def test_prefix_range_is_none_if_no_id_has_the_prefix(text: str) -> None:
    assert ids.prefix_range(text, "sesn") is None

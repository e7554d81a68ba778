import threading
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model import ids

uuids = st.uuids(allow_nil=True).map(str)
LARGEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"


@given(uuids)
def test_every_spelling_names_the_same(id: str) -> None:
    spelt = ids.format_id("sesn", id)
    assert len(spelt) == len("sesn_01") + 22
    for spelling in (id, id.upper(), id.replace("-", ""), spelt):
        assert ids.parse(spelling) == id


@given(st.sets(uuids, min_size=2, max_size=2))
def test_different_ids_are_spelt_differently(pair: set[str]) -> None:
    one, two = sorted(pair)
    assert ids.format_id("sesn", one) != ids.format_id("sesn", two)


def test_a_prefix_must_be_the_one_asked_for() -> None:
    id = ids.new_id()
    spelt = ids.format_id("agent", id)
    assert ids.parse(spelt) == ids.parse(spelt, "agent") == id
    assert ids.parse(spelt, "sesn") is None
    assert ids.parse(id, "sesn") == id


def test_the_largest_id_has_a_spelling_and_nothing_beyond_it() -> None:
    largest = ids.format_id("sesn", LARGEST)
    assert ids.parse(largest) == LARGEST
    next_char = chr(ord(largest[-1]) + 1)
    for spelling in (largest[:-1] + next_char, "sesn_01" + "z" * 22):
        assert ids.parse(spelling) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "sesn_01",
        "sesn_01" + "1" * 21,
        "sesn_01" + "1" * 23,
        "sesn_02" + "1" * 22,
        "sesn_01" + "0" + "1" * 21,  # 0, O, I and l are no digits in base 58
        "sesn_01" + "O" + "1" * 21,
        "SESN_01" + "1" * 22,
        "sesn_01" + "1" * 22 + "\n",
        "0" * 31,
        "0" * 33,
        "0000-00000000-0000-0000-000000000000",
        LARGEST + "\n",
        " " + LARGEST,
        LARGEST.replace("f", "g"),
        "{" + LARGEST + "}",
        "urn:uuid:" + LARGEST,
        "\uff10" * 32,  # full-width digits
    ],
)
def test_a_wrong_spelling_names_nothing(text: str) -> None:
    assert ids.parse(text) is None


@given(st.text())
def test_whatever_parses_is_a_canonical_id(text: str) -> None:
    id = ids.parse(text)
    assert id is None or str(uuid.UUID(id)) == id


def test_new_ids_only_go_up() -> None:
    made = [ids.new_id() for _ in range(5_000)]
    assert made == sorted(set(made))


def test_new_ids_are_of_version_7_and_carry_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 4_000_000_000_123  # milliseconds, later than any id made before
    monkeypatch.setattr(time, "time_ns", lambda: moment * 1_000_000)
    monkeypatch.setattr(ids, "_last", 0)
    made = uuid.UUID(ids.new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == moment


def test_new_ids_go_up_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    times = iter([2_000_000_000, 1_000_000_000, 1_000_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    made = [ids.new_id() for _ in range(3)]
    assert made == sorted(set(made))


def test_threads_never_make_the_same_id() -> None:
    made: list[list[str]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda to=to: to.extend(ids.new_id() for _ in range(500)))
        for to in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [id for some in made for id in some]
    assert len(set(every)) == 2_000
    assert all(some == sorted(some) for some in made)


def test_a_derived_id_is_always_the_same_and_knows_its_parts() -> None:
    assert ids.derived_id("a", "b") == ids.derived_id("a", "b")
    assert uuid.UUID(ids.derived_id("a")).version == 5
    some = {
        ids.derived_id(*parts) for parts in [("a", "b"), ("ab",), ("b", "a"), ("a",), ("a", "")]
    }
    assert len(some) == 5
    assert ids.derived_id("\ud800") != ids.derived_id("\udc00")


@given(uuids, st.integers(1, 32))
def test_the_bounds_of_a_beginning_hold_what_begins_so(id: str, length: int) -> None:
    for begun in (id[:length], id[:length].upper(), id.replace("-", "")[:length]):
        low, high = ids.prefix_range(begun, "sesn") or ("", "")
        assert ids.parse(low) == low <= id <= high == ids.parse(high)
        digits = begun.lower().replace("-", "")
        assert all(each.replace("-", "").startswith(digits) for each in (low, high))
    short = ids.format_id("sesn", id)[: 7 + min(length, 22)]
    low, high = ids.prefix_range(short, "sesn") or ("", "")
    assert low <= id <= high
    assert all(ids.format_id("sesn", each).startswith(short) for each in (low, high))


@pytest.mark.parametrize(
    "text", ["", "sesn_01", "sesn_01zzz", "sesn_010", "xyz", "agent_01abc", "-"]
)
def test_what_begins_no_id_has_no_bounds(text: str) -> None:
    assert ids.prefix_range(text, "sesn") is None

"""Encode, sign and check cursors."""

import base64
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model import cursor as cursors
from segue.model.cursor import (
    ChangePoint,
    Cursor,
    ListPosition,
    decode,
    decode_list_position,
    encode,
    fingerprint,
)
from segue.model.errors import InvalidCursor
from segue.model.query import Position, Query

KEY = bytes(range(32))
CURSOR = Cursor(
    order="active",
    descending=True,
    position=Position(1_700_000_000_000_000, "018f4c25-df68-7752-bade-5cf11b6fd49b"),
    marks={"": ChangePoint(7, 9), "claude": ChangePoint(1, 2)},
    filters=fingerprint(Query(tag="t")),
)
TOKEN = encode(CURSOR, KEY, "local")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

all_cursors = st.builds(
    Cursor,
    order=st.sampled_from(("active", "created")),
    descending=st.booleans(),
    position=st.builds(Position, st.integers(-(2**62), 2**62), st.text(max_size=40)),
    phase=st.sampled_from(("page", "sweep")),
    backward=st.booleans(),
    marks=st.dictionaries(
        st.text(), st.builds(ChangePoint, st.integers(0, 2**62), st.integers(0, 2**62))
    ),
    filters=st.binary(max_size=8),
)


@given(all_cursors, st.text(ALPHABET, max_size=20), st.binary(min_size=1, max_size=64))
def test_decode_returns_the_encoded_cursor(cursor: Cursor, workspace: str, key: bytes) -> None:
    token = encode(cursor, key, workspace)
    assert set(token) <= set(ALPHABET)
    assert decode(token, key, workspace) == cursor


def test_cursor_with_a_changed_character_is_refused() -> None:
    for index, char in product(range(len(TOKEN)), ALPHABET + "=+/ é"):
        changed = TOKEN[:index] + char + TOKEN[index + 1 :]
        if changed != TOKEN:
            with pytest.raises(InvalidCursor):
                decode(changed, KEY, "local")


def test_shortened_or_extended_cursor_is_refused() -> None:
    other_tokens = [TOKEN[:end] for end in range(len(TOKEN))]
    other_tokens += [TOKEN[start:] for start in range(1, len(TOKEN))]
    other_tokens += [TOKEN + "A", TOKEN + "=", TOKEN + "==", TOKEN + "\n", " " + TOKEN, TOKEN * 2]
    for token in other_tokens:
        with pytest.raises(InvalidCursor):
            decode(token, KEY, "local")


def test_cursor_of_another_workspace_or_store_is_refused() -> None:
    for key, workspace in ((KEY, "other"), (KEY, ""), (KEY, "loca"), (KEY[::-1], "local")):
        with pytest.raises(InvalidCursor):
            decode(TOKEN, key, workspace)


def test_cursor_of_another_version_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cursors, "_VERSION", 2)
        newer = encode(CURSOR, KEY, "local")
    with pytest.raises(InvalidCursor, match="another version"):
        decode(newer, KEY, "local")


@given(st.text() | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_invalid_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidCursor):
        decode(token, KEY, "local")


def test_fingerprint_depends_on_filters_but_not_on_paging() -> None:
    plain = fingerprint(Query())
    assert fingerprint(Query(limit=7, order="created", descending=False)) == plain
    filtered_queries = [
        Query(tag="a"),
        Query(tag="\ud800"),
        Query(text="a"),
        Query(directories=("/a", "/b")),
        Query(directories=("/a, /b",)),
        Query(archived="only"),
        Query(trash=True),
        Query(created_gt=5),
        Query(created_gte=5),
    ]
    assert len({plain, *map(fingerprint, filtered_queries)}) == len(filtered_queries) + 1


list_positions = st.builds(
    ListPosition,
    of=st.text(max_size=40),
    descending=st.booleans(),
    number=st.integers(-(2**62), 2**62),
    text=st.text(max_size=40),
)


@given(list_positions)
def test_list_position_is_decoded_but_is_not_a_cursor(list_position: ListPosition) -> None:
    token = encode(list_position, KEY, "local")
    assert decode_list_position(token, KEY, "local") == list_position
    with pytest.raises(InvalidCursor):
        decode(token, KEY, "local")
    with pytest.raises(InvalidCursor):
        decode_list_position(token, KEY, "other")
    with pytest.raises(InvalidCursor):
        decode_list_position(TOKEN, KEY, "local")

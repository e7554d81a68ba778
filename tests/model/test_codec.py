"""Encode and decode values without loss."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model import codec
from segue.model.content import Text, as_content
from segue.model.event import ToolCall, UserMessage, decode_body
from segue.model.session import Session, decode_session

# Any characters, including NULs and lone surrogates.
any_text = st.text(st.characters(codec=None) | st.sampled_from("\0\ud83d\ude00\u2028"))
decode: codec.Decoder[Any] = codec.Decoder(Any)


def join_surrogates(text: str) -> str:
    """Return the text with adjacent surrogates joined into characters, as JSON does."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | any_text.map(join_surrogates),
    lambda inner: st.lists(inner) | st.dictionaries(any_text.map(join_surrogates), inner),
    max_leaves=10,
)


@given(values)
def test_any_value_is_decoded_unchanged(value: Any) -> None:
    assert decode(codec.encode(value)) == value


@given(any_text)
def test_any_text_in_a_struct_is_decoded_unchanged(text: str) -> None:
    body = UserMessage(content=(Text(text=text, extra={"x": text}),))
    assert decode_body(codec.encode(body)) == UserMessage(
        content=(Text(text=join_surrogates(text), extra={"x": join_surrogates(text)}),)
    )


def test_surrogate_pair_is_decoded_as_one_character() -> None:
    assert decode(codec.encode("\ud83d" + "\ude00")) == "\U0001f600"


@given(any_text)
def test_encoded_text_is_valid_json(text: str) -> None:
    assert json.loads(codec.encode([text])) == [join_surrogates(text)]


def test_default_values_are_not_encoded() -> None:
    row = Session(
        id="i", workspace="w", cwd="/", created_at=1, active_at=1, updated_at=1, last_seq=1
    )
    assert b"memory_store_ids" not in codec.encode(row)
    assert decode_session(codec.encode(row)) == row


def test_tool_input_may_be_any_json() -> None:
    body = ToolCall(call_id="c", name="n", input={"a": [1, None, {"b": 2.5}], "c": "\ud800"})
    assert decode_body(codec.encode(body)) == body


@pytest.mark.parametrize(
    "data", [b'{"type":"user_message"}', b'{"type":"user_message","content":3}']
)
def test_invalid_body_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_body(data)


def test_invalid_body_with_surrogates_is_refused() -> None:
    data = codec.encode({"type": "user_message", "content": "\ud800"})
    with pytest.raises(msgspec.ValidationError):
        decode_body(data)


@given(any_text, any_text)
def test_keys_are_equal_only_for_equal_texts(first: str, second: str) -> None:
    assert (codec.key(first) == codec.key(second)) == (first == second)


@given(st.text(max_size=20), st.integers(400, 3000))
def test_keys_of_long_texts_are_short_and_different(end: str, length: int) -> None:
    first, second = "é" * length + end, "é" * length + end + "x"
    assert len(codec.key(first)) <= 512
    assert codec.key(first) != codec.key(second)
    assert codec.key(first) == codec.key(first)


def test_content_accepts_text_a_block_or_blocks() -> None:
    block = Text(text="a")
    assert as_content("a") == as_content(block) == as_content([block]) == (block,)

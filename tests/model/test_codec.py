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

# Any characters at all, NULs and lone surrogates among them.
odd_text = st.text(st.characters(codec=None) | st.sampled_from("\0\ud83d\ude00\u2028"))
decode: codec.Decoder[Any] = codec.Decoder(Any)


def joined(text: str) -> str:
    """The text with halves of characters that stand side by side made whole, as JSON has it."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | odd_text.map(joined),
    lambda inner: st.lists(inner) | st.dictionaries(odd_text.map(joined), inner),
    max_leaves=10,
)


@given(values)
def test_any_value_comes_back(value: Any) -> None:
    assert decode(codec.encode(value)) == value


@given(odd_text)
def test_any_text_comes_back_in_a_struct(text: str) -> None:
    body = UserMessage(content=(Text(text=text, extra={"x": text}),))
    assert decode_body(codec.encode(body)) == UserMessage(
        content=(Text(text=joined(text), extra={"x": joined(text)}),)
    )


def test_two_halves_of_a_character_come_back_as_the_character() -> None:
    assert decode(codec.encode("\ud83d" + "\ude00")) == "\U0001f600"


@given(odd_text)
def test_what_is_written_is_json_in_ascii_or_utf8(text: str) -> None:
    assert json.loads(codec.encode([text])) == [joined(text)]


def test_defaults_are_not_written() -> None:
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
def test_what_does_not_fit_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_body(data)


def test_what_does_not_fit_is_refused_however_odd_its_text() -> None:
    data = codec.encode({"type": "user_message", "content": "\ud800"})
    with pytest.raises(msgspec.ValidationError):
        decode_body(data)


@given(odd_text, odd_text)
def test_keys_are_equal_only_for_equal_texts(one: str, two: str) -> None:
    assert (codec.key(one) == codec.key(two)) == (one == two)


@given(st.text(max_size=20), st.integers(400, 3000))
def test_keys_of_long_texts_are_short_and_different(end: str, length: int) -> None:
    one, two = "é" * length + end, "é" * length + end + "x"
    assert len(codec.key(one)) <= 512
    assert codec.key(one) != codec.key(two)
    assert codec.key(one) == codec.key(one)


def test_content_is_made_of_text_or_blocks() -> None:
    block = Text(text="a")
    assert as_content("a") == as_content(block) == as_content([block]) == (block,)

from typing import Any

import pytest

from segue.model import codec, event
from segue.model.content import as_content
from segue.model.event import BODIES, Event, Foreign, Usage, UserMessage, body_type, decode_body


def test_every_body_has_a_name_of_its_own() -> None:
    assert len(set(BODIES.values())) == len(BODIES)
    assert BODIES["user_message"] is UserMessage
    body = UserMessage(content=as_content("hello"))
    assert body_type(body) == Event(seq=1, id="i", at=0, body=body).type == "user_message"


def test_an_older_body_is_lifted_version_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_1(raw: dict[str, Any]) -> dict[str, Any]:
        return {"type": raw["type"], "words": raw["text"]}

    def from_2(raw: dict[str, Any]) -> dict[str, Any]:
        return {"type": raw["type"], "content": [{"type": "text", "text": raw["words"]}]}

    monkeypatch.setattr(event, "BODY_VERSION", 3)
    monkeypatch.setitem(event.UPCASTS, ("user_message", 1), from_1)
    monkeypatch.setitem(event.UPCASTS, ("user_message", 2), from_2)
    hello = UserMessage(content=as_content("hello"))
    assert decode_body(b'{"type":"user_message","text":"hello"}', 1) == hello
    assert decode_body(b'{"type":"user_message","words":"hello"}', 2) == hello


def test_a_body_from_a_newer_program_is_kept_whole() -> None:
    raw = {"type": "hologram", "light": ["blue", "\ud800"]}
    body = decode_body(codec.encode(raw), event.BODY_VERSION + 1)
    assert body == Foreign(dialect="segue", raw=raw)


def test_a_known_body_that_a_newer_program_made_otherwise_is_kept_whole() -> None:
    raw = {"type": "user_message", "content": "\ud800"}
    body = decode_body(codec.encode(raw), event.BODY_VERSION + 1)
    assert body == Foreign(dialect="segue", raw=raw)


def test_usage_adds_up_field_by_field() -> None:
    one = Usage(
        input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_5m_tokens=4, cache_1h_tokens=5,
        cost=6,
    )  # fmt: skip
    two = one + one
    fields = Usage.__struct_fields__
    assert [getattr(two, name) for name in fields] == [2 * getattr(one, name) for name in fields]
    assert one + Usage() == one

"""Decode event bodies of older and newer versions."""

from typing import Any

import pytest

from segue.model import codec, event
from segue.model.content import as_content
from segue.model.event import BODIES, Event, Foreign, Usage, UserMessage, body_type, decode_body


def test_each_body_class_has_its_own_type_name() -> None:
    assert len(set(BODIES.values())) == len(BODIES)
    assert BODIES["user_message"] is UserMessage
    body = UserMessage(content=as_content("hello"))
    assert body_type(body) == Event(seq=1, id="i", at=0, body=body).type == "user_message"


def test_older_body_is_upgraded_version_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def upgrade_from_1(raw: dict[str, Any]) -> dict[str, Any]:
        return {"type": raw["type"], "words": raw["text"]}

    def upgrade_from_2(raw: dict[str, Any]) -> dict[str, Any]:
        return {"type": raw["type"], "content": [{"type": "text", "text": raw["words"]}]}

    monkeypatch.setattr(event, "BODY_VERSION", 3)
    monkeypatch.setitem(event.UPCASTS, ("user_message", 1), upgrade_from_1)
    monkeypatch.setitem(event.UPCASTS, ("user_message", 2), upgrade_from_2)
    hello = UserMessage(content=as_content("hello"))
    assert decode_body(b'{"type":"user_message","text":"hello"}', 1) == hello
    assert decode_body(b'{"type":"user_message","words":"hello"}', 2) == hello


def test_unknown_body_of_a_newer_version_is_kept_unchanged() -> None:
    raw = {"type": "hologram", "light": ["blue", "\ud800"]}
    body = decode_body(codec.encode(raw), event.BODY_VERSION + 1)
    assert body == Foreign(dialect="segue", raw=raw)


def test_known_body_that_does_not_fit_is_kept_unchanged() -> None:
    raw = {"type": "user_message", "content": "\ud800"}
    body = decode_body(codec.encode(raw), event.BODY_VERSION + 1)
    assert body == Foreign(dialect="segue", raw=raw)


def test_usage_is_added_by_field() -> None:
    usage = Usage(
        input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_5m_tokens=4, cache_1h_tokens=5,
        cost=6,
    )  # fmt: skip
    total = usage + usage
    fields = Usage.__struct_fields__
    assert [getattr(total, name) for name in fields] == [
        2 * getattr(usage, name) for name in fields
    ]
    assert usage + Usage() == usage

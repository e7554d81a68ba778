"""Decode event bodies of older and newer versions."""

from typing import Any

import msgspec
import pytest

from segue.model import codec, event
from segue.model.content import as_content
from segue.model.event import (
    BODIES,
    Created,
    Event,
    Foreign,
    ModelCalled,
    ToolResult,
    Usage,
    UserMessage,
    body_type,
    decode_body,
)
from segue.model.session import decode_session, decode_sessions


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
    monkeypatch.setitem(event.UPCASTS, 1, upgrade_from_1)
    monkeypatch.setitem(event.UPCASTS, 2, upgrade_from_2)
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
        input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4,
        cache_1h_tokens=5, cost=6, estimated_cost=4,
    )  # fmt: skip
    total = usage + usage
    fields = Usage.__struct_fields__
    assert [getattr(total, name) for name in fields] == [
        2 * getattr(usage, name) for name in fields
    ]
    assert usage + Usage() == usage == Usage() + usage
    assert total - usage == usage - Usage() == usage


def test_usage_writes_zeros_and_unknown_numbers() -> None:
    written = codec.encode(Usage(input_tokens=0, output_tokens=7))
    assert written == (
        b'{"input_tokens":0,"output_tokens":7,"cache_read_tokens":null,'
        b'"cache_write_tokens":null,"cost":null}'
    )


def test_sum_of_usage_is_unknown_only_if_every_part_is() -> None:
    total = Usage(input_tokens=0) + Usage(output_tokens=3, cost=None) + Usage(output_tokens=4)
    assert total == Usage(input_tokens=0, output_tokens=7)
    assert not total.is_priced
    assert (total + Usage(cost=0)).is_priced and Usage().is_priced


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (b"{}", Usage()),
        (
            b'{"input_tokens":5,"cost":9}',
            Usage(
                input_tokens=5, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0, cost=9
            ),
        ),
        (b'{"cost":9}', Usage(cost=9)),
        (
            b'{"output_tokens":2,"cache_5m_tokens":3,"cache_1h_tokens":4}',
            Usage(
                input_tokens=0,
                output_tokens=2,
                cache_read_tokens=0,
                cache_write_tokens=7,
                cache_1h_tokens=4,
            ),
        ),
    ],
    ids=["nothing", "zeros left out", "cost only", "both cache lifetimes"],
)
def test_usage_of_version_1_is_converted(stored: bytes, read: Usage) -> None:
    called = decode_body(b'{"type":"model_called","usage":%s}' % stored, 1)
    assert called == ModelCalled(usage=read)
    row = b'{"id":"s","workspace":"w","cwd":"/","created_at":1,"active_at":1,"updated_at":1,'
    row += b'"last_seq":1,"usage":%s,"models":{"m":%s}}' % (stored, stored)
    for session in (decode_session(row), *decode_sessions([row])):
        assert (session.usage, session.models) == (read, {"m": read})


def test_status_of_a_result_and_origin_of_a_session_are_always_written() -> None:
    assert codec.encode(ToolResult(call_id="c")) == (
        b'{"type":"tool_result","call_id":"c","status":"completed"}'
    )
    assert b'"origin":"python"' in codec.encode(Created(cwd="/"))
    assert decode_body(b'{"type":"tool_result","call_id":"c"}', 1) == ToolResult(call_id="c")


@pytest.mark.parametrize(
    "stored",
    [
        b"{}",
        b'{"type":["tool_call"]}',
        b'{"type":"model_called","usage":5}',
        b'{"type":"model_called","usage":{"input_tokens":"5"}}',
        b'{"type":"tool_call","call_id":"c","name":"n","extra":{"permission":5},"kind":5}',
        b'{"type":"tool_call","call_id":"c","name":"n","extra":5}',
    ],
)
def test_body_of_version_1_that_does_not_fit_is_refused(stored: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_body(stored, 1)

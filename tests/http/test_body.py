"""The limits of request bodies."""

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from segue.http.body import (
    MAX_INLINE_BYTES,
    MAX_JSON_VALUES,
    decode_json,
    limit_receive,
    read_body,
)
from segue.http.errors import BodyTooLarge
from segue.model.errors import InvalidInput


class Upload:
    """A body of ten chunks of ten bytes, which counts the chunks that were read."""

    def __init__(self) -> None:
        self.read = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        while self.read < 10:
            self.read += 1
            yield b"x" * 10


async def test_a_body_within_the_limit_is_returned() -> None:
    assert await read_body(Upload().chunks(), 100) == b"x" * 100


@pytest.mark.parametrize(("drain", "chunks_read"), [(False, 4), (True, 10)])
async def test_a_body_over_the_limit_is_read_to_its_end_only_with_drain(
    drain: bool, chunks_read: int
) -> None:
    upload = Upload()
    with pytest.raises(BodyTooLarge, match="exceeds 35 bytes"):
        await read_body(upload.chunks(), 35, drain=drain)
    assert upload.read == chunks_read


async def test_receive_fails_once_the_limit_is_exceeded() -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 10, "more_body": True}

    limited = limit_receive(receive, 25)
    await limited()
    await limited()
    with pytest.raises(BodyTooLarge):
        await limited()


async def test_long_body_with_many_separators_in_its_texts_is_decoded() -> None:
    text = 'a, "b" [c] {d} \\ ' * 100_000
    assert await decode_json(json.dumps({"x": [text, 1]}).encode(), dict) == {"x": [text, 1]}


@pytest.mark.parametrize("values", ["[]", '"a"', '{"k": ""}', "1", '"\\""'])
async def test_body_with_too_many_values_is_refused(values: str) -> None:
    items = ",".join([values] * (MAX_JSON_VALUES + 1))
    with pytest.raises(InvalidInput, match="more than 250000 values"):
        await decode_json(f"[{items}]".encode(), list)


async def test_long_body_is_not_decoded_in_the_loops_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    decode = msgspec.json.decode

    def decode_and_record(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return decode(*arguments, **options)

    monkeypatch.setattr(msgspec.json, "decode", decode_and_record)
    for length in (10, MAX_INLINE_BYTES):
        assert await decode_json(b'"%s"' % (b"x" * length), str) == "x" * length
    assert threads[0] == threading.get_ident() != threads[1]

"""The limit of request bodies."""

from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from segue.http.body import limit_receive, read_body
from segue.http.errors import BodyTooLarge


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

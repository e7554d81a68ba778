"""Read lines from streams: split, skip lines that are too long, and notice a closed pipe."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.acp import stdio
from segue.acp.rpc import Disconnected, LineTooLong
from segue.acp.stdio import LineStream


def stream_of(*chunks: bytes) -> LineStream:
    remaining = list(chunks)

    async def read(size: int) -> bytes:
        return remaining.pop(0) if remaining else b""

    async def write(data: bytes) -> None:
        raise BrokenPipeError

    return LineStream(read, write)


async def read_all(stream: LineStream) -> list[bytes | str]:
    lines: list[bytes | str] = []
    while True:
        try:
            line = await stream.read_line()
        except LineTooLong:
            lines.append("too long")
            continue
        if not line:
            return lines
        lines.append(line)


@given(st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"x"))), st.data())
def test_lines_do_not_depend_on_how_the_bytes_are_chunked(
    texts: list[bytes], data: st.DataObject
) -> None:
    data_bytes = b"".join(text + b"\n" for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(data_bytes)))))
    offsets = [0, *cuts, len(data_bytes)]
    chunks = [data_bytes[start:end] for start, end in pairwise(offsets) if start < end]
    assert asyncio.run(read_all(stream_of(*chunks))) == [text + b"\n" for text in texts]


async def test_a_last_line_without_an_end_is_read() -> None:
    assert await read_all(stream_of(b"whole\nno e", b"nd")) == [b"whole\n", b"no end"]


async def test_a_line_that_is_too_long_is_skipped_and_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 10)
    lines = await read_all(stream_of(b"short\n", b"x" * 8, b"y" * 8, b"z\nnext", b" one\n"))
    assert lines == [b"short\n", "too long", b"next one\n"]


async def test_a_line_that_never_ends_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 10)
    assert await read_all(stream_of(*[b"x" * 8] * 4)) == ["too long"]


async def test_writing_to_a_closed_pipe_raises_disconnected() -> None:
    with pytest.raises(Disconnected):
        await stream_of().write(b"hello\n")

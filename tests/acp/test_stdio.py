"""Lines: cut where they end, refused where they do not, and given up with their pipe."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.acp import stdio
from segue.acp.rpc import Disconnected, LineTooLong
from segue.acp.stdio import Lines


def reading(*chunks: bytes) -> Lines:
    waiting = list(chunks)

    async def read(size: int) -> bytes:
        return waiting.pop(0) if waiting else b""

    async def write(data: bytes) -> None:
        raise BrokenPipeError

    return Lines(read, write)


async def everything(lines: Lines) -> list[bytes | str]:
    found: list[bytes | str] = []
    while True:
        try:
            line = await lines.read_line()
        except LineTooLong:
            found.append("too long")
            continue
        if not line:
            return found
        found.append(line)


@given(st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"x"))), st.data())
def test_lines_are_the_same_however_they_arrive(texts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(text + b"\n" for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    places = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(places) if a < b]
    assert asyncio.run(everything(reading(*pieces))) == [text + b"\n" for text in texts]


async def test_a_line_without_its_end_is_nobody_s() -> None:
    assert await everything(reading(b"whole\ncut o", b"ff")) == [b"whole\n"]


async def test_a_line_that_is_too_long_is_skipped_and_the_next_one_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE", 10)
    found = await everything(reading(b"short\n", b"x" * 8, b"y" * 8, b"z\nnext", b" one\n"))
    assert found == [b"short\n", "too long", b"next one\n"]


async def test_a_line_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE", 10)
    assert await everything(reading(*[b"x" * 8] * 4)) == ["too long"]


async def test_writing_to_nobody_says_so() -> None:
    with pytest.raises(Disconnected):
        await reading().write(b"hello\n")

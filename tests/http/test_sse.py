"""Event streams: frames, heartbeats, access checks, shutdown and disconnects."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from starlette.types import Message

from segue.http import sse
from segue.http.sse import AccessResult, EventStreamResponse, encode_frame, merge_frames
from segue.model.errors import StoreLocked

GREETING, HEARTBEAT = b": hello\n\n", b": heartbeat\n\n"


class Client:
    """A client of one response, which reads slowly or disconnects."""

    def __init__(
        self, frames: AsyncGenerator[bytes], access: sse.AccessCheck | None = None
    ) -> None:
        self.closing = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.received: list[bytes] = []
        response = EventStreamResponse(
            frames, closing=self.closing, greeting=GREETING, heartbeat=HEARTBEAT, access=access
        )
        self.task = asyncio.ensure_future(response({"type": "http"}, self._receive, self._send))

    async def _receive(self) -> Message:
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.may_read.wait()
        if body := message.get("body"):
            self.received.append(body)

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.received) < count:
                await asyncio.sleep(0)

    async def wait_for_end(self) -> None:
        async with asyncio.timeout(10):
            await self.task


class Source:
    """Frames that are counted, and whether the generator was closed."""

    def __init__(self, count: int, *, then_wait: bool = False) -> None:
        self.produced = 0
        self.closed = False
        self._count, self._then_wait = count, then_wait

    async def frames(self) -> AsyncGenerator[bytes]:
        try:
            while self.produced < self._count:
                self.produced += 1
                yield b"%d" % self.produced
            if self._then_wait:
                await asyncio.Event().wait()
        finally:
            self.closed = True

    async def wait_for_close(self) -> None:
        async with asyncio.timeout(10):
            while not self.closed:
                await asyncio.sleep(0)


def test_a_frame_has_a_name_an_optional_id_and_json_data() -> None:
    assert encode_frame("row", {"a": "x\ny"}) == b'event: row\ndata: {"a":"x\\ny"}\n\n'
    assert encode_frame("row", {}, "3.1") == b"event: row\nid: 3.1\ndata: {}\n\n"


async def test_a_stream_sends_the_greeting_and_all_frames_and_ends() -> None:
    client = Client(Source(3).frames())
    await client.wait_for_end()
    assert client.received == [GREETING, b"1", b"2", b"3"]


async def test_heartbeats_are_sent_while_there_are_no_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.01)
    client = Client(Source(0, then_wait=True).frames())
    await client.wait_for(3)
    assert client.received[:3] == [GREETING, HEARTBEAT, HEARTBEAT]
    client.closing.set()
    await client.wait_for_end()


async def test_a_shutdown_ends_the_stream_and_closes_its_source() -> None:
    source = Source(1, then_wait=True)
    client = Client(source.frames())
    await client.wait_for(2)
    client.closing.set()
    await client.wait_for_end()
    assert source.closed


@pytest.mark.parametrize("count", [1, 1000])
async def test_a_disconnect_closes_the_source(count: int) -> None:
    source = Source(count, then_wait=True)
    client = Client(source.frames())
    await client.wait_for(2)
    client.may_read.clear()
    client.disconnected.set()
    await source.wait_for_close()
    client.may_read.set()
    await client.wait_for_end()


async def test_a_slow_client_slows_its_source_down() -> None:
    source = Source(1000)
    client = Client(source.frames())
    client.may_read.clear()
    for _ in range(100):
        await asyncio.sleep(0)
    assert source.produced <= 2
    client.may_read.set()
    await client.wait_for_end()
    assert len(client.received) == 1001


async def test_a_merged_stream_reads_ahead_a_few_frames_only() -> None:
    source = Source(1000)
    merged = merge_frames(source.frames())
    assert await anext(merged) == b"1"
    for _ in range(100):
        await asyncio.sleep(0)
    assert source.produced <= sse.MAX_QUEUED_FRAMES + 2
    await merged.aclose()


async def test_a_merged_stream_has_the_frames_of_all_and_ends_when_one_fails() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"last"
        raise RuntimeError("broken")

    source = Source(2, then_wait=True)
    frames = [frame async for frame in merge_frames(source.frames(), failing())]
    assert sorted(frames) == [b"1", b"2", b"last"]
    assert source.closed


class Access:
    """Allows a number of checks, then refuses."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._due = True

    def seconds_until_due(self) -> float:
        due, self._due = self._due, not self._due
        return 0.0 if due else 0.001

    async def check(self) -> AccessResult:
        self._allowed -= 1
        return AccessResult((b"checked",), allowed=self._allowed >= 0)


async def test_a_stream_ends_when_its_access_is_refused() -> None:
    source = Source(0, then_wait=True)
    client = Client(source.frames(), Access(2))
    await client.wait_for_end()
    assert client.received == [GREETING, b"checked", HEARTBEAT, b"checked", HEARTBEAT, b"checked"]
    assert source.closed


class UncertainAccess(Access):
    """Fails at its first two checks, as if the store was not available."""

    def __init__(self, allowed: int) -> None:
        super().__init__(allowed)
        self.failures = 0

    async def check(self) -> AccessResult:
        if self.failures < 2:
            self.failures += 1
            raise StoreLocked("another process holds the store's lock")
        return await super().check()


async def test_a_stream_continues_while_its_access_cannot_be_checked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sse, "ACCESS_RETRY_SECONDS", 0.01)
    source, access = Source(1, then_wait=True), UncertainAccess(1)
    client = Client(source.frames(), access)
    await client.wait_for_end()
    assert access.failures == 2
    assert client.received[:2] == [GREETING, b"1"]
    assert client.received.count(b"checked") == 2  # the second one refuses
    assert "the store's lock" in caplog.text


async def test_a_check_that_fails_is_not_repeated_at_once() -> None:
    access = UncertainAccess(1)
    access.seconds_until_due = lambda: -1.0  # type: ignore[method-assign]
    client = Client(Source(1, then_wait=True).frames(), access)
    await client.wait_for(2)
    await asyncio.sleep(0.05)
    assert (access.failures, client.received) == (1, [GREETING, b"1"])
    client.closing.set()
    await client.wait_for_end()

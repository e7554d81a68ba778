"""JSON-RPC in both directions: order, results, cancellation, and peers that do not read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from segue.acp.rpc import MAX_PENDING_MESSAGES, Connection, Disconnected, LineSender, RpcError
from tests.acp.memory_stream import StreamEnd, connect_ends


class Handler:
    """Returns the parameters; `wait` and `slow` wait for `release`, `fail` raises."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.notifications: list[Any] = []
        self.cancelled: list[Any] = []
        self.release = asyncio.Event()

    async def request(self, method: str, params: Any) -> Any:
        self.started.append(params)
        if method == "refuse":
            raise RpcError(-32002, "no", {"why": "test"})
        if method == "fail":
            raise ValueError("a secret that must not leak")
        if method == "wait":
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.append(params)
                raise
        return {"params": params}

    async def notification(self, method: str, params: Any) -> None:
        if method == "fail":
            raise ValueError
        if method == "slow":
            await self.release.wait()
        self.notifications.append((method, params))


@asynccontextmanager
async def connect(size: int = 0) -> AsyncIterator[tuple[Connection, Handler, StreamEnd]]:
    own_end, peer = connect_ends(size)
    handler = Handler()
    connection = Connection(LineSender(own_end), handler)
    serving = asyncio.create_task(connection.serve(own_end))
    try:
        yield connection, handler, peer
        await peer.close()
        await asyncio.wait_for(serving, 30)
    finally:
        serving.cancel()


async def test_requests_start_in_the_order_of_their_arrival() -> None:
    async with connect() as (_, handler, peer):
        for number in range(50):
            await peer.send(id=number, method="wait", params=number)
        await peer.send(method="last", params=None)
        while not handler.notifications:
            await asyncio.sleep(0)
        assert handler.started == list(range(50))
        handler.release.set()
        assert sorted([(await peer.receive())["id"] for _ in range(50)]) == list(range(50))


async def test_an_rpc_error_is_sent_and_another_exception_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connect() as (_, _, peer):
        await peer.send(id=1, method="refuse")
        answer = await peer.receive()
        assert answer["error"] == {"code": -32002, "message": "no", "data": {"why": "test"}}
        await peer.send(id=2, method="fail")
        assert (await peer.receive())["error"] == {"code": -32603, "message": "internal error"}
    assert "a secret" in caplog.text


async def test_a_notification_is_never_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with connect() as (_, handler, peer):
        await peer.send(method="fail")
        await peer.send(method="hello", params=[1])
        await peer.send(id=1, method="x")
        assert (await peer.receive())["id"] == 1
        assert handler.notifications == [("hello", [1])]
        assert peer.has_received_all()


async def test_our_requests_get_the_results_of_the_peer() -> None:
    async with connect() as (connection, _, peer):
        first = asyncio.create_task(connection.request("a", {"x": 1}))
        second = asyncio.create_task(connection.request("b"))
        one, two = await peer.receive(), await peer.receive()
        assert (one["method"], one["params"], two["method"]) == ("a", {"x": 1}, "b")
        await peer.send(id=two["id"], error={"code": 7, "message": "no"})
        await peer.send(id=one["id"], result="yes")
        assert await first == "yes"
        with pytest.raises(RpcError) as refused:
            await second
        assert (refused.value.code, refused.value.message) == (7, "no")


@pytest.mark.parametrize("error", ["odd", {}, {"code": "x"}, 7, []])
async def test_a_malformed_error_is_raised_as_an_error(error: Any) -> None:
    async with connect() as (connection, _, peer):
        asking = asyncio.create_task(connection.request("a"))
        await peer.send(id=(await peer.receive())["id"], error=error)
        with pytest.raises(RpcError):
            await asking


async def test_a_cancelled_request_is_answered_as_cancelled() -> None:
    async with connect() as (_, handler, peer):
        await peer.send(id=1, method="wait", params="one")
        await peer.send(id=2, method="wait", params="two")
        await peer.send(method="$/cancel_request", params={"requestId": 1})
        answer = await peer.receive()
        assert (answer["id"], answer["error"]["code"]) == (1, -32800)
        assert handler.cancelled == ["one"]
        handler.release.set()
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 2, "result": {"params": "two"}}


async def test_cancelling_our_request_notifies_the_peer() -> None:
    async with connect() as (connection, _, peer):
        asking = asyncio.create_task(connection.request("a"))
        id = (await peer.receive())["id"]
        asking.cancel()
        notification = await peer.receive()
        assert (notification["method"], notification["params"]) == (
            "$/cancel_request",
            {"requestId": id},
        )
        await peer.send(id=id, result="too late")
        await peer.send(id=1, method="x")
        assert (await peer.receive())["id"] == 1


async def test_closing_the_connection_ends_all_requests() -> None:
    own_end, peer = connect_ends()
    handler = Handler()
    connection = Connection(LineSender(own_end), handler)
    serving = asyncio.create_task(connection.serve(own_end))
    asking = asyncio.create_task(connection.request("a"))
    await peer.send(id=1, method="wait", params="one")
    await peer.receive()
    await peer.close()
    await serving
    with pytest.raises(Disconnected):
        await asking
    assert handler.cancelled == ["one"] and connection.closed
    with pytest.raises(Disconnected):
        await connection.request("b")


async def test_a_failed_write_closes_the_connection() -> None:
    own_end, peer = connect_ends()
    own_end.closed = True
    connection = Connection(LineSender(own_end), Handler())
    with pytest.raises(Disconnected):
        await connection.notify("x")
    await peer.write(b"nonsense\n")
    await asyncio.wait_for(connection.serve(own_end), 30)


async def test_requests_of_a_peer_that_does_not_read_are_not_read() -> None:
    async with connect(size=1) as (_, handler, peer):
        sent = 0
        try:
            async with asyncio.timeout(1):
                while True:
                    await peer.send(id=sent, method="x", params=sent)
                    sent += 1
        except TimeoutError:
            pass
        assert len(handler.started) < MAX_PENDING_MESSAGES + 5
        for _ in range(len(handler.started)):
            await peer.receive()
        # Once the peer reads, its requests are read again.
        await peer.send(id="after", method="x")
        while (await peer.receive())["id"] != "after":
            pass


async def test_waiting_requests_do_not_block_other_messages() -> None:
    async with connect() as (_, _, peer):
        for number in range(MAX_PENDING_MESSAGES * 2):
            await peer.send(id=number, method="wait")
        await peer.send(method="$/cancel_request", params={"requestId": 0})
        assert (await peer.receive())["id"] == 0


async def test_notifications_are_not_read_faster_than_they_are_handled() -> None:
    async with connect(size=1) as (_, handler, peer):
        sent = 0
        try:
            async with asyncio.timeout(1):
                for number in range(MAX_PENDING_MESSAGES * 2):
                    await peer.send(method="slow", params=number)
                    sent += 1
        except TimeoutError:
            pass
        assert sent <= MAX_PENDING_MESSAGES + 2 and handler.notifications == []
        handler.release.set()
        await peer.send(id=1, method="echo", params="last")
        assert (await peer.receive())["result"] == {"params": "last"}
        assert [params for _, params in handler.notifications[:sent]] == list(range(sent))


async def test_every_request_is_answered_if_the_input_ends_while_answers_are_written() -> None:
    own_end, peer = connect_ends()
    answers: list[bytes] = []

    class SlowWriter:
        async def write(self, data: bytes) -> None:
            await asyncio.sleep(0.01)
            answers.append(data)

    connection = Connection(LineSender(SlowWriter()), Handler())
    for number in range(3):
        await peer.send(id=number, method="echo", params=number)
    await peer.close()
    await asyncio.wait_for(connection.serve(own_end), 30)
    assert [json.loads(answer)["id"] for answer in answers] == [0, 1, 2]

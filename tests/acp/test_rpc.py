"""JSON-RPC in both directions: order, answers, cancelling, and peers that do not read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from segue.acp.rpc import CROWD, Connection, Disconnected, RpcError
from tests.acp.twins import End, ends


class Handler:
    """Answers with what it was asked; `wait` waits until it is let go, `fail` fails."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.heard: list[Any] = []
        self.cancelled: list[Any] = []
        self.go_on = asyncio.Event()

    async def request(self, method: str, params: Any) -> Any:
        self.begun.append(params)
        if method == "refuse":
            raise RpcError(-32002, "no", {"why": "test"})
        if method == "fail":
            raise ValueError("a secret that must not leak")
        if method == "wait":
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.append(params)
                raise
        return {"asked": params}

    async def notification(self, method: str, params: Any) -> None:
        if method == "fail":
            raise ValueError
        if method == "slow":
            await self.go_on.wait()
        self.heard.append((method, params))


@asynccontextmanager
async def connected(size: int = 0) -> AsyncIterator[tuple[Connection, Handler, End]]:
    ours, theirs = ends(size)
    handler = Handler()
    connection = Connection(ours, ours, handler)
    serving = asyncio.create_task(connection.serve())
    try:
        yield connection, handler, theirs
        await theirs.hang_up()
        await asyncio.wait_for(serving, 30)
    finally:
        serving.cancel()


async def test_requests_begin_in_the_order_in_which_they_came() -> None:
    async with connected() as (_, handler, peer):
        for number in range(50):
            await peer.say(id=number, method="wait", params=number)
        await peer.say(method="last", params=None)
        while not handler.heard:
            await asyncio.sleep(0)
        assert handler.begun == list(range(50))
        handler.go_on.set()
        assert sorted([(await peer.hear())["id"] for _ in range(50)]) == list(range(50))


async def test_an_error_is_told_and_an_accident_not_explained(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected() as (_, _, peer):
        await peer.say(id=1, method="refuse")
        told = await peer.hear()
        assert told["error"] == {"code": -32002, "message": "no", "data": {"why": "test"}}
        await peer.say(id=2, method="fail")
        assert (await peer.hear())["error"] == {"code": -32603, "message": "internal error"}
    assert "a secret" in caplog.text


async def test_a_notification_is_never_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (_, handler, peer):
        await peer.say(method="fail")
        await peer.say(method="hello", params=[1])
        await peer.say(id=1, method="x")
        assert (await peer.hear())["id"] == 1
        assert handler.heard == [("hello", [1])]
        assert peer.silent()


async def test_our_requests_get_the_peer_s_answers() -> None:
    async with connected() as (connection, _, peer):
        first = asyncio.create_task(connection.request("a", {"x": 1}))
        second = asyncio.create_task(connection.request("b"))
        one, two = await peer.hear(), await peer.hear()
        assert (one["method"], one["params"], two["method"]) == ("a", {"x": 1}, "b")
        await peer.say(id=two["id"], error={"code": 7, "message": "no"})
        await peer.say(id=one["id"], result="yes")
        assert await first == "yes"
        with pytest.raises(RpcError) as refused:
            await second
        assert (refused.value.code, refused.value.message) == (7, "no")


@pytest.mark.parametrize("error", ["odd", {}, {"code": "x"}, 7, []])
async def test_an_odd_error_is_an_error_all_the_same(error: Any) -> None:
    async with connected() as (connection, _, peer):
        asking = asyncio.create_task(connection.request("a"))
        await peer.say(id=(await peer.hear())["id"], error=error)
        with pytest.raises(RpcError):
            await asking


async def test_a_cancelled_request_is_answered_as_cancelled() -> None:
    async with connected() as (_, handler, peer):
        await peer.say(id=1, method="wait", params="one")
        await peer.say(id=2, method="wait", params="two")
        await peer.say(method="$/cancel_request", params={"requestId": 1})
        answer = await peer.hear()
        assert (answer["id"], answer["error"]["code"]) == (1, -32800)
        assert handler.cancelled == ["one"]
        handler.go_on.set()
        assert await peer.hear() == {"jsonrpc": "2.0", "id": 2, "result": {"asked": "two"}}


async def test_giving_up_a_request_of_ours_tells_the_peer() -> None:
    async with connected() as (connection, _, peer):
        asking = asyncio.create_task(connection.request("a"))
        id = (await peer.hear())["id"]
        asking.cancel()
        told = await peer.hear()
        assert (told["method"], told["params"]) == ("$/cancel_request", {"requestId": id})
        await peer.say(id=id, result="too late")
        await peer.say(id=1, method="x")
        assert (await peer.hear())["id"] == 1


async def test_a_peer_that_goes_away_ends_everything() -> None:
    ours, theirs = ends()
    handler = Handler()
    connection = Connection(ours, ours, handler)
    serving = asyncio.create_task(connection.serve())
    asking = asyncio.create_task(connection.request("a"))
    await theirs.say(id=1, method="wait", params="one")
    await theirs.hear()
    await theirs.hang_up()
    await serving
    with pytest.raises(Disconnected):
        await asking
    assert handler.cancelled == ["one"] and connection.gone
    with pytest.raises(Disconnected):
        await connection.request("b")


async def test_a_peer_that_cannot_be_written_to_has_gone_away() -> None:
    ours, theirs = ends()
    ours.gone = True
    connection = Connection(ours, ours, Handler())
    with pytest.raises(Disconnected):
        await connection.notify("x")
    await theirs.write(b"nonsense\n")
    await asyncio.wait_for(connection.serve(), 30)


async def test_a_peer_that_asks_and_does_not_read_is_not_read_from_any_more() -> None:
    async with connected(size=1) as (_, handler, peer):
        sent = 0
        try:
            async with asyncio.timeout(1):
                while True:
                    await peer.say(id=sent, method="x", params=sent)
                    sent += 1
        except TimeoutError:
            pass
        assert len(handler.begun) < CROWD + 5
        for _ in range(len(handler.begun)):
            await peer.hear()
        # And goes on being read once it reads.
        await peer.say(id="after", method="x")
        while (await peer.hear())["id"] != "after":
            pass


async def test_waiting_requests_do_not_keep_others_from_being_heard() -> None:
    async with connected() as (_, _, peer):
        for number in range(CROWD * 2):
            await peer.say(id=number, method="wait")
        await peer.say(method="$/cancel_request", params={"requestId": 0})
        assert (await peer.hear())["id"] == 0


async def test_a_peer_that_tells_faster_than_it_is_heard_is_not_read_from_any_more() -> None:
    async with connected(size=1) as (_, handler, peer):
        told = 0
        try:
            async with asyncio.timeout(1):
                for number in range(CROWD * 2):
                    await peer.say(method="slow", params=number)
                    told += 1
        except TimeoutError:
            pass
        assert told <= CROWD + 2 and handler.heard == []
        handler.go_on.set()
        await peer.say(id=1, method="echo", params="last")
        assert (await peer.hear())["result"] == {"asked": "last"}
        assert [params for _, params in handler.heard[:told]] == list(range(told))

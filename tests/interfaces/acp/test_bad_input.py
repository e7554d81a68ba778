"""What no client should send, and some do: the right error, no crash, nothing lost."""

from typing import Any

import pytest

from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Refused
from tests.interfaces.acp.testbed import House

LINES: list[tuple[bytes, int]] = [
    (b"{", -32700),
    (b"nonsense", -32700),
    (b"\xff\xfe\x00", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":NaN}', -32700),
    (b"[" * 100_000, -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"session/list"}]', -32600),
    (b"7", -32600),
    (b'"text"', -32600),
    (b"null", -32600),
    (b"{}", -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"session/list"}', -32600),
    (b'{"id":1,"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":1}', -32600),
]


@pytest.mark.parametrize(("line", "code"), LINES, ids=lambda value: str(value)[:40])
async def test_a_line_that_is_no_message_gets_its_error_and_no_more(
    house: House, version: int, line: bytes, code: int
) -> None:
    async with house.inside(version) as client:
        await client.raw(line + b"\n")
        assert await client.ask("session/list") == {"sessions": []}
        assert [error["code"] for error in client.refusals] == [code]


@pytest.mark.parametrize("line", [b"", b"  ", b"\r", b"\t"])
async def test_an_empty_line_is_nothing(house: House, version: int, line: bytes) -> None:
    async with house.inside(version) as client:
        await client.raw(line + b"\n")
        assert await client.ask("session/list") == {"sessions": []}
        assert client.refusals == []


@pytest.mark.parametrize("id", ["text", "", 0, -1, 2**60])
async def test_an_answer_has_the_id_that_was_asked_with(
    house: House, version: int, id: Any
) -> None:
    async with house.inside(version) as client:
        await client.post("session/list", None, id)
        assert await client.answer(id) == {"sessions": []}


async def test_an_id_that_is_still_being_answered_is_refused(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.begin(id, "/say begun\n/wait 60")
        waiting = client.prompting(id, "/say held")
        await client.post("session/prompt", waiting, "same")
        await client.send({"jsonrpc": "2.0", "id": "same", "method": "session/list"})
        with pytest.raises(Refused, match="-32600"):
            await client.answer("same")
        # The first of the two goes on.
        assert (await client.ask("session/status", {"sessionId": id}))["status"] == "open"


@pytest.mark.parametrize(
    "method", ["nonsense", "_custom/thing", "session/nonsense", "", "__init__"]
)
async def test_a_method_that_does_not_exist_is_not_found(
    house: House, version: int, method: str
) -> None:
    async with house.inside(version) as client:
        for params in ({}, None, [], "x"):
            refused = await client.refusal(method, params)
            assert (refused.code, refused.data) == (-32601, {"method": method})


async def test_an_unknown_notification_is_ignored(house: House, version: int) -> None:
    async with house.inside(version) as client:
        for method in ("_custom", "nonsense", "session/list", "$/progress", "initialize"):
            await client.tell(method, {"x": 1})
        assert await client.ask("session/list") == {"sessions": []}
        assert client.refusals == []


async def test_an_answer_to_nothing_is_ignored(house: House, version: int) -> None:
    async with house.inside(version) as client:
        for answer in ({"result": {}}, {"error": {"code": 1, "message": "x"}}, {"error": "odd"}):
            for id in (1, "x", None, {}):
                await client.send({"jsonrpc": "2.0", "id": id, **answer})
        assert await client.ask("session/list") == {"sessions": []}
        assert client.refusals == []


WRONG: list[Any] = [None, 7, "x", [], {}, {"sessionId": 7}, {"sessionId": None}, {"sessionId": {}}]
METHODS = [
    *("new", "load", "resume", "fork", "close", "delete", "prompt", "set_config_option"),
    *("set_title", "archive", "unarchive", "status"),
]


@pytest.mark.parametrize("method", METHODS)
async def test_parameters_of_the_wrong_type_are_refused(
    house: House, version: int, method: str
) -> None:
    async with house.inside(version) as client:
        for params in WRONG:
            refused = await client.refusal(f"session/{method}", params)
            assert refused.code == -32602, params
        assert await client.ask("session/list") == {"sessions": []}


async def test_odd_text_is_taken_and_comes_back(house: House, version: int) -> None:
    odd = "a\x00b \u2028 \U0001f600 \x7f"
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, odd)
        updates = await client.replay(id, "/")
        assert conversation(updates)[0] == ("user", odd)


async def test_half_a_character_is_taken_and_shown_as_one_that_stands_for_it(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, "half \ud83d here")
        updates = await client.replay(id, "/")
        assert conversation(updates)[0] == ("user", "half ? here")


async def test_meta_may_be_anything_and_means_nothing(house: House, version: int) -> None:
    async with house.inside(version) as client:
        for meta in ({"traceparent": "x"}, {}, None, 7, "x", []):
            id = await client.new("/", _meta=meta)
            assert await client.ask("session/close", {"sessionId": id, "_meta": meta}) == {}

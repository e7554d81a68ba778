"""`initialize`: versions, capabilities, and what may be said before and after it."""

from typing import Any

import pytest

import segue
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import House

INFO = {"info": {"name": "harness", "version": "1"}}


def session_markers(version: int, result: dict[str, Any]) -> dict[str, Any]:
    if version == 1:
        found: dict[str, Any] = result["agentCapabilities"]["sessionCapabilities"]
    else:
        found = result["capabilities"]["session"]
    return found


async def greeting(house: House, client_version: int, judged_as: int, **params: Any) -> Any:
    async with house.inside(judged_as, greet=False) as client:
        return await client.ask("initialize", {"protocolVersion": client_version, **params})


async def test_each_version_is_answered_in_its_own_words(house: House) -> None:
    one = await greeting(house, 1, 1)
    assert one["protocolVersion"] == 1
    assert one["agentInfo"] == {"name": "segue", "title": "segue", "version": segue.__version__}
    two = await greeting(house, 2, 2, **INFO)
    assert two["protocolVersion"] == 2
    assert two["info"] == one["agentInfo"]


async def test_every_session_method_has_its_marker(house: House, version: int) -> None:
    async with house.inside(version, greet=False) as client:
        result = await client.initialize()
    markers = session_markers(version, result)
    assert set(markers) >= {
        *("list", "resume", "close", "delete", "additionalDirectories"),
        *("fork", "title", "archive", "status"),
    }
    if version == 1:
        assert result["agentCapabilities"]["loadSession"] is True
        assert result["agentCapabilities"]["mcpCapabilities"]["http"] is True
        assert result["agentCapabilities"]["auth"]["logout"] == {}
    else:
        assert markers["mcp"] == {"stdio": {}, "http": {}}


async def test_the_list_says_which_filters_it_takes(house: House, version: int) -> None:
    async with house.inside(version, greet=False) as client:
        marker = session_markers(version, await client.initialize())["list"]
    filters = ["search", "createdAfter", "tag", "includeWorktrees", "limit"]
    assert marker == {"_meta": {"segue": {"filters": filters}}}


@pytest.mark.parametrize("requested", [3, 7, 65535])
async def test_a_later_version_gets_the_latest_we_speak(house: House, requested: int) -> None:
    result = await greeting(house, requested, 2)
    assert result["protocolVersion"] == 2


async def test_of_a_later_version_only_what_parses_counts(house: House) -> None:
    told = {"info": 7, "capabilities": {"auth": {"terminal": {}, "x": 3}, "elicitation": "often"}}
    result = await greeting(house, 9, 2, **told)
    assert [method["type"] for method in result["authMethods"]] == ["agent", "terminal"]


@pytest.mark.parametrize("requested", [0, -1])
async def test_a_version_before_ours_is_refused_with_what_we_speak(
    house: House, requested: int
) -> None:
    async with house.inside(2, greet=False) as client:
        refused = await client.refusal("initialize", {"protocolVersion": requested, **INFO})
        assert refused.code == -32022
        assert refused.data == {"requested": 0, "supported": [1, 2]}
        assert (await client.initialize())["protocolVersion"] == 2


@pytest.mark.parametrize("bad", [{}, {"protocolVersion": "1"}, {"protocolVersion": True}, [1]])
async def test_a_version_that_is_no_number_is_refused(house: House, bad: Any) -> None:
    async with house.inside(1, greet=False) as client:
        assert (await client.refusal("initialize", bad)).code == -32602
        await client.initialize()


async def test_version_two_needs_to_know_who_asks(house: House) -> None:
    async with house.inside(2, greet=False) as client:
        assert (await client.refusal("initialize", {"protocolVersion": 2})).code == -32602


async def test_capabilities_that_do_not_parse_count_as_absent(house: House) -> None:
    odd = {"fs": "all", "auth": {"terminal": "yes"}, "session": {"notices": {}, "compaction": 1}}
    one = await greeting(house, 1, 1, clientCapabilities=odd)
    assert len(one["authMethods"]) == 1
    two = await greeting(house, 2, 2, **INFO, capabilities="none")
    assert len(two["authMethods"]) == 1


async def test_it_may_be_repeated_until_something_else_is_asked(house: House) -> None:
    async with house.inside(2, greet=False) as client:
        await client.initialize()
        await client.initialize()
        await client.ask("session/list")
        assert (await client.refusal("initialize", {"protocolVersion": 2})).code == -32600
        await client.ask("session/list")


async def test_the_last_version_asked_for_is_the_one_that_is_spoken(house: House) -> None:
    async with house.inside(1, greet=False) as client:
        await client.ask("initialize", {"protocolVersion": 1})
        client.version = 2
        await client.initialize()
        await client.open("resume", await client.new(house.directory), house.directory)
        assert client.kinds() == ["session_info_update", "state_update"]


async def test_nothing_else_is_answered_before_it(house: House, version: int) -> None:
    async with house.inside(version, greet=False) as client:
        for method in ("session/list", "session/new", "_custom", "nonsense"):
            assert (await client.refusal(method, {})).code == -32600
        await client.tell("session/cancel", {"sessionId": "x"})
        await client.tell("nonsense", {})
        await client.send({"jsonrpc": "2.0", "id": 4, "result": {}})
        await client.initialize()
        assert client.refusals == []


@pytest.mark.parametrize("advertised", [False, True])
async def test_the_terminal_method_is_for_those_who_have_terminals(
    house: House, version: int, advertised: bool
) -> None:
    told: dict[str, Any] = {}
    if advertised and version == 1:
        told = {"clientCapabilities": {"auth": {"terminal": True}}}
    elif advertised:
        told = {"capabilities": {"auth": {"terminal": {}}}}
    async with house.inside(version, greet=False) as client:
        methods = (await client.initialize(**told))["authMethods"]
    assert [method.get("type", "agent") for method in methods] == (
        ["agent", "terminal"] if advertised else ["agent"]
    )
    ids = [method.get("id") or method.get("methodId") for method in methods]
    assert len(set(ids)) == len(ids)
    if advertised:
        assert methods[1]["args"] == ["--setup"]


def auth(version: int) -> tuple[str, str]:
    return ("authenticate", "logout") if version == 1 else ("auth/login", "auth/logout")


async def logged_out(client: Client) -> None:
    assert await client.ask(auth(client.version)[1]) == {}


async def test_after_a_logout_one_must_log_in_again(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        await logged_out(client)
        assert (await client.refusal("session/new", {"cwd": "/"})).code == -32000
        assert (await client.refusal("session/list")).code == -32000
        login = auth(version)[0]
        assert await client.ask(login, {"methodId": "segue-local"}) == {}
        rows = (await client.ask("session/list"))["sessions"]
        assert [row["sessionId"] for row in rows] == [id]
        # It was closed with the logout.
        refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
        assert refused.code == -32002


@pytest.mark.parametrize("method", ["nonsense", "segue-terminal", ""])
async def test_only_the_method_that_needs_no_terminal_can_be_asked_for(
    house: House, version: int, method: str
) -> None:
    async with house.inside(version) as client:
        refused = await client.refusal(auth(version)[0], {"methodId": method})
        assert refused.code == -32602


async def test_a_version_has_no_method_of_the_other(house: House, version: int) -> None:
    others = {
        1: ["auth/login", "auth/logout"],
        2: ["authenticate", "logout", "session/set_mode"],
    }
    async with house.inside(version) as client:
        for method in others[version]:
            refused = await client.refusal(method, {"methodId": "x", "modeId": "x"})
            assert (refused.code, refused.data) == (-32601, {"method": method})

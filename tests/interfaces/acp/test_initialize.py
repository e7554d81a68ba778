"""`initialize`: versions, capabilities and login."""

from typing import Any

import pytest

import segue
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed

INFO = {"info": {"name": "harness", "version": "1"}}


def session_markers(version: int, result: dict[str, Any]) -> dict[str, Any]:
    if version == 1:
        capabilities: dict[str, Any] = result["agentCapabilities"]["sessionCapabilities"]
    else:
        capabilities = result["capabilities"]["session"]
    return capabilities


async def initialize_as(
    testbed: AcpTestbed, client_version: int, schema_version: int, **params: Any
) -> Any:
    async with testbed.connect_in_process(schema_version, initialize=False) as client:
        return await client.request("initialize", {"protocolVersion": client_version, **params})


async def test_initialize_answers_in_the_format_of_each_version(testbed: AcpTestbed) -> None:
    one = await initialize_as(testbed, 1, 1)
    assert one["protocolVersion"] == 1
    assert one["agentInfo"] == {"name": "segue", "title": "segue", "version": segue.__version__}
    two = await initialize_as(testbed, 2, 2, **INFO)
    assert two["protocolVersion"] == 2
    assert two["info"] == one["agentInfo"]


async def test_every_session_method_has_a_capability(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version, initialize=False) as client:
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


async def test_list_capability_names_its_filters(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version, initialize=False) as client:
        marker = session_markers(version, await client.initialize())["list"]
    filters = ["search", "createdAfter", "tag", "includeWorktrees", "limit"]
    assert marker == {"_meta": {"segue": {"filters": filters}}}


@pytest.mark.parametrize("requested", [3, 7, 65535])
async def test_later_version_gets_the_latest_supported_version(
    testbed: AcpTestbed, requested: int
) -> None:
    result = await initialize_as(testbed, requested, 2)
    assert result["protocolVersion"] == 2


async def test_invalid_fields_of_a_later_version_are_ignored(testbed: AcpTestbed) -> None:
    params = {"info": 7, "capabilities": {"auth": {"terminal": {}, "x": 3}, "elicitation": "often"}}
    result = await initialize_as(testbed, 9, 2, **params)
    assert [method["type"] for method in result["authMethods"]] == ["agent", "terminal"]


@pytest.mark.parametrize("requested", [0, -1])
async def test_unsupported_version_gets_an_error_with_supported_versions(
    testbed: AcpTestbed, requested: int
) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        error = await client.request_error("initialize", {"protocolVersion": requested, **INFO})
        assert error.code == -32022
        assert error.data == {"requested": 0, "supported": [1, 2]}
        assert (await client.initialize())["protocolVersion"] == 2


@pytest.mark.parametrize("bad", [{}, {"protocolVersion": "1"}, {"protocolVersion": True}, [1]])
async def test_version_must_be_an_integer(testbed: AcpTestbed, bad: Any) -> None:
    async with testbed.connect_in_process(1, initialize=False) as client:
        assert (await client.request_error("initialize", bad)).code == -32602
        await client.initialize()


async def test_initialize_v2_requires_client_info(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        for params, message in (
            ({}, "info.name: field is required"),
            ({"info": {"version": "1"}}, "info.name: field is required"),
            ({"info": {"name": "harness"}}, "info.version: field is required"),
            ({"info": {"name": 7, "version": "1"}}, "info.name: expected str, got int"),
            ({"info": "harness"}, "info must be an object"),
        ):
            error = await client.request_error("initialize", {"protocolVersion": 2, **params})
            assert (error.code, error.message) == (-32602, message)


async def test_invalid_capabilities_count_as_absent(testbed: AcpTestbed) -> None:
    odd = {"fs": "all", "auth": {"terminal": "yes"}, "session": {"notices": {}, "compaction": 1}}
    one = await initialize_as(testbed, 1, 1, clientCapabilities=odd)
    assert len(one["authMethods"]) == 1
    two = await initialize_as(testbed, 2, 2, **INFO, capabilities="none")
    assert len(two["authMethods"]) == 1


async def test_initialize_can_be_repeated_until_another_request(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        await client.initialize()
        await client.initialize()
        await client.request("session/list")
        assert (await client.request_error("initialize", {"protocolVersion": 2})).code == -32600
        await client.request("session/list")


async def test_last_initialize_sets_the_version(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1, initialize=False) as client:
        await client.request("initialize", {"protocolVersion": 1})
        client.version = 2
        await client.initialize()
        await client.open_session(
            "resume", await client.new_session(testbed.directory), testbed.directory
        )
        assert client.kinds() == ["session_info_update", "state_update"]


async def test_requests_before_initialize_are_rejected(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version, initialize=False) as client:
        for method in ("session/list", "session/new", "_custom", "nonsense"):
            assert (await client.request_error(method, {})).code == -32600
        await client.notify("session/cancel", {"sessionId": "x"})
        await client.notify("nonsense", {})
        await client.send({"jsonrpc": "2.0", "id": 4, "result": {}})
        await client.initialize()
        assert client.unmatched_errors == []


@pytest.mark.parametrize("advertised", [False, True])
async def test_terminal_login_is_offered_to_clients_with_terminals(
    testbed: AcpTestbed, version: int, advertised: bool
) -> None:
    capabilities: dict[str, Any] = {}
    if advertised and version == 1:
        capabilities = {"clientCapabilities": {"auth": {"terminal": True}}}
    elif advertised:
        capabilities = {"capabilities": {"auth": {"terminal": {}}}}
    async with testbed.connect_in_process(version, initialize=False) as client:
        methods = (await client.initialize(**capabilities))["authMethods"]
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
    assert await client.request(auth(client.version)[1]) == {}


async def test_logout_requires_a_new_login(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        await logged_out(client)
        assert (await client.request_error("session/new", {"cwd": "/"})).code == -32000
        assert (await client.request_error("session/list")).code == -32000
        login = auth(version)[0]
        assert await client.request(login, {"methodId": "segue-local"}) == {}
        rows = (await client.request("session/list"))["sessions"]
        assert [row["sessionId"] for row in rows] == [id]
        # The logout closed the session.
        error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
        assert error.code == -32002


@pytest.mark.parametrize("method", ["nonsense", "segue-terminal", ""])
async def test_client_cannot_request_a_terminal_login(
    testbed: AcpTestbed, version: int, method: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        error = await client.request_error(auth(version)[0], {"methodId": method})
        assert error.code == -32602


async def test_methods_of_the_other_version_do_not_exist(testbed: AcpTestbed, version: int) -> None:
    others = {
        1: ["auth/login", "auth/logout"],
        2: ["authenticate", "logout", "session/set_mode"],
    }
    async with testbed.connect_in_process(version) as client:
        for method in others[version]:
            error = await client.request_error(method, {"methodId": "x", "modeId": "x"})
            assert (error.code, error.data) == (-32601, {"method": method})

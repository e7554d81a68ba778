"""Tests of the requirements of version 1 in the protocol's conformance kit.

The harness checks every message against the official schema, so the tests cover only what a schema
cannot express.
"""

from tests.interfaces.acp.conformance import (
    COVERED,
    INFO,
    LISTED,
    SCRIPT,
    covers,
    read_options,
    wait_quiet,
)
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed


def requested_methods(client: Client) -> set[str]:
    """Return the methods of all requests in either direction."""
    # The harness fails on any request of the agent that is not a permission request.
    return {item for item in client.log if isinstance(item, str)}


# The connection.


@covers(1, "INIT-001", "INIT-002", "INIT-004")
async def test_initialize_v1_names_the_agent(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1, initialize=False) as client:
        result = await client.initialize()
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"] and result["agentInfo"]["version"]


@covers(1, "INIT-003")
async def test_unknown_version_gets_a_supported_version(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        params = {"protocolVersion": 65535, "clientCapabilities": {}, **INFO}
        assert (await client.request("initialize", params))["protocolVersion"] == 2


@covers(1, "AUTH-002")
async def test_client_without_terminal_gets_no_terminal_login(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1, initialize=False) as client:
        methods = (await client.initialize())["authMethods"]
        assert methods and all(method.get("type") != "terminal" for method in methods)


@covers(1, "EXT-001", "JSONRPC-002", "JSONRPC-004", "JSONRPC-005")
async def test_connection_works_after_an_unknown_method(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        for method in ("_example.org/custom", "session/nonsense", "nonsense"):
            error = await client.request_error(method, {})
            assert error.code == -32601
            assert error.message and "\n" not in error.message
        assert (await client.request("session/list"))["sessions"] == []


@covers(1, "JSONRPC-001")
async def test_response_carries_the_id_of_its_request(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        for id in (7, "seven", 0, "", -1):
            await client.wait_response(await client.send_request("session/list", {}, id=id))


@covers(1, "JSONRPC-003")
async def test_notification_gets_no_response(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        for method in ("session/cancel", "_custom", "session/list", "nonsense"):
            await client.notify(method, {"sessionId": "nothing"})
        await wait_quiet(client)
        assert client.log == ["initialize", "session/list", "session/list"]
        assert client.unmatched_errors == []


@covers(1, "TRANSPORT-001", "TRANSPORT-002", "SHUTDOWN-001")
async def test_standard_output_has_only_utf8_json_lines(testbed: AcpTestbed) -> None:
    # The harness parses each line as one message, and `connect_child` expects exit code 0.
    async with testbed.connect_child(1) as (client, process):
        id = await client.new_session("/")
        await client.run_prompt(id, "/say snow ☃ \u2028 and \x00 and 🦆")
    assert process.returncode == 0


# Sessions.


@covers(1, "SESSION-001", "SESSION-002")
async def test_new_sessions_have_unique_ids(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        ids = [await client.new_session("/") for _ in range(5)]
        assert all(ids) and len(set(ids)) == 5


@covers(1, "PROMPT-001", "PROMPT-002")
async def test_prompt_ends_with_a_stop_reason_after_its_updates(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        await client.new_session("/")
        id = await client.new_session("/")
        assert await client.run_prompt(id, SCRIPT) == "end_turn"
        assert {update.session for update in client.updates()} == {id}


@covers(1, "PROMPTCAP-001", "PROMPTCAP-002", "PROMPTCAP-003")
async def test_prompt_accepts_all_advertised_content(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1, initialize=False) as client:
        capabilities = (await client.initialize())["agentCapabilities"]["promptCapabilities"]
        assert capabilities == {"image": True, "audio": True, "embeddedContext": True}
        id = await client.new_session("/")
        for block in (
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
        ):
            prompt = [{"type": "text", "text": "look"}, block]
            result = await client.request("session/prompt", {"sessionId": id, "prompt": prompt})
            assert result == {"stopReason": "end_turn"}


@covers(1, "CLIENTCAP-001", "CLIENTCAP-002", "CLIENTCAP-003")
async def test_server_requests_only_what_the_client_offers(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, f"{SCRIPT}\n/write a.txt b\n/read a.txt")
        requested = requested_methods(client) - {"initialize", "session/new", "session/prompt"}
        assert requested == {"session/request_permission"}


@covers(1, "CANCEL-001", "CANCEL-002")
async def test_no_update_follows_the_response_to_a_cancelled_prompt(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/tool ls a\n/wait 60")
        await client.notify("session/cancel", {"sessionId": id})
        assert await client.wait_response(request) == {"stopReason": "cancelled"}
        response_index = client.log.index("session/prompt")
        await wait_quiet(client)
        assert client.updates(response_index) == []


@covers(1, "LOAD-001", "LOAD-002", "LOAD-003")
async def test_load_response_is_an_object_and_follows_the_updates(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, SCRIPT)
        await client.request("session/close", {"sessionId": id})
        client.log.clear()
        assert isinstance(await client.open_session("load", id, "/"), dict)
        response_index = client.log.index("session/load")
        await wait_quiet(client)
        assert client.updates(0, response_index) and not client.updates(response_index)


@covers(1, "RESUME-001", "RESUME-002")
async def test_resume_needs_no_mcp_servers_and_sends_no_history(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, SCRIPT)
        await client.request("session/close", {"sessionId": id})
        client.log.clear()
        await client.request("session/resume", {"sessionId": id, "cwd": "/"})
        assert client.updates() == []


@covers(1, "LIST-001", "LIST-002")
async def test_list_of_an_empty_store_is_an_array(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        assert [
            row["sessionId"] for row in (await client.request("session/list", {}))["sessions"]
        ] == [id]
        assert await client.request("session/list", {"cwd": "/nowhere/at/all"}) == {"sessions": []}


@covers(1, "DELETE-001", "DELETE-002")
async def test_existing_and_missing_sessions_can_be_deleted(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        for deleted_id in (id, id, "never-created"):
            assert await client.request("session/delete", {"sessionId": deleted_id}) == {}


@covers(1, "CLOSE-001", "CLOSE-002")
async def test_close_cancels_the_running_prompt(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        idle = await client.new_session("/")
        assert await client.request("session/close", {"sessionId": idle}) == {}
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/wait 60")
        assert await client.request("session/close", {"sessionId": id}) == {}
        assert await client.wait_response(request) == {"stopReason": "cancelled"}


@covers(1, "ADDDIRS-001")
async def test_session_accepts_an_absolute_additional_directory(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        await client.new_session("/", additionalDirectories=[str(testbed.directory)])


@covers(1, "MODES-001", "MODES-002")
async def test_current_mode_is_available_and_can_be_changed(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        result = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        modes = [mode["id"] for mode in result["modes"]["availableModes"]]
        current = result["modes"]["currentModeId"]
        assert current in modes
        other = next(mode for mode in modes if mode != current)
        params = {"sessionId": result["sessionId"], "modeId": other}
        assert await client.request("session/set_mode", params) == {}
        bodies = [
            update.body for update in client.updates() if update.kind == "current_mode_update"
        ]
        assert [body["currentModeId"] for body in bodies] == [other]


@covers(1, "CONFIG-001", "CONFIG-002", "CONFIG-003")
async def test_set_config_option_returns_all_options(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        result = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        before = read_options(result, "id")
        for id, option in before.items():
            value = option["options"][-1]["value"]
            params = {"sessionId": result["sessionId"], "configId": id, "value": value}
            after = read_options(await client.request("session/set_config_option", params), "id")
            assert after.keys() == before.keys() and after[id]["currentValue"] == value


def test_every_listed_requirement_of_version_1_has_a_test() -> None:
    assert COVERED[1] == LISTED[1]

"""Tests of the requirements in the protocol's conformance kit.

Each test names the numbers of its requirements. `LISTED` has all requirements that concern
sessions, and the last test checks that none is missing. The harness checks every message against
the official schema, so the tests cover only what a schema cannot express.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

from tests.interfaces.acp.harness import Client, Update, is_idle
from tests.interfaces.acp.testbed import AcpTestbed

F = TypeVar("F", bound=Callable[..., Any])


def numbered(area: str, numbers: str) -> set[str]:
    first, _, last = numbers.partition("-")
    return {f"{area}-{number:03}" for number in range(int(first), int(last or first) + 1)}


LISTED = {
    1: numbered("INIT", "1-4")
    | numbered("SESSION", "1-2")
    | numbered("PROMPT", "1-2")
    | numbered("CANCEL", "1-2")
    | numbered("LOAD", "1-3")
    | numbered("RESUME", "1-2")
    | numbered("LIST", "1-2")
    | numbered("DELETE", "1-2")
    | numbered("CLOSE", "1-2")
    | numbered("ADDDIRS", "1")
    | numbered("MODES", "1-2")
    | numbered("CONFIG", "1-3")
    | numbered("PROMPTCAP", "1-3")
    | numbered("AUTH", "2")
    | numbered("CLIENTCAP", "1-3")
    | numbered("EXT", "1")
    | numbered("JSONRPC", "1-5")
    | numbered("TRANSPORT", "1-2")
    | numbered("SHUTDOWN", "1"),
    2: numbered("INIT", "201-204")
    | numbered("SESSION", "203")
    | numbered("PROMPT", "201")
    | numbered("PROMPT", "203")
    | numbered("STATE", "201-203")
    | numbered("RESUME", "201-205")
    | numbered("LIST", "201-204")
    | numbered("CLOSE", "201-202")
    | numbered("DELETE", "201-203")
    | numbered("ADDDIRS", "201-202")
    | numbered("CONFIG", "201-206")
    | numbered("CANCEL", "201-208")
    | numbered("AUTH", "201-207")
    | numbered("PATCH", "201-209")
    | numbered("ENUM", "201-203")
    | numbered("META", "201")
    # The kit still has the batches of earlier drafts; the current protocol has none.
    | numbered("BATCH", "201-208"),
}
COVERED: dict[int, set[str]] = {1: set(), 2: set()}
SCRIPT = (
    "/think hm\n/say hi there\n/tool ls a\n/plan one; > two; x three\n/ask May I?\n/usage 10 20"
)
INFO = {"info": {"name": "conformance", "version": "1"}}


def covers(version: int, *requirements: str) -> Callable[[F], F]:
    def mark(test: F) -> F:
        for requirement in requirements:
            assert requirement in LISTED[version], requirement
            COVERED[version].add(requirement)
        return test

    return mark


async def wait_quiet(client: Client) -> int:
    """Wait until no more messages are on their way, and return the length of the log."""
    await client.request("session/list")
    await asyncio.sleep(0.1)
    await client.request("session/list")
    return len(client.log)


def requested_methods(client: Client) -> set[str]:
    # The harness fails on any request of the agent that is not a permission request.
    return {item for item in client.log if isinstance(item, str)}


async def start_long_turn(client: Client) -> str:
    """Create a session with a turn that runs until it is cancelled, and return its id."""
    id = await client.new_session("/")
    await client.start_prompt(id, "/say begun\n/wait 60")
    return id


# Version 1: the connection.


@covers(1, "INIT-001", "INIT-002", "INIT-004")
async def test_initialize_v1_names_the_agent(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1, initialize=False) as client:
        result = await client.initialize()
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"] and result["agentInfo"]["version"]


@covers(1, "INIT-003")
async def test_unknown_version_gets_a_supported_version(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        asked = {"protocolVersion": 65535, "clientCapabilities": {}, **INFO}
        assert (await client.request("initialize", asked))["protocolVersion"] == 2


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


# Version 1: sessions.


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
        asked = requested_methods(client) - {"initialize", "session/new", "session/prompt"}
        assert asked == {"session/request_permission"}


@covers(1, "CANCEL-001", "CANCEL-002")
async def test_no_update_follows_the_response_to_a_cancelled_prompt(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/tool ls a\n/wait 60")
        await client.notify("session/cancel", {"sessionId": id})
        assert await client.wait_response(request) == {"stopReason": "cancelled"}
        answered = client.log.index("session/prompt")
        await wait_quiet(client)
        assert client.updates(answered) == []


@covers(1, "LOAD-001", "LOAD-002", "LOAD-003")
async def test_load_response_is_an_object_and_follows_the_updates(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, SCRIPT)
        await client.request("session/close", {"sessionId": id})
        client.log.clear()
        assert isinstance(await client.open_session("load", id, "/"), dict)
        answered = client.log.index("session/load")
        await wait_quiet(client)
        assert client.updates(0, answered) and not client.updates(answered)


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
        for gone in (id, id, "never-created"):
            assert await client.request("session/delete", {"sessionId": gone}) == {}


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


def options(result: Any, name: str) -> dict[str, Any]:
    """Return the options by id, and check that each value is one of its choices."""
    found = {option[name]: option for option in result["configOptions"]}
    assert found
    for option in found.values():
        assert option["type"] == "select"  # only clients that support booleans get them
        assert option["currentValue"] in [each["value"] for each in option["options"]]
    return found


@covers(1, "CONFIG-001", "CONFIG-002", "CONFIG-003")
async def test_set_config_option_returns_all_options(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        result = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        before = options(result, "id")
        for id, option in before.items():
            value = option["options"][-1]["value"]
            params = {"sessionId": result["sessionId"], "configId": id, "value": value}
            after = options(await client.request("session/set_config_option", params), "id")
            assert after.keys() == before.keys() and after[id]["currentValue"] == value


# Version 2: the connection.


@covers(2, "INIT-201", "INIT-202")
async def test_initialize_returns_the_requested_version(testbed: AcpTestbed) -> None:
    for asked, spoken in ((2, 2), (65535, 2), (1, 1)):
        async with testbed.connect_in_process(spoken, initialize=False) as client:
            result = await client.request("initialize", {"protocolVersion": asked, **INFO})
            assert result["protocolVersion"] == spoken


def markers(value: Any) -> list[Any]:
    """Return the values in capabilities that are not objects."""
    if not isinstance(value, dict):
        return [value]
    return [found for name, held in value.items() if name != "_meta" for found in markers(held)]


@covers(2, "INIT-203", "INIT-204")
async def test_initialize_v2_names_the_agent_and_capabilities_are_objects(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        result = await client.initialize()
        assert result["info"]["name"] and result["info"]["version"]
        assert result["capabilities"]["session"] and markers(result["capabilities"]) == []


@covers(2, "AUTH-201", "AUTH-202", "AUTH-206", "AUTH-207")
async def test_login_methods_v2_have_known_types(
    testbed: AcpTestbed,
) -> None:
    for capabilities, kinds in (
        (None, {"agent"}),
        ({"auth": {"terminal": {}}}, {"agent", "terminal"}),
    ):
        async with testbed.connect_in_process(2, initialize=False) as client:
            methods = (
                await client.initialize(**({"capabilities": capabilities} if capabilities else {}))
            )["authMethods"]
            assert {method["type"] for method in methods} == kinds
            assert len({method["methodId"] for method in methods}) == len(methods)
            for method in methods:
                assert all(isinstance(word, str) for word in method.get("args", []))
                assert "env" not in method


@covers(2, "AUTH-203", "AUTH-204")
async def test_client_can_log_out_and_in_again(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        (method,) = (await client.initialize())["authMethods"]
        assert await client.request("auth/logout", {}) == {}
        assert await client.request("auth/login", {"methodId": method["methodId"]}) == {}
        await client.new_session("/")


@covers(2, "AUTH-205")
async def test_agent_without_login_methods_needs_no_login(testbed: AcpTestbed) -> None:
    program = ("-c", "import segue\nclass Mute:\n async def run(self, turn): return 'end_turn'\n"
               "segue.serve_acp(Mute(), persist=None)")  # fmt: skip
    async with testbed.connect_child(2, command=program, initialize=False) as (client, _):
        assert (await client.initialize())["authMethods"] == []
        await client.new_session("/")


@covers(2, *numbered("BATCH", "201-208"))
async def test_batch_is_one_invalid_request(testbed: AcpTestbed) -> None:
    one = b'{"jsonrpc":"2.0","id":5,"method":"session/list"}'
    notification = b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}'
    async with testbed.connect_in_process(2) as client:
        for array in (b"[]", b"[%b]" % one, b"[%b,%b]" % (one, notification), b"[17,true,null]"):
            before = len(client.unmatched_errors)
            await client.send_bytes(array + b"\n")
            await client.request("session/list")
            assert [error["code"] for error in client.unmatched_errors[before:]] == [-32600]


# Version 2: sessions.


@covers(2, "SESSION-203")
async def test_missing_mcp_servers_mean_none(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        for params in ({}, {"mcpServers": []}):
            result = await client.request("session/new", {"cwd": "/", **params})
            assert await client.run_prompt(result["sessionId"], "/say hi") == "end_turn"


@covers(2, "PROMPT-201", "PROMPT-203", "PATCH-203")
async def test_prompt_response_has_the_id_of_the_shown_message(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        seen = []
        for text in ("one", "two"):
            before = len(client.log)
            result = await client.request("session/prompt", client.prompt_params(id, text))
            await client.wait_for_update(is_idle, before)
            (shown,) = [u.body for u in client.updates(before) if u.kind == "user_message"]
            assert shown["messageId"] == result["messageId"] and shown["content"]
            seen.append(result["messageId"])
        assert all(seen) and len(set(seen)) == 2


def states(client: Client, after: int = 0) -> list[tuple[str, Any]]:
    return [
        (update.body["state"], update.body.get("stopReason"))
        for update in client.updates(after)
        if update.kind == "state_update"
    ]


@covers(2, "STATE-201", "STATE-202", "STATE-203")
async def test_turn_is_running_then_idle_with_a_stop_reason(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        before = len(client.log)
        await client.run_prompt(id, "/say hi")
        assert states(client, before) == [("running", None), ("idle", "end_turn")]


@covers(2, "RESUME-201", "RESUME-203")
async def test_resume_v2_sends_the_state_and_no_history(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, SCRIPT)
        await client.request("session/close", {"sessionId": id})
        for params in ({}, {"replayFrom": None}):
            client.log.clear()
            await client.request("session/resume", {"sessionId": id, "cwd": "/", **params})
            assert client.kinds() == ["session_info_update", "state_update"]


@covers(2, "RESUME-202", "RESUME-204", "RESUME-205")
async def test_replay_sends_whole_messages_with_the_same_ids_before_the_response(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        own = (await client.request("session/prompt", client.prompt_params(id, SCRIPT)))[
            "messageId"
        ]
        await client.wait_for_update(is_idle)
        await client.request("session/close", {"sessionId": id})
        client.log.clear()
        replayed = await client.replay(id, "/")
        answered = client.log.index("session/resume")
        assert (await wait_quiet(client)) == answered + 3 and not client.updates(answered)
        assert own in [u.body["messageId"] for u in replayed if u.kind == "user_message"]
        assert not [u for u in replayed if u.kind.endswith("_chunk")]


@covers(2, "LIST-201", "LIST-202", "LIST-203", "LIST-204")
async def test_list_returns_cwd_as_the_client_wrote_it(testbed: AcpTestbed) -> None:
    unresolved_path = f"{testbed.directory}/../{testbed.directory.name}"
    async with testbed.connect_in_process(2) as client:
        await client.new_session(testbed.directory)
        await client.new_session("/")
        rows = (await client.request("session/list", {}))["sessions"]
        assert len(rows) == 2 and all(os.path.isabs(row["cwd"]) for row in rows)
        (row,) = (await client.request("session/list", {"cwd": unresolved_path}))["sessions"]
        assert row["cwd"] == unresolved_path
        assert await client.request("session/list", {"cwd": "/nowhere/at/all"}) == {"sessions": []}


@covers(2, "CLOSE-201")
async def test_idle_session_can_be_closed(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        assert (
            await client.request("session/close", {"sessionId": await client.new_session("/")})
            == {}
        )


@covers(2, "CLOSE-202", "CANCEL-208")
async def test_close_reports_the_cancelled_turn_before_its_response(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await start_long_turn(client)
        await client.request("session/close", {"sessionId": id})
        closed = client.log.index("session/close")
        (last,) = [update for update in client.updates(0, closed) if is_idle(update)]
        assert last.body["stopReason"] == "cancelled"


@covers(2, "DELETE-201", "DELETE-202", "DELETE-203")
async def test_deleted_session_is_not_listed(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        assert len((await client.request("session/list"))["sessions"]) == 1
        for gone in (id, id, "never-created"):
            assert await client.request("session/delete", {"sessionId": gone}) == {}
        assert (await client.request("session/list"))["sessions"] == []


@covers(2, "ADDDIRS-201", "ADDDIRS-202")
async def test_additional_directories_are_accepted_by_every_opening_method(
    testbed: AcpTestbed,
) -> None:
    more = {"additionalDirectories": [str(testbed.directory)]}
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/", **more)
        await client.request("session/close", {"sessionId": id})
        await client.request("session/resume", {"sessionId": id, "cwd": "/", **more})


@covers(2, *numbered("CONFIG", "201-206"))
async def test_config_updates_contain_all_options(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        result = await client.request("session/new", {"cwd": "/"})
        id, before = result["sessionId"], options(result, "configId")
        for name, option in before.items():
            value = option["options"][-1]["value"]
            params = {"sessionId": id, "configId": name, "type": "id", "value": value}
            after = options(await client.request("session/set_config_option", params), "configId")
            assert after.keys() == before.keys() and after[name]["currentValue"] == value
        bodies = [u.body for u in client.updates() if u.kind == "config_option_update"]
        assert bodies and all(options(body, "configId").keys() == before.keys() for body in bodies)
        await client.request("session/close", {"sessionId": id})
        again = await client.request("session/resume", {"sessionId": id, "cwd": "/"})
        assert options(again, "configId") == after


@covers(2, "CANCEL-201", "CANCEL-202", "CANCEL-203", "CANCEL-207")
async def test_cancelled_turn_ends_idle_with_reason_cancelled(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/tool ls a\n/wait 60")
        assert "messageId" in await client.wait_response(request)
        await client.notify("session/cancel", {"sessionId": id})
        rest = await client.wait_for_update(is_idle)
        assert rest.body["stopReason"] == "cancelled"
        place = client.log.index(rest)
        await wait_quiet(client)
        assert client.updates(place + 1) == []


@covers(2, "CANCEL-204")
async def test_cancelled_turn_stops_its_tools(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/wait 60\n/say never")
        await client.notify("session/cancel", {"sessionId": id})
        await client.wait_for_update(is_idle)
        assert await client.run_prompt(id, "/history") == "end_turn"
        said = "".join(u.body["content"]["text"] for u in client.updates() if "chunk" in u.kind)
        assert "never" not in said


@covers(2, "CANCEL-205", "CANCEL-206")
async def test_cancel_gets_no_response_with_or_without_meta(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        for more in ({}, {"_meta": {"traceparent": "00-x"}}, {"_meta": None}):
            id = await start_long_turn(client)
            before = len(client.log)
            await client.notify("session/cancel", {"sessionId": id, **more})
            await client.wait_for_update(is_idle, before)
        await wait_quiet(client)
        assert client.unmatched_errors == []


async def all_updates(testbed: AcpTestbed) -> list[Update]:
    """Return the live and replayed updates of a turn with every kind of event."""
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, f"{SCRIPT}\n/write a.txt b\n/compact all\n/fail now")
        await client.request("session/close", {"sessionId": id})
        await client.replay(id, testbed.directory)
        return client.updates()


@covers(2, "PATCH-201", "PATCH-204", "PATCH-205", "PATCH-206", "PATCH-207", "PATCH-208")
async def test_every_chunk_has_a_message_id(testbed: AcpTestbed) -> None:
    names: dict[str, set[str]] = {}
    for _, kind, body in await all_updates(testbed):
        assert not kind.startswith("terminal_")  # segue sends no terminals
        if "message" in kind or "thought" in kind:
            assert body["messageId"]
        elif kind == "tool_call_update":
            if body["toolCallId"] not in names:
                assert body["title"]
            names.setdefault(body["toolCallId"], set()).update({body.get("name")} - {None})
        elif kind == "plan_update":
            assert body["plan"]["planId"]
    assert names and all(len(found) == 1 for found in names.values())


@covers(2, "PATCH-202")
async def test_all_chunks_of_a_message_have_the_same_id(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "/slow 0.02\n/say one two three four")
        said = [u for u in client.updates() if u.kind.startswith("agent_message")]
        assert len(said) > 1 and len({u.body["messageId"] for u in said}) == 1


@covers(2, "PATCH-209")
async def test_permission_request_sets_state_requires_action(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        await client.send_request("session/prompt", client.prompt_params(id, "/ask May I?"))
        await client.wait_for_update(lambda update: update.body.get("state") == "requires_action")
        await client.allow_last_request()
        await client.wait_for_update(is_idle)
        found = [state for state, _ in states(client)]
        assert found == ["running", "requires_action", "running", "idle"]


KINDS = {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
STATUSES = {"pending", "in_progress", "paused", "completed", "failed", "cancelled"}


@covers(2, "ENUM-201", "ENUM-202")
async def test_enumerated_values_are_those_of_the_protocol(testbed: AcpTestbed) -> None:
    updates = await all_updates(testbed)
    # The harness checks that the schema has each kind of update and its fields.
    for _, kind, body in updates:
        if kind == "tool_call_update":
            assert body.get("kind", "other") in KINDS | {"other"}
            assert body.get("status", "pending") in STATUSES
        elif kind == "plan_update":
            for entry in body["plan"]["entries"]:
                assert entry["priority"] in {"high", "medium", "low"}
                assert entry["status"] in STATUSES
        elif kind == "state_update":
            assert body["state"] in {"running", "idle", "requires_action"}
    assert {update.kind for update in updates} >= {"tool_call_update", "plan_update"}


@covers(2, "ENUM-203")
async def test_unknown_permission_outcome_does_not_break_the_connection(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_in_process(2) as client:
        client.answer_permission = lambda params: {"outcome": {"outcome": "_later"}}
        id = await client.new_session("/")
        assert await client.run_prompt(id, "/ask May I?") == "end_turn"


def metas(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [found for item in value for found in metas(item)]
    if not isinstance(value, dict):
        return []
    own = [value["_meta"]] if "_meta" in value else []
    return own + [found for item in value.values() for found in metas(item)]


@covers(2, "META-201")
async def test_meta_is_always_an_object(testbed: AcpTestbed) -> None:
    updates = await all_updates(testbed)
    async with testbed.connect_in_process(2, initialize=False) as client:
        greeting = await client.initialize()
        rows = await client.request("session/list")
    found = metas([greeting, rows, *(update.body for update in updates)])
    assert found and all(isinstance(meta, dict) for meta in found)


def test_every_listed_requirement_has_a_test() -> None:
    assert COVERED == LISTED

"""Tests of the requirements of version 2 in the protocol's conformance kit.

The harness checks every message against the official schema, so the tests cover only what a schema
cannot express.
"""

import os
from typing import Any

from tests.interfaces.acp.conformance import (
    COVERED,
    INFO,
    LISTED,
    SCRIPT,
    covers,
    numbered,
    read_options,
    wait_quiet,
)
from tests.interfaces.acp.harness import Client, Update, is_idle
from tests.interfaces.acp.testbed import AcpTestbed


async def start_long_turn(client: Client) -> str:
    """Create a session with a turn that runs until it is cancelled, and return its id."""
    id = await client.new_session("/")
    await client.start_prompt(id, "/say begun\n/wait 60")
    return id


# The connection.


@covers(2, "INIT-201", "INIT-202")
async def test_initialize_returns_the_requested_version(testbed: AcpTestbed) -> None:
    for requested, supported in ((2, 2), (65535, 2), (1, 1)):
        async with testbed.connect_in_process(supported, initialize=False) as client:
            result = await client.request("initialize", {"protocolVersion": requested, **INFO})
            assert result["protocolVersion"] == supported


def non_objects(value: Any) -> list[Any]:
    """Return the values in capabilities that are not objects."""
    if not isinstance(value, dict):
        return [value]
    return [leaf for name, field in value.items() if name != "_meta" for leaf in non_objects(field)]


@covers(2, "INIT-203", "INIT-204")
async def test_initialize_v2_names_the_agent_and_capabilities_are_objects(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_in_process(2, initialize=False) as client:
        result = await client.initialize()
        assert result["info"]["name"] and result["info"]["version"]
        assert result["capabilities"]["session"] and non_objects(result["capabilities"]) == []


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
    async with testbed.connect_program(2, *program, initialize=False) as (client, _):
        assert (await client.initialize())["authMethods"] == []
        await client.new_session("/")


@covers(2, *numbered("BATCH", "201-208"))
async def test_batch_is_one_invalid_request(testbed: AcpTestbed) -> None:
    request = b'{"jsonrpc":"2.0","id":5,"method":"session/list"}'
    notification = b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}'
    async with testbed.connect_in_process(2) as client:
        for array in (
            b"[]",
            b"[%b]" % request,
            b"[%b,%b]" % (request, notification),
            b"[17,true,null]",
        ):
            before = len(client.unmatched_errors)
            await client.send_bytes(array + b"\n")
            await client.request("session/list")
            assert [error["code"] for error in client.unmatched_errors[before:]] == [-32600]


# Sessions.


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
        message_ids = []
        for text in ("one", "two"):
            before = len(client.log)
            result = await client.request("session/prompt", client.prompt_params(id, text))
            await client.wait_for_update(is_idle, before)
            (message,) = [u.body for u in client.updates(before) if u.kind == "user_message"]
            assert message["messageId"] == result["messageId"] and message["content"]
            message_ids.append(result["messageId"])
        assert all(message_ids) and len(set(message_ids)) == 2


def states(client: Client, after: int = 0) -> list[tuple[str, Any]]:
    """Return the state and stop reason of each state update."""
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
        response_index = client.log.index("session/resume")
        assert (await wait_quiet(client)) == response_index + 3 and not client.updates(
            response_index
        )
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
        for deleted_id in (id, id, "never-created"):
            assert await client.request("session/delete", {"sessionId": deleted_id}) == {}
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
        id, before = result["sessionId"], read_options(result, "configId")
        for name, option in before.items():
            value = option["options"][-1]["value"]
            params = {"sessionId": id, "configId": name, "type": "id", "value": value}
            after = read_options(
                await client.request("session/set_config_option", params), "configId"
            )
            assert after.keys() == before.keys() and after[name]["currentValue"] == value
        bodies = [u.body for u in client.updates() if u.kind == "config_option_update"]
        assert bodies and all(
            read_options(body, "configId").keys() == before.keys() for body in bodies
        )
        await client.request("session/close", {"sessionId": id})
        again = await client.request("session/resume", {"sessionId": id, "cwd": "/"})
        assert read_options(again, "configId") == after


@covers(2, "CANCEL-201", "CANCEL-202", "CANCEL-203", "CANCEL-207")
async def test_cancelled_turn_ends_idle_with_reason_cancelled(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/tool ls a\n/wait 60")
        assert "messageId" in await client.wait_response(request)
        await client.notify("session/cancel", {"sessionId": id})
        idle_update = await client.wait_for_update(is_idle)
        assert idle_update.body["stopReason"] == "cancelled"
        index = client.log.index(idle_update)
        await wait_quiet(client)
        assert client.updates(index + 1) == []


@covers(2, "CANCEL-204")
async def test_cancelled_turn_stops_its_tools(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/wait 60\n/say never")
        await client.notify("session/cancel", {"sessionId": id})
        await client.wait_for_update(is_idle)
        assert await client.run_prompt(id, "/history") == "end_turn"
        text = "".join(u.body["content"]["text"] for u in client.updates() if "chunk" in u.kind)
        assert "never" not in text


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
    assert names and all(len(call_names) == 1 for call_names in names.values())


@covers(2, "PATCH-202")
async def test_all_chunks_of_a_message_have_the_same_id(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "/slow 0.02\n/say one two three four")
        chunks = [u for u in client.updates() if u.kind.startswith("agent_message")]
        assert len(chunks) > 1 and len({u.body["messageId"] for u in chunks}) == 1


@covers(2, "PATCH-209")
async def test_permission_request_sets_state_requires_action(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        await client.send_request("session/prompt", client.prompt_params(id, "/ask May I?"))
        await client.wait_for_update(lambda update: update.body.get("state") == "requires_action")
        await client.allow_last_request()
        await client.wait_for_update(is_idle)
        sent_states = [state for state, _ in states(client)]
        assert sent_states == ["running", "requires_action", "running", "idle"]


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
    """Return every `_meta` in a value."""
    if isinstance(value, list):
        return [meta for item in value for meta in metas(item)]
    if not isinstance(value, dict):
        return []
    own = [value["_meta"]] if "_meta" in value else []
    return own + [meta for item in value.values() for meta in metas(item)]


@covers(2, "META-201")
async def test_meta_is_always_an_object(testbed: AcpTestbed) -> None:
    updates = await all_updates(testbed)
    async with testbed.connect_in_process(2, initialize=False) as client:
        initialized = await client.initialize()
        rows = await client.request("session/list")
    values = metas([initialized, rows, *(update.body for update in updates)])
    assert values and all(isinstance(meta, dict) for meta in values)


def test_every_listed_requirement_of_version_2_has_a_test() -> None:
    assert COVERED[2] == LISTED[2]

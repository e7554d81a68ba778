"""new, load, resume, fork and close."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, ErrorResponse, is_idle
from tests.interfaces.acp.testbed import AcpTestbed

SCRIPT = (
    "Hello there\n/think hm\n/say hi\n/tool ls a b\n/plan one; > two; x three\n/write a.txt new"
)
CONVERSATION = [
    ("user", SCRIPT),
    ("agent", "Hello there"),
    ("thought", "hm"),
    ("agent", "hi"),
    ("tool", "ls (demo): completed"),
    ("tool", "Write a.txt: completed"),
]


async def scripted(client: Client, cwd: Path) -> str:
    id = await client.new_session(cwd)
    assert await client.run_prompt(id, SCRIPT) == "end_turn"
    return id


async def close(client: Client, id: str) -> None:
    assert await client.request("session/close", {"sessionId": id}) == {}


async def prompt_refused(client: Client, id: str) -> None:
    error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
    assert (error.code, error.data) == (-32002, {"sessionId": id})


# new


async def test_each_new_session_has_its_own_id(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        session_ids = {await client.new_session(testbed.directory) for _ in range(3)}
        assert len(session_ids) == 3 and all(ids.parse(id, "sesn") == id for id in session_ids)


async def test_mcp_servers_may_be_missing_or_null(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        for servers in ({}, {"mcpServers": None}, {"mcpServers": []}):
            assert await client.request("session/new", {"cwd": "/", **servers})


async def test_response_has_modes_and_options_and_no_update_follows(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        response = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        (option,) = response["configOptions"]
        assert option["currentValue"] in [choice["value"] for choice in option["options"]]
        assert option["category"] == "mode"
        if version == 1:
            modes = [mode["id"] for mode in response["modes"]["availableModes"]]
            assert response["modes"]["currentModeId"] in modes
        await client.request("session/list")
        assert client.log == ["initialize", "session/new", "session/list"]


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"cwd": "relative/path"},
        {"cwd": ""},
        {"cwd": None},
        {"cwd": 7},
        {"cwd": "/", "mcpServers": {}},
        {"cwd": "/", "mcpServers": ["x"]},
        {"cwd": "/", "additionalDirectories": "/tmp"},
        [],
        "x",
    ],
    ids=str,
)
async def test_invalid_new_request_is_rejected(testbed: AcpTestbed, version: int, bad: Any) -> None:
    async with testbed.connect_in_process(version) as client:
        assert (await client.request_error("session/new", bad)).code == -32602
        assert (await client.request("session/list"))["sessions"] == []


# load, and resume with replay


async def test_replay_precedes_the_response(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
        await close(client, id)
        assert conversation(await client.replay(id, testbed.directory)) == CONVERSATION
        method = "session/load" if version == 1 else "session/resume"
        assert client.log[-1] == method
        # No update precedes the response to the next request.
        await client.request("session/list")
        assert client.log[-2:] == [method, "session/list"]


async def test_replay_ends_with_the_title_and_time(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
        await close(client, id)
        updates = await client.replay(id, testbed.directory)
        (row,) = (await client.request("session/list"))["sessions"]
        ending = updates[-version]
        assert ending.kind == "session_info_update"
        assert (ending.body["title"], ending.body["updatedAt"]) == (row["title"], row["updatedAt"])


async def test_replay_v2_has_whole_messages_and_ends_with_the_state(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session(testbed.directory)
        sent = await client.request("session/prompt", client.prompt_params(id, SCRIPT))
        await client.wait_for_update(is_idle)
        live = {update.body["messageId"] for update in client.updates() if "message" in update.kind}
        await close(client, id)
        updates = await client.replay(id, testbed.directory)
        assert not any(update.kind.endswith("_chunk") for update in updates)
        messages = [update for update in updates if "messageId" in update.body]
        assert messages[0].body["messageId"] == sent["messageId"]
        assert {update.body["messageId"] for update in messages if "message" in update.kind} == live
        assert updates[-1].body == {"sessionUpdate": "state_update", "state": "idle"}


async def test_plan_and_diff_are_replayed(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
        updates = await client.replay(id, testbed.directory)
        plans = [update.body for update in updates if update.kind.startswith("plan")]
        entries = plans[0]["entries"] if version == 1 else plans[0]["plan"]["entries"]
        assert [(entry["content"], entry["status"]) for entry in entries] == [
            ("one", "pending"),
            ("two", "in_progress"),
            ("three", "completed"),
        ]
        (diff,) = [
            block
            for update in updates
            for block in update.body.get("content") or ()
            if isinstance(block, dict) and block["type"] == "diff"
        ]
        path = str(testbed.directory / "a.txt")
        if version == 1:
            assert (diff["path"], diff["newText"]) == (path, "new\n")
        else:
            assert diff["changes"][0] == {"operation": "add", "path": path, "fileType": "text"}
            assert "+new" in diff["patch"]["text"].splitlines()


async def test_session_is_loaded_and_prompted_in_another_process(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
    async with testbed.connect_in_process(version) as client:
        await prompt_refused(client, id)
        assert conversation(await client.replay(id, testbed.directory)) == CONVERSATION
        assert await client.run_prompt(id, "/history") == "end_turn"
        assert ("agent", "Before this turn: 1 messages of yours, 2 of mine.") in conversation(
            client.updates()
        )


@pytest.mark.parametrize("versions", [(1, 2), (2, 1)])
async def test_both_versions_replay_the_same_conversation(
    testbed: AcpTestbed, versions: tuple[int, int]
) -> None:
    async with testbed.connect_in_process(versions[0]) as client:
        id = await scripted(client, testbed.directory)
    async with testbed.connect_in_process(versions[1]) as client:
        assert conversation(await client.replay(id, testbed.directory)) == CONVERSATION


async def test_loading_an_attached_session_reopens_it(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
        assert conversation(await client.replay(id, testbed.directory)) == CONVERSATION
        assert conversation(await client.replay(id, testbed.directory)) == CONVERSATION
        before = len(client.log)
        await client.run_prompt(id, "/say once")
        entries = conversation(client.updates(before))
        assert entries.count(("agent", "once")) == 1


async def test_concurrent_loads_attach_the_session_once(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        params = {"sessionId": id, "cwd": str(testbed.directory), "mcpServers": []}
        requests = [await client.send_request("session/resume", params) for _ in range(4)]
        for request in requests:
            await client.wait_response(request)
        before = len(client.log)
        await client.run_prompt(id, "/title Once")
        titles = [update for update in client.updates(before) if update.body.get("title") == "Once"]
        assert len(titles) == 1


async def test_cancelled_load_attaches_nothing(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, "/repeat 80 many words")
        await close(client, id)
        params = {"sessionId": id, "cwd": str(testbed.directory), "mcpServers": []}
        request = await client.send_request("session/load", params)
        await client.notify("$/cancel_request", {"requestId": request})
        with pytest.raises(ErrorResponse, match="-32800"):
            await client.wait_response(request)
        await prompt_refused(client, id)


# resume


async def test_resume_sends_no_history(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
        await close(client, id)
        before = len(client.log)
        result = await client.request(
            "session/resume", {"sessionId": id, "cwd": str(testbed.directory)}
        )
        assert "sessionId" not in result and result["configOptions"]
        expected = [] if version == 1 else ["session_info_update", "state_update"]
        assert client.kinds(before) == expected
        assert await client.run_prompt(id, "and on") == "end_turn"


@pytest.mark.parametrize("start", [{"type": "end"}, {}, {"type": 7}, "start", 7, []], ids=str)
async def test_unknown_replay_position_is_rejected(testbed: AcpTestbed, start: Any) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await scripted(client, testbed.directory)
        params = {"sessionId": id, "cwd": str(testbed.directory), "replayFrom": start}
        assert (await client.request_error("session/resume", params)).code == -32602


async def test_resume_sends_the_current_state(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client, testbed.connect_in_process(2) as other:
        id = await client.new_session(testbed.directory)
        client.answer_permission = other.answer_permission = lambda params: None
        await client.start_prompt(id, "/say begun\n/wait 60")
        await other.open_session("resume", id, testbed.directory)
        assert other.last_update_before("session/resume").body["state"] == "running"
        waiting = await client.new_session(testbed.directory)
        await client.start_prompt(waiting, "/say begun\n/ask May I?")
        await client.wait_until(lambda: bool(client.permission_requests))
        await other.open_session("resume", waiting, testbed.directory)
        assert other.last_update_before("session/resume").body["state"] == "requires_action"


# cwd


async def test_session_opens_with_any_path_of_its_directory(
    testbed: AcpTestbed, version: int
) -> None:
    real, link = testbed.directory / "real", testbed.directory / "link"
    real.mkdir()
    link.symlink_to(real)
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(link)
        for spelling in (real, link, f"{real}/", f"{link}/../real"):
            await client.open_session("resume", id, spelling)


async def test_opening_with_another_directory_is_rejected(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
        for cwd in ("/", str(testbed.directory / "inner"), "relative", ""):
            for method in ("load", "resume"):
                params = {"sessionId": id, "cwd": cwd, "mcpServers": []}
                assert (await client.request_error(f"session/{method}", params)).code == -32602
        # The session is still attached.
        assert await client.run_prompt(id, "still here") == "end_turn"


async def test_relative_path_is_resolved_in_the_session_s_directory(
    testbed: AcpTestbed, version: int
) -> None:
    (testbed.directory / "note.txt").write_text("from the session's directory")
    async with testbed.connect_child(version) as (client, _):
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, "/read note.txt")
        (result,) = [
            update.body for update in client.updates() if update.body.get("status") == "completed"
        ]
        assert result["content"][0]["content"]["text"] == "from the session's directory"


# unknown


@pytest.mark.parametrize("id", ["nonsense", "", "0198c2a4-0000-7000-8000-000000000000", "sesn_01"])
async def test_opening_a_missing_session_fails(testbed: AcpTestbed, version: int, id: str) -> None:
    async with testbed.connect_in_process(version) as client:
        for method in ("load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": []}
            error = await client.request_error(f"session/{method}", params)
            assert (error.code, error.data) == (-32002, {"sessionId": id})
        await prompt_refused(client, id)
        config = {"sessionId": id, "configId": "mode", "value": "plan"}
        if version == 2:
            config["type"] = "id"
        error = await client.request_error("session/set_config_option", config)
        assert (error.code, error.data) == (-32002, {"sessionId": id})


async def test_opening_a_deleted_session_fails(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.request("session/delete", {"sessionId": id})
        for method in ("load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": []}
            assert (await client.request_error(f"session/{method}", params)).code == -32002


async def test_session_can_be_opened_by_its_rest_id(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        rest_id = ids.format_id("sesn", id)
        await client.request("session/prompt", client.prompt_params(rest_id, "hello"))
        await client.request("session/close", {"sessionId": rest_id})
        await prompt_refused(client, id)


@pytest.mark.parametrize("method", ["load", "resume"])
async def test_updates_have_the_session_id_that_the_client_used(
    testbed: AcpTestbed, version: int, method: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "hello")
        await close(client, id)
        rest_id = ids.format_id("sesn", id)
        before = len(client.log)
        await client.open_session(method, rest_id, "/")
        await client.run_prompt(rest_id, "/ask May I?")
        await client.request("session/prompt", client.prompt_params(id, "/ask May I?"))
        await client.wait_until(lambda: len(client.permission_requests) == 2)
        updates = client.updates(before)
        assert {update.session for update in updates} == {rest_id}
        assert [request["sessionId"] for request in client.permission_requests] == [
            rest_id,
            rest_id,
        ]


# close


async def test_closed_session_rejects_prompts(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await close(client, id)
        await prompt_refused(client, id)
        config = {"sessionId": id, "configId": "mode", "value": "plan"}
        methods = {"session/set_config_option": config | ({} if version == 1 else {"type": "id"})}
        if version == 1:
            methods["session/set_mode"] = {"sessionId": id, "modeId": "plan"}
        for method, params in methods.items():
            error = await client.request_error(method, params)
            assert (error.code, error.data) == (-32002, {"sessionId": id})


async def test_close_withdraws_waiting_prompts(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/wait 60")
        waiting = await client.send_request(
            "session/prompt", client.prompt_params(id, "/say never")
        )
        await close(client, id)
        if version == 1:
            assert await client.wait_response(waiting) == {"stopReason": "cancelled"}
        else:
            with pytest.raises(ErrorResponse, match="-32800"):
                await client.wait_response(waiting)
        assert await hub.turns.queued(LOCAL, id) == []
        assert len(await hub.history.events(LOCAL, id, types=["user_message"])) == 1


@pytest.mark.parametrize("id", ["nonsense", "0198c2a4-0000-7000-8000-000000000000"])
async def test_closing_a_session_that_is_not_attached_succeeds(
    testbed: AcpTestbed, version: int, id: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        await close(client, id)


async def test_closing_twice_succeeds(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        requests = [await client.send_request("session/close", {"sessionId": id}) for _ in range(3)]
        for request in requests:
            assert await client.wait_response(request) == {}


async def test_close_ends_the_turn_first(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        prompt = await client.start_prompt(id, "/say begun\n/wait 60")
        await close(client, id)
        if version == 1:
            assert await client.wait_response(prompt) == {"stopReason": "cancelled"}
        else:
            assert "messageId" in await client.wait_response(prompt)
            assert is_idle(client.updates()[-1])
            assert client.updates()[-1].body["stopReason"] == "cancelled"
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.turn) == ("idle", None)


async def test_closing_an_idle_session_sends_no_update(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "hello")
        before = len(client.log)
        await close(client, id)
        assert client.log[before:] == ["session/close"]


async def test_closed_session_sends_no_updates(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        watched = await client.new_session("/")
        await close(client, id)
        await hub.editor.set_title(LOCAL, id, "Renamed")
        await hub.editor.set_title(LOCAL, watched, "Seen")
        # The harness fails on an update of a closed session. It would arrive before this response.
        await client.wait_for_update(lambda update: update.body.get("title") == "Seen")


# fork


async def test_fork_copies_the_conversation_and_is_independent(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await scripted(client, testbed.directory)
        before = len(client.log)
        response = await client.open_session("fork", id, testbed.directory)
        fork = response["sessionId"]
        assert fork != id and response["configOptions"]
        assert client.log[before:] == ["session/fork"]
        await client.run_prompt(fork, "/history")
        assert conversation(client.updates(before))[-1] == (
            "agent",
            "Before this turn: 1 messages of yours, 2 of mine.",
        )
        assert conversation(await client.replay(id, testbed.directory)) == CONVERSATION
        assert (
            conversation(await client.replay(fork, testbed.directory))[: len(CONVERSATION)]
            == CONVERSATION
        )


async def test_fork_uses_the_requested_directory(testbed: AcpTestbed, version: int) -> None:
    other_directory = testbed.directory / "elsewhere"
    other_directory.mkdir()
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory, additionalDirectories=["/usr"])
        fork = (await client.open_session("fork", id, other_directory))["sessionId"]
        rows = {row["sessionId"]: row for row in (await client.request("session/list"))["sessions"]}
        assert rows[fork]["cwd"] == str(other_directory)
        assert "additionalDirectories" not in rows[fork]
        assert rows[id]["additionalDirectories"] == ["/usr"]


async def test_fork_of_a_running_session_is_idle(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/wait 60")
        fork = (await client.open_session("fork", id, "/"))["sessionId"]
        assert (await hub.sessions.get(LOCAL, fork)).status == "idle"
        assert (await hub.sessions.get(LOCAL, id)).status == "running"
        assert await client.run_prompt(fork, "on my own") == "end_turn"


# Many sessions.


async def test_many_sessions_can_be_attached(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        session_ids = [await client.new_session("/") for _ in range(20)]
        await asyncio.gather(*(client.run_prompt(id, f"/say to {id}") for id in session_ids))
        for id in session_ids:
            updates = [update for update in client.updates() if update.session == id]
            assert ("agent", f"to {id}") in conversation(updates)

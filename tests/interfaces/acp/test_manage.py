"""delete, set_title, archive, unarchive and status, which need no attached session."""

from typing import Any

import pytest

from segue.model.errors import NotFound
from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client, ErrorResponse, is_idle
from tests.interfaces.acp.testbed import AcpTestbed

MISSING_ID = "0198c2a4-0000-7000-8000-000000000000"


async def list_ids(client: Client, **params: Any) -> list[str]:
    return [row["sessionId"] for row in (await client.request("session/list", params))["sessions"]]


async def create_session(testbed: AcpTestbed) -> str:
    """Create a session that no client has attached, and return its id."""
    async with testbed.hub() as hub:
        return (await hub.editor.create(LOCAL, cwd="/")).id


# delete


async def test_list_omits_deleted_sessions(testbed: AcpTestbed, version: int) -> None:
    id = await create_session(testbed)
    async with testbed.connect_in_process(version) as client:
        assert await list_ids(client) == [id]
        assert await client.request("session/delete", {"sessionId": id}) == {}
        assert await list_ids(client, archived="include") == []


@pytest.mark.parametrize("id", [MISSING_ID, "nonsense", ""])
async def test_deleting_a_missing_session_succeeds(
    testbed: AcpTestbed, version: int, id: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        assert await client.request("session/delete", {"sessionId": id}) == {}


async def test_deleting_twice_succeeds(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        for _ in range(2):
            assert await client.request("session/delete", {"sessionId": id}) == {}


async def test_deleted_session_can_be_restored(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        await client.request("session/delete", {"sessionId": id})
        await hub.editor.restore(LOCAL, id)
        assert await list_ids(client) == [id]


async def test_session_is_deleted_permanently_on_request(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        for _ in range(2):
            meta = {"segue": {"permanently": True}}
            await client.request("session/delete", {"sessionId": id, "_meta": meta})
        with pytest.raises(NotFound):
            await hub.sessions.get(LOCAL, id)
        with pytest.raises(ErrorResponse, match="permanently"):
            bad_meta = {"segue": {"permanently": "no"}}
            await client.request("session/delete", {"sessionId": id, "_meta": bad_meta})


async def test_delete_ends_the_turn_and_closes_the_session(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        prompt = await client.start_prompt(id, "/say begun\n/wait 60")
        assert await client.request("session/delete", {"sessionId": id}) == {}
        if version == 1:
            assert await client.wait_response(prompt) == {"stopReason": "cancelled"}
        error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
        assert error.code == -32002
        assert await list_ids(client) == []


async def test_delete_ends_a_turn_in_another_process(testbed: AcpTestbed, version: int) -> None:
    async with (
        testbed.connect_in_process(version) as second,
        testbed.connect_in_process(version) as first,
    ):
        id = await second.new_session("/")
        prompt = await second.start_prompt(id, "/say begun\n/wait 60")
        assert await first.request("session/delete", {"sessionId": id}) == {}
        if version == 1:
            assert await second.wait_response(prompt) == {"stopReason": "cancelled"}
        else:
            assert (await second.wait_for_update(is_idle)).body["stopReason"] == "cancelled"
        assert await list_ids(first) == []


async def test_prompt_to_a_deleted_session_is_rejected(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        await hub.editor.trash(LOCAL, id)
        error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
        assert (error.code, error.data) == (-32002, {"sessionId": id})
        await hub.editor.purge(LOCAL, id)
        error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
        assert (error.code, error.data) == (-32002, {"sessionId": id})


# title


async def test_returned_title_is_the_stored_title(testbed: AcpTestbed, version: int) -> None:
    id = await create_session(testbed)
    async with testbed.connect_in_process(version) as client:
        params = {"sessionId": id, "title": "  A better name \n"}
        assert await client.request("session/set_title", params) == {"title": "A better name"}
        (row,) = (await client.request("session/list"))["sessions"]
        assert row["title"] == "A better name"


async def test_automatic_title_does_not_replace_a_set_title(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.request("session/set_title", {"sessionId": id, "title": "Mine"})
        await client.run_prompt(id, "Fix the parser")
        titles = [update.body["title"] for update in client.updates() if "title" in update.body]
        assert titles == ["Mine"]
        (row,) = (await client.request("session/list"))["sessions"]
        assert row["title"] == "Mine"


async def test_title_update_precedes_the_response(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        before = len(client.log)
        await client.request("session/set_title", {"sessionId": id, "title": "Mine"})
        (update,) = client.updates(before)
        assert update.body == {"sessionUpdate": "session_info_update", "title": "Mine"}
        assert client.log[-1] == "session/set_title"


@pytest.mark.parametrize("title", ["", "  \n", None, 7])
async def test_invalid_title_is_rejected(testbed: AcpTestbed, version: int, title: Any) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        error = await client.request_error("session/set_title", {"sessionId": id, "title": title})
        assert error.code == -32602


# archive


async def test_archive_hides_a_session_and_unarchive_shows_it(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "hello")
        for _ in range(2):
            assert await client.request("session/archive", {"sessionId": id}) == {}
            assert (await list_ids(client), await list_ids(client, archived="only")) == ([], [id])
        for _ in range(2):
            assert await client.request("session/unarchive", {"sessionId": id}) == {}
            assert (await list_ids(client), await list_ids(client, archived="only")) == ([id], [])
        # Neither method attached the session.
        error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
        assert error.code == -32002
        replayed = await client.replay(id, "/")
        assert any(update.kind.startswith("user_message") for update in replayed)


async def test_archive_ends_the_turn_and_closes_the_session(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        prompt = await client.start_prompt(id, "/say begun\n/wait 60")
        assert await client.request("session/archive", {"sessionId": id}) == {}
        if version == 1:
            assert await client.wait_response(prompt) == {"stopReason": "cancelled"}
        else:
            assert client.updates()[-2].body["stopReason"] == "cancelled"
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.state) == ("idle", "archived")


@pytest.mark.parametrize(("method", "mark"), [("archive", "archived"), ("delete", "deleted")])
async def test_archive_and_delete_send_the_change_before_closing(
    testbed: AcpTestbed, version: int, method: str, mark: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        before = len(client.log)
        await client.request(f"session/{method}", {"sessionId": id})
        (update,) = client.updates(before)
        assert (update.kind, update.body["_meta"]) == ("session_info_update", {mark: True})
        assert client.log[-1] == f"session/{method}"


async def test_archive_ends_a_waiting_turn_in_another_process(
    testbed: AcpTestbed, version: int
) -> None:
    async with (
        testbed.connect_in_process(version) as second,
        testbed.connect_in_process(version) as first,
        testbed.hub() as hub,
    ):
        second.answer_permission = lambda params: None
        id = await second.new_session("/")
        await second.start_prompt(id, "/say begun\n/ask May I?")
        await second.wait_until(lambda: bool(second.permission_requests))
        assert await first.request("session/archive", {"sessionId": id}) == {}
        session = await hub.sessions.get(LOCAL, id)
        assert (session.turn, session.state) == (None, "archived")


# status


async def test_status_says_whether_the_session_is_attached(
    testbed: AcpTestbed, version: int
) -> None:
    id = await create_session(testbed)
    async with testbed.connect_in_process(version) as client:
        saved = await client.request("session/status", {"sessionId": id})
        assert saved["status"] == "saved"
        await client.open_session("resume", id, "/")
        attached = await client.request("session/status", {"sessionId": id})
        assert attached["status"] == "open"
        if version == 2:
            assert attached["state"] == {"state": "idle"}
            await client.start_prompt(id, "/say begun\n/wait 60")
            running = await client.request("session/status", {"sessionId": id})
            assert running["state"] == {"state": "running"}
        await client.request("session/close", {"sessionId": id})
        assert (await client.request("session/status", {"sessionId": id}))["status"] == "saved"


async def test_status_does_not_change_the_session(testbed: AcpTestbed, version: int) -> None:
    id = await create_session(testbed)
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        before = await hub.sessions.get(LOCAL, id)
        await client.request("session/status", {"sessionId": id})
        assert await hub.sessions.get(LOCAL, id) == before
        assert client.updates() == []


# unknown


@pytest.mark.parametrize("id", [MISSING_ID, "nonsense", ""])
@pytest.mark.parametrize("method", ["set_title", "archive", "unarchive", "status"])
async def test_methods_reject_an_unknown_session(
    testbed: AcpTestbed, version: int, method: str, id: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        error = await client.request_error(f"session/{method}", {"sessionId": id, "title": "x"})
        assert (error.code, error.data) == (-32002, {"sessionId": id})


@pytest.mark.parametrize("method", ["set_title", "archive", "unarchive", "status"])
async def test_methods_reject_a_deleted_session(
    testbed: AcpTestbed, version: int, method: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.request("session/delete", {"sessionId": id})
        error = await client.request_error(f"session/{method}", {"sessionId": id, "title": "x"})
        assert (error.code, error.data) == (-32002, {"sessionId": id})

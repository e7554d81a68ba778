"""delete, set_title, archive, unarchive, status: sessions that need not be open."""

from typing import Any

import pytest

from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client, is_rest
from tests.interfaces.acp.testbed import House

GONE = "0198c2a4-0000-7000-8000-000000000000"


async def ids_of(client: Client, **params: Any) -> list[str]:
    return [row["sessionId"] for row in (await client.ask("session/list", params))["sessions"]]


async def elsewhere(house: House) -> str:
    """A session that no client of the test has open."""
    async with house.hub() as hub:
        return (await hub.editor.create(LOCAL, cwd="/")).id


# delete


async def test_a_deleted_session_is_gone_from_the_list(house: House, version: int) -> None:
    id = await elsewhere(house)
    async with house.inside(version) as client:
        assert await ids_of(client) == [id]
        assert await client.ask("session/delete", {"sessionId": id}) == {}
        assert await ids_of(client, archived="include") == []


@pytest.mark.parametrize("id", [GONE, "nonsense", ""])
async def test_deleting_what_is_not_there_succeeds(house: House, version: int, id: str) -> None:
    async with house.inside(version) as client:
        assert await client.ask("session/delete", {"sessionId": id}) == {}


async def test_deleting_twice_succeeds(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        for _ in range(2):
            assert await client.ask("session/delete", {"sessionId": id}) == {}


async def test_what_was_deleted_can_be_restored(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        await client.ask("session/delete", {"sessionId": id})
        await hub.editor.restore(LOCAL, id)
        assert await ids_of(client) == [id]


async def test_deleting_an_open_session_ends_its_turn_and_closes_it(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        prompt = await client.begin(id, "/say begun\n/wait 60")
        assert await client.ask("session/delete", {"sessionId": id}) == {}
        if version == 1:
            assert await client.answer(prompt) == {"stopReason": "cancelled"}
        refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
        assert refused.code == -32002
        assert await ids_of(client) == []


async def test_deleting_a_session_that_runs_elsewhere_ends_its_turn(
    house: House, version: int
) -> None:
    async with house.inside(version) as theirs, house.inside(version) as mine:
        id = await theirs.new("/")
        prompt = await theirs.begin(id, "/say begun\n/wait 60")
        assert await mine.ask("session/delete", {"sessionId": id}) == {}
        if version == 1:
            assert await theirs.answer(prompt) == {"stopReason": "cancelled"}
        else:
            assert (await theirs.until(is_rest)).body["stopReason"] == "cancelled"
        assert await ids_of(mine) == []


async def test_a_prompt_to_a_session_that_somebody_deleted_is_refused(
    house: House, version: int
) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        await hub.editor.trash(LOCAL, id)
        refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
        assert (refused.code, refused.data) == (-32002, {"sessionId": id})
        await hub.editor.purge(LOCAL, id)
        refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
        assert (refused.code, refused.data) == (-32002, {"sessionId": id})


# title


async def test_a_title_is_stored_as_it_is_told_back(house: House, version: int) -> None:
    id = await elsewhere(house)
    async with house.inside(version) as client:
        params = {"sessionId": id, "title": "  A better name \n"}
        assert await client.ask("session/set_title", params) == {"title": "A better name"}
        (row,) = (await client.ask("session/list"))["sessions"]
        assert row["title"] == "A better name"


async def test_no_automatic_title_follows_one_that_was_set(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.ask("session/set_title", {"sessionId": id, "title": "Mine"})
        await client.run(id, "Fix the parser")
        titles = [update.body["title"] for update in client.updates() if "title" in update.body]
        assert titles == ["Mine"]
        (row,) = (await client.ask("session/list"))["sessions"]
        assert row["title"] == "Mine"


async def test_a_new_title_is_told_before_the_answer(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        before = len(client.log)
        await client.ask("session/set_title", {"sessionId": id, "title": "Mine"})
        (update,) = client.updates(before)
        assert update.body == {"sessionUpdate": "session_info_update", "title": "Mine"}
        assert client.log[-1] == "session/set_title"


@pytest.mark.parametrize("title", ["", "  \n", None, 7])
async def test_a_title_that_is_none_is_refused(house: House, version: int, title: Any) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        refused = await client.refusal("session/set_title", {"sessionId": id, "title": title})
        assert refused.code == -32602


# archive


async def test_archiving_hides_and_unarchiving_shows(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, "hello")
        for _ in range(2):
            assert await client.ask("session/archive", {"sessionId": id}) == {}
            assert (await ids_of(client), await ids_of(client, archived="only")) == ([], [id])
        for _ in range(2):
            assert await client.ask("session/unarchive", {"sessionId": id}) == {}
            assert (await ids_of(client), await ids_of(client, archived="only")) == ([id], [])
        # Neither of them opened it.
        refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
        assert refused.code == -32002
        replayed = await client.replay(id, "/")
        assert any(update.kind.startswith("user_message") for update in replayed)


async def test_archiving_ends_the_turn_and_closes(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        prompt = await client.begin(id, "/say begun\n/wait 60")
        assert await client.ask("session/archive", {"sessionId": id}) == {}
        if version == 1:
            assert await client.answer(prompt) == {"stopReason": "cancelled"}
        else:
            assert client.updates()[-2].body["stopReason"] == "cancelled"
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.state) == ("idle", "archived")


@pytest.mark.parametrize(("method", "mark"), [("archive", "archived"), ("delete", "deleted")])
async def test_who_puts_a_session_away_is_told_so_before_it_closes(
    house: House, version: int, method: str, mark: str
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        before = len(client.log)
        await client.ask(f"session/{method}", {"sessionId": id})
        (update,) = client.updates(before)
        assert (update.kind, update.body["_meta"]) == ("session_info_update", {mark: True})
        assert client.log[-1] == f"session/{method}"


async def test_archiving_a_session_that_waits_for_an_answer_elsewhere_ends_its_turn(
    house: House, version: int
) -> None:
    async with house.inside(version) as theirs, house.inside(version) as mine, house.hub() as hub:
        theirs.choose = lambda params: None
        id = await theirs.new("/")
        await theirs.begin(id, "/say begun\n/ask May I?")
        await theirs.eventually(lambda: bool(theirs.asked))
        assert await mine.ask("session/archive", {"sessionId": id}) == {}
        session = await hub.sessions.get(LOCAL, id)
        assert (session.turn, session.state) == (None, "archived")


# status


async def test_status_says_whether_it_is_open_here(house: House, version: int) -> None:
    id = await elsewhere(house)
    async with house.inside(version) as client:
        saved = await client.ask("session/status", {"sessionId": id})
        assert saved["status"] == "saved"
        await client.open("resume", id, "/")
        opened = await client.ask("session/status", {"sessionId": id})
        assert opened["status"] == "open"
        if version == 2:
            assert opened["state"] == {"state": "idle"}
            await client.begin(id, "/say begun\n/wait 60")
            running = await client.ask("session/status", {"sessionId": id})
            assert running["state"] == {"state": "running"}
        await client.ask("session/close", {"sessionId": id})
        assert (await client.ask("session/status", {"sessionId": id}))["status"] == "saved"


async def test_asking_for_the_status_changes_nothing(house: House, version: int) -> None:
    id = await elsewhere(house)
    async with house.inside(version) as client, house.hub() as hub:
        before = await hub.sessions.get(LOCAL, id)
        await client.ask("session/status", {"sessionId": id})
        assert await hub.sessions.get(LOCAL, id) == before
        assert client.updates() == []


# unknown


@pytest.mark.parametrize("id", [GONE, "nonsense", ""])
@pytest.mark.parametrize("method", ["set_title", "archive", "unarchive", "status"])
async def test_of_an_unknown_session_nothing_can_be_said_or_changed(
    house: House, version: int, method: str, id: str
) -> None:
    async with house.inside(version) as client:
        refused = await client.refusal(f"session/{method}", {"sessionId": id, "title": "x"})
        assert (refused.code, refused.data) == (-32002, {"sessionId": id})


@pytest.mark.parametrize("method", ["set_title", "archive", "unarchive", "status"])
async def test_of_a_deleted_session_neither(house: House, version: int, method: str) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.ask("session/delete", {"sessionId": id})
        refused = await client.refusal(f"session/{method}", {"sessionId": id, "title": "x"})
        assert (refused.code, refused.data) == (-32002, {"sessionId": id})

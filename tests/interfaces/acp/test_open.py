"""new, load, resume, fork, close: what opens a session on a connection, and what closes it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, Refused, Update, is_rest
from tests.interfaces.acp.testbed import House

SCRIPT = (
    "Hello there\n/think hm\n/say hi\n/tool ls a b\n/plan one; > two; x three\n/write a.txt new"
)
SAID = [
    ("user", SCRIPT),
    ("agent", "Hello there"),
    ("thought", "hm"),
    ("agent", "hi"),
    ("tool", "ls (demo): completed"),
    ("tool", "Write a.txt: completed"),
]


async def scripted(client: Client, cwd: Path) -> str:
    id = await client.new(cwd)
    assert await client.run(id, SCRIPT) == "end_turn"
    return id


async def close(client: Client, id: str) -> None:
    assert await client.ask("session/close", {"sessionId": id}) == {}


async def prompt_refused(client: Client, id: str) -> None:
    refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
    assert (refused.code, refused.data) == (-32002, {"sessionId": id})


# new


async def test_each_new_session_has_an_id_of_its_own(house: House, version: int) -> None:
    async with house.inside(version) as client:
        made = {await client.new(house.directory) for _ in range(3)}
        assert len(made) == 3 and all(ids.parse(id, "sesn") == id for id in made)


async def test_servers_may_be_left_out_or_null(house: House, version: int) -> None:
    async with house.inside(version) as client:
        for servers in ({}, {"mcpServers": None}, {"mcpServers": []}):
            assert await client.ask("session/new", {"cwd": "/", **servers})


async def test_opening_tells_modes_and_options_in_the_answer_and_nothing_after_it(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        made = await client.ask("session/new", {"cwd": "/", "mcpServers": []})
        (option,) = made["configOptions"]
        assert option["currentValue"] in [choice["value"] for choice in option["options"]]
        assert option["category"] == "mode"
        if version == 1:
            modes = [mode["id"] for mode in made["modes"]["availableModes"]]
            assert made["modes"]["currentModeId"] in modes
        await client.ask("session/list")
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
async def test_a_session_is_not_made_from_nonsense(house: House, version: int, bad: Any) -> None:
    async with house.inside(version) as client:
        assert (await client.refusal("session/new", bad)).code == -32602
        assert (await client.ask("session/list"))["sessions"] == []


# load, and resume with replay


async def test_a_replay_is_the_conversation_and_then_the_answer(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
        await close(client, id)
        assert conversation(await client.replay(id, house.directory)) == SAID
        opened = "session/load" if version == 1 else "session/resume"
        assert client.log[-1] == opened
        # Whatever is asked next is answered without anything in between.
        await client.ask("session/list")
        assert client.log[-2:] == [opened, "session/list"]


async def test_a_replay_ends_with_the_title_and_the_time(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
        await close(client, id)
        updates = await client.replay(id, house.directory)
        (row,) = (await client.ask("session/list"))["sessions"]
        ending = updates[-version]
        assert ending.kind == "session_info_update"
        assert (ending.body["title"], ending.body["updatedAt"]) == (row["title"], row["updatedAt"])


async def test_a_replay_in_version_two_is_of_whole_messages_and_ends_with_the_state(
    house: House,
) -> None:
    async with house.inside(2) as client:
        id = await client.new(house.directory)
        sent = await client.ask("session/prompt", client.prompting(id, SCRIPT))
        await client.until(is_rest)
        live = {update.body["messageId"] for update in client.updates() if "message" in update.kind}
        await close(client, id)
        updates = await client.replay(id, house.directory)
        assert not any(update.kind.endswith("_chunk") for update in updates)
        messages = [update for update in updates if "messageId" in update.body]
        assert messages[0].body["messageId"] == sent["messageId"]
        assert {update.body["messageId"] for update in messages if "message" in update.kind} == live
        assert updates[-1].body == {"sessionUpdate": "state_update", "state": "idle"}


async def test_a_plan_and_a_difference_are_replayed(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
        updates = await client.replay(id, house.directory)
        plans = [update.body for update in updates if update.kind.startswith("plan")]
        entries = plans[0]["entries"] if version == 1 else plans[0]["plan"]["entries"]
        assert [(entry["content"], entry["status"]) for entry in entries] == [
            ("one", "pending"),
            ("two", "in_progress"),
            ("three", "completed"),
        ]
        (diff,) = [
            held
            for update in updates
            for held in update.body.get("content") or ()
            if isinstance(held, dict) and held["type"] == "diff"
        ]
        path = str(house.directory / "a.txt")
        if version == 1:
            assert (diff["path"], diff["newText"]) == (path, "new\n")
        else:
            assert diff["changes"][0] == {"operation": "add", "path": path, "fileType": "text"}
            assert "+new" in diff["patch"]["text"].splitlines()


async def test_a_session_is_loaded_in_another_process_and_goes_on_there(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
    async with house.inside(version) as client:
        await prompt_refused(client, id)
        assert conversation(await client.replay(id, house.directory)) == SAID
        assert await client.run(id, "/history") == "end_turn"
        assert ("agent", "Before this turn: 1 messages of yours, 2 of mine.") in conversation(
            client.updates()
        )


@pytest.mark.parametrize("versions", [(1, 2), (2, 1)])
async def test_a_session_of_one_version_is_the_same_conversation_in_the_other(
    house: House, versions: tuple[int, int]
) -> None:
    async with house.inside(versions[0]) as client:
        id = await scripted(client, house.directory)
    async with house.inside(versions[1]) as client:
        assert conversation(await client.replay(id, house.directory)) == SAID


async def test_loading_what_is_open_already_opens_it_anew(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
        assert conversation(await client.replay(id, house.directory)) == SAID
        assert conversation(await client.replay(id, house.directory)) == SAID
        before = len(client.log)
        await client.run(id, "/say once")
        said = conversation(client.updates(before))
        assert said.count(("agent", "once")) == 1


async def test_two_loads_at_once_leave_one_session_open(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        params = {"sessionId": id, "cwd": str(house.directory), "mcpServers": []}
        requests = [await client.post("session/resume", params) for _ in range(4)]
        for request in requests:
            await client.answer(request)
        before = len(client.log)
        await client.run(id, "/title Once")
        titles = [update for update in client.updates(before) if update.body.get("title") == "Once"]
        assert len(titles) == 1


async def test_a_load_that_is_taken_back_leaves_nothing_open(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        await client.run(id, "/repeat 80 many words")
        await close(client, id)
        params = {"sessionId": id, "cwd": str(house.directory), "mcpServers": []}
        request = await client.post("session/load", params)
        await client.tell("$/cancel_request", {"requestId": request})
        with pytest.raises(Refused, match="-32800"):
            await client.answer(request)
        await prompt_refused(client, id)


# resume


async def test_a_resume_replays_nothing(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
        await close(client, id)
        before = len(client.log)
        result = await client.ask("session/resume", {"sessionId": id, "cwd": str(house.directory)})
        assert "sessionId" not in result and result["configOptions"]
        expected = [] if version == 1 else ["session_info_update", "state_update"]
        assert client.kinds(before) == expected
        assert await client.run(id, "and on") == "end_turn"


@pytest.mark.parametrize("start", [{"type": "end"}, {}, {"type": 7}, "start", 7, []], ids=str)
async def test_a_replay_from_elsewhere_is_refused_and_not_guessed(house: House, start: Any) -> None:
    async with house.inside(2) as client:
        id = await scripted(client, house.directory)
        params = {"sessionId": id, "cwd": str(house.directory), "replayFrom": start}
        assert (await client.refusal("session/resume", params)).code == -32602


async def test_resuming_shows_the_state_that_the_session_is_in(house: House) -> None:
    async with house.inside(2) as client, house.inside(2) as other:
        id = await client.new(house.directory)
        client.choose = other.choose = lambda params: None
        await client.begin(id, "/say begun\n/wait 60")
        await other.open("resume", id, house.directory)
        assert other.told_before("session/resume").body["state"] == "running"
        waiting = await client.new(house.directory)
        await client.begin(waiting, "/say begun\n/ask May I?")
        await client.eventually(lambda: bool(client.asked))
        await other.open("resume", waiting, house.directory)
        assert other.told_before("session/resume").body["state"] == "requires_action"


# cwd


async def test_a_session_opens_in_its_own_directory_however_that_is_spelt(
    house: House, version: int
) -> None:
    real, link = house.directory / "real", house.directory / "link"
    real.mkdir()
    link.symlink_to(real)
    async with house.inside(version) as client:
        id = await client.new(link)
        for spelling in (real, link, f"{real}/", f"{link}/../real"):
            await client.open("resume", id, spelling)


async def test_another_directory_than_the_session_s_is_refused(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
        for cwd in ("/", str(house.directory / "inner"), "relative", ""):
            for method in ("load", "resume"):
                params = {"sessionId": id, "cwd": cwd, "mcpServers": []}
                assert (await client.refusal(f"session/{method}", params)).code == -32602
        # And it is still open as it was.
        assert await client.run(id, "still here") == "end_turn"


async def test_a_relative_path_means_the_session_s_directory_wherever_we_were_started(
    house: House, version: int
) -> None:
    (house.directory / "note.txt").write_text("from the session's directory")
    async with house.child(version) as (client, _):
        id = await client.new(house.directory)
        await client.run(id, "/read note.txt")
        (result,) = [
            update.body for update in client.updates() if update.body.get("status") == "completed"
        ]
        assert result["content"][0]["content"]["text"] == "from the session's directory"


# unknown


@pytest.mark.parametrize("id", ["nonsense", "", "0198c2a4-0000-7000-8000-000000000000", "sesn_01"])
async def test_a_session_that_does_not_exist_is_not_found(
    house: House, version: int, id: str
) -> None:
    async with house.inside(version) as client:
        for method in ("load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": []}
            refused = await client.refusal(f"session/{method}", params)
            assert (refused.code, refused.data) == (-32002, {"sessionId": id})
        await prompt_refused(client, id)
        config = {"sessionId": id, "configId": "mode", "value": "plan"}
        if version == 2:
            config["type"] = "id"
        refused = await client.refusal("session/set_config_option", config)
        assert (refused.code, refused.data) == (-32002, {"sessionId": id})


async def test_a_deleted_session_is_not_found(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.ask("session/delete", {"sessionId": id})
        for method in ("load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": []}
            assert (await client.refusal(f"session/{method}", params)).code == -32002


async def test_a_session_is_known_by_its_rest_spelling_too(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        spelt = ids.format_id("sesn", id)
        await client.ask("session/prompt", client.prompting(spelt, "hello"))
        await client.ask("session/close", {"sessionId": spelt})
        await prompt_refused(client, id)


@pytest.mark.parametrize("method", ["load", "resume"])
async def test_a_client_hears_of_a_session_by_the_id_that_it_gave(
    house: House, version: int, method: str
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, "hello")
        await close(client, id)
        spelt = ids.format_id("sesn", id)
        before = len(client.log)
        await client.open(method, spelt, "/")
        await client.run(spelt, "/ask May I?")
        await client.ask("session/prompt", client.prompting(id, "/ask May I?"))
        await client.eventually(lambda: len(client.asked) == 2)
        told = [each for each in client.log[before:] if isinstance(each, Update)]
        assert {each.session for each in told} == {spelt}
        assert [each["sessionId"] for each in client.asked] == [spelt, spelt]


# close


async def test_what_is_closed_takes_no_prompts(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await close(client, id)
        await prompt_refused(client, id)
        config = {"sessionId": id, "configId": "mode", "value": "plan"}
        methods = {"session/set_config_option": config | ({} if version == 1 else {"type": "id"})}
        if version == 1:
            methods["session/set_mode"] = {"sessionId": id, "modeId": "plan"}
        for method, params in methods.items():
            refused = await client.refusal(method, params)
            assert (refused.code, refused.data) == (-32002, {"sessionId": id})


async def test_closing_takes_back_the_prompts_that_wait(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        await client.begin(id, "/say begun\n/wait 60")
        held = await client.post("session/prompt", client.prompting(id, "/say never"))
        await close(client, id)
        if version == 1:
            assert await client.answer(held) == {"stopReason": "cancelled"}
        else:
            with pytest.raises(Refused, match="-32800"):
                await client.answer(held)
        assert await hub.turns.queued(LOCAL, id) == []
        assert len(await hub.history.events(LOCAL, id, types=["user_message"])) == 1


@pytest.mark.parametrize("id", ["nonsense", "0198c2a4-0000-7000-8000-000000000000"])
async def test_closing_what_is_not_open_succeeds(house: House, version: int, id: str) -> None:
    async with house.inside(version) as client:
        await close(client, id)


async def test_closing_twice_succeeds(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        requests = [await client.post("session/close", {"sessionId": id}) for _ in range(3)]
        for request in requests:
            assert await client.answer(request) == {}


async def test_closing_ends_the_turn_first(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        prompt = await client.begin(id, "/say begun\n/wait 60")
        await close(client, id)
        if version == 1:
            assert await client.answer(prompt) == {"stopReason": "cancelled"}
        else:
            assert "messageId" in await client.answer(prompt)
            assert is_rest(client.updates()[-1])
            assert client.updates()[-1].body["stopReason"] == "cancelled"
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.turn) == ("idle", None)


async def test_closing_an_idle_session_says_nothing_more(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, "hello")
        before = len(client.log)
        await close(client, id)
        assert client.log[before:] == ["session/close"]


async def test_what_happens_to_a_closed_session_is_not_told(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        watched = await client.new("/")
        await close(client, id)
        await hub.editor.set_title(LOCAL, id, "Renamed")
        await hub.editor.set_title(LOCAL, watched, "Seen")
        # The harness fails on any word about a closed session; this one comes later than it would.
        await client.until(lambda update: update.body.get("title") == "Seen")


# fork


async def test_a_fork_has_the_conversation_and_goes_its_own_way(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await scripted(client, house.directory)
        before = len(client.log)
        made = await client.open("fork", id, house.directory)
        fork = made["sessionId"]
        assert fork != id and made["configOptions"]
        assert client.log[before:] == ["session/fork"]
        await client.run(fork, "/history")
        assert conversation(client.updates(before))[-1] == (
            "agent",
            "Before this turn: 1 messages of yours, 2 of mine.",
        )
        assert conversation(await client.replay(id, house.directory)) == SAID
        assert conversation(await client.replay(fork, house.directory))[: len(SAID)] == SAID


async def test_a_fork_lives_in_the_directory_it_was_given(house: House, version: int) -> None:
    elsewhere = house.directory / "elsewhere"
    elsewhere.mkdir()
    async with house.inside(version) as client:
        id = await client.new(house.directory, additionalDirectories=["/usr"])
        fork = (await client.open("fork", id, elsewhere))["sessionId"]
        found = {row["sessionId"]: row for row in (await client.ask("session/list"))["sessions"]}
        assert found[fork]["cwd"] == str(elsewhere)
        assert "additionalDirectories" not in found[fork]
        assert found[id]["additionalDirectories"] == ["/usr"]


async def test_a_running_session_is_forked_at_rest(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        await client.begin(id, "/say begun\n/wait 60")
        fork = (await client.open("fork", id, "/"))["sessionId"]
        assert (await hub.sessions.get(LOCAL, fork)).status == "idle"
        assert (await hub.sessions.get(LOCAL, id)).status == "running"
        assert await client.run(fork, "on my own") == "end_turn"


# many


async def test_many_sessions_are_open_at_once(house: House, version: int) -> None:
    async with house.inside(version) as client:
        made = [await client.new("/") for _ in range(20)]
        await asyncio.gather(*(client.run(id, f"/say to {id}") for id in made))
        for id in made:
            mine = [update for update in client.updates() if update.session == id]
            assert ("agent", f"to {id}") in conversation(mine)

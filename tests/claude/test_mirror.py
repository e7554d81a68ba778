"""SegueSessionStore: an agent's sessions as sessions of a segue store, and back unchanged."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from segue import LOCAL, Hub, Query, claude, errors
from segue.claude import SegueSessionStore, SessionKey
from segue.model.content import plain_text
from segue.model.event import AgentMessage, ToolCall, ToolResult, UserMessage
from segue.store import open_store
from segue.store.base import Store
from tests.claude.entries import Home, S, assistant, boundary, call, result, title, user

T = TypeVar("T")
KEY: SessionKey = {"project_key": "-w", "session_id": S}
AGENT: SessionKey = {**KEY, "subpath": "subagents/agent-1"}
U = "aaaaaaaa-0000-4000-8000-00000000000"


class Room:
    """A store, and the ways into it."""

    def __init__(self, store: Store, directory: Path, url: str | None) -> None:
        self.kept = store
        self.url = url
        self.hub = Hub(store, directory)
        self.store = SegueSessionStore(store=store)

    async def append(self, *entries: Any, key: SessionKey = KEY) -> None:
        await self.store.append(key, list(entries))

    async def load(self, key: SessionKey = KEY) -> Any:
        return await self.store.load(key)

    async def texts(self, id: str = S) -> list[str]:
        """What was said in a session, as the hub tells."""
        return [
            plain_text(event.body.content)
            async for event in self.hub.history.read(LOCAL, id)
            if isinstance(event.body, UserMessage | AgentMessage)
        ]


BOTH = pytest.mark.parametrize("run", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def run(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[Callable[[Room], Awaitable[T]]], T]]:
    """Runs a test's body in a room of its own, on the embedded store unless a test asks."""
    url = None
    if getattr(request, "param", "sqlite") == "postgresql":
        url = request.getfixturevalue("migrated_database_url")

    @asynccontextmanager
    async def opened() -> AsyncIterator[Room]:
        store = await open_store(tmp_path, url)
        try:
            yield Room(store, tmp_path, url)
        finally:
            await store.close()

    def do(body: Callable[[Room], Awaitable[T]]) -> T:
        async def within() -> T:
            async with opened() as room:
                return await body(room)

        return asyncio.run(within())

    yield do


Run = Callable[[Callable[[Room], Awaitable[None]]], None]


def talk() -> list[dict[str, Any]]:
    said = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "A"}]
    return [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": S},
        user(U + "1", None, "Why is the sky blue?", cwd="/w", gitBranch="main"),
        assistant(U + "2", U + "1", [*said, *call("t1")], "msg_1"),
        user(U + "3", U + "2", result("t1"), toolUseResult={"stdout": "ok"}),
        assistant(U + "4", U + "3", [{"type": "text", "text": "Rayleigh."}]),
        {"type": "mode", "mode": "plan", "sessionId": S},
    ]


@BOTH
def test_entries_come_back_equal_and_in_order(run: Run) -> None:
    async def body(room: Room) -> None:
        odd = user(U + "5", U + "4", "half \ud83d, NUL \0, \u2028, big", n=2**70, x=1.5, none=None)
        await room.append(*talk()[:2])
        await room.append(*talk()[2:], odd, title("Named"))
        loaded = await room.load()
        assert loaded == [*talk(), odd, title("Named")]
        assert list(loaded[1]) == list(talk()[1])  # the order of keys, too

    run(body)


@BOTH
def test_a_mirrored_session_is_listed_read_and_found_like_any_other(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        (session,) = (await room.hub.sessions.list(LOCAL, Query(cwd="/w"))).sessions
        assert (session.id, session.cwd) == (S, "/w")
        assert (session.source, session.origin) == ("segue", "claude")
        assert (session.title, session.git_branch) == ("Why is the sky blue?", "main")
        assert (session.status, session.open_calls, session.mode) == ("idle", (), "plan")
        assert await room.texts() == ["Why is the sky blue?", "A", "Rayleigh."]
        bodies = [event.body async for event in room.hub.history.read(LOCAL, S)]
        assert [each.name for each in bodies if isinstance(each, ToolCall)] == ["Bash"]
        assert [each.call_id for each in bodies if isinstance(each, ToolResult)] == ["t1"]
        found = (await room.hub.sessions.search(LOCAL, Query(text="rayleigh"))).matches
        assert [each.session.id for each in found] == [S]

    run(body)


def test_a_title_takes_the_place_of_the_first_prompt(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        await room.append({"type": "ai-title", "aiTitle": "Light", "sessionId": S})
        assert (await room.hub.sessions.get(LOCAL, S)).title == "Light"
        await room.append(title("Optics"), {"type": "tag", "tag": "physics", "sessionId": S})
        session = await room.hub.sessions.get(LOCAL, S)
        assert (session.title, session.tag) == ("Optics", "physics")

    run(body)


@BOTH
def test_an_entry_that_is_sent_again_is_kept_once_but_lines_without_ids_each_time(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        before = [event async for event in room.hub.history.read(LOCAL, S)]
        await room.append(*talk()[1:5])
        assert [event async for event in room.hub.history.read(LOCAL, S)] == before
        await room.append(talk()[5], *talk()[3:5])
        assert await room.load() == [*talk(), talk()[5]]

    run(body)


def test_what_a_response_cost_is_counted_once_however_its_lines_arrive(run: Run) -> None:
    async def body(room: Room) -> None:
        usage = {"input_tokens": 100, "output_tokens": 7}
        for number in "123":
            line = assistant(U + number, None, [{"type": "text", "text": number}], "msg_1")
            line["message"] |= {"usage": usage, "model": "m"}
            await room.append(line)
        assert (await room.hub.sessions.get(LOCAL, S)).usage.input_tokens == 100

    run(body)


def test_a_session_that_began_before_it_said_where_gets_its_directory(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(talk()[0])
        assert (await room.hub.sessions.get(LOCAL, S)).cwd == "/"
        await room.append(*talk()[1:])
        assert (await room.hub.sessions.list(LOCAL, Query(cwd="/w"))).sessions[0].id == S

    run(body)


def test_the_transcripts_of_agents_are_kept_apart_from_the_conversation(run: Run) -> None:
    async def body(room: Room) -> None:
        about = {"type": "agent_metadata", "agentType": "x", "toolUseId": "t1"}
        inner = [user(U + "1", None, "do it", isSidechain=True), about]
        await room.append(*inner, key=AGENT)  # before the session's own
        await room.append(*talk())
        assert await room.load(AGENT) == inner
        assert await room.load() == talk()
        assert "do it" not in await room.texts()
        assert await room.store.list_subkeys({"project_key": "-w", "session_id": S}) == [
            "subagents/agent-1"
        ]

    run(body)


def test_a_deleted_transcript_of_an_agent_can_begin_anew(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        await room.append(user("x", None), key=AGENT)
        await room.store.delete(AGENT)
        assert await room.load(AGENT) is None
        await room.append(user("y", None), key=AGENT)
        assert [entry["uuid"] for entry in await room.load(AGENT)] == ["y"]

    run(body)


@BOTH
def test_the_same_id_in_two_projects_is_two_sessions(run: Run) -> None:
    async def body(room: Room) -> None:
        other: SessionKey = {"project_key": "-v", "session_id": S}
        await room.append(user("a", None, "one"))
        await room.append(user("b", None, "two"), key=other)
        assert [entry["uuid"] for entry in await room.load()] == ["a"]
        assert [entry["uuid"] for entry in await room.load(other)] == ["b"]
        assert len((await room.hub.sessions.list(LOCAL)).sessions) == 2
        await room.store.delete(KEY)
        assert await room.load() is None
        assert [each["session_id"] for each in await room.store.list_sessions("-v")] == [S]

    run(body)


@BOTH
def test_summaries_follow_appends_of_anybody(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        (first,) = await room.store.list_session_summaries("-w")
        assert first["data"]["first_prompt"] == "Why is the sky blue?"
        await SegueSessionStore(store=room.kept).append(KEY, [title("Named")])
        (second,) = await room.store.list_session_summaries("-w")
        assert second["data"] == first["data"] | {"custom_title": "Named"}
        (info,) = await claude.list_sessions_from_store(room.store, "/w")
        assert (info.summary, info.cwd) == ("Named", "/w")

    run(body)


def test_a_list_reads_only_what_came_since_the_last_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        await room.store.list_sessions("-w")
        read: list[Any] = []
        events = room.kept.events

        async def counted(*arguments: Any, **options: Any) -> Any:
            read.extend(found := await events(*arguments, **options))
            return found

        monkeypatch.setattr(room.kept, "events", counted)
        await room.store.list_sessions("-w")
        assert read == []
        await room.append(title("Named"))
        await room.store.list_session_summaries("-w")
        assert len(read) == 1

    run(body)


def test_what_the_hub_changes_is_in_the_transcript(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        await room.hub.editor.set_title(LOCAL, S, "From the hub")
        await room.hub.editor.set_tag(LOCAL, S, "mine")
        assert (await room.load())[-2:] == [
            {"type": "custom-title", "customTitle": "From the hub", "sessionId": S},
            {"type": "tag", "tag": "mine", "sessionId": S},
        ]
        info = await claude.get_session_info_from_store(room.store, S, "/w")
        assert info is not None
        assert (info.custom_title, info.tag) == ("From the hub", "mine")

    run(body)


def test_a_turn_of_the_hub_goes_on_where_the_transcript_ended(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        async with room.hub as hub:
            await hub.turns.run(LOCAL, S, "And at night?")
            messages = await claude.get_session_messages_from_store(room.store, S, "/w")
            said = [each.message["content"] for each in messages if each.type == "user"]
            assert said[-1] == "And at night?"
            assert len(messages) > 5
            loaded = await room.load()
            assert loaded[:6] == talk()
            # The program goes on from there, and its mirror adds to the same session.
            await room.append(user(U + "6", loaded[-1]["uuid"], "Good night", cwd="/w"))
            assert (await room.texts())[-1] == "Good night"

    run(body)


@BOTH
def test_a_session_of_the_hub_loads_as_a_transcript_of_its_directory(
    run: Run, tmp_path: Path
) -> None:
    async def body(room: Room) -> None:
        async with room.hub as hub:
            session = await hub.editor.create(LOCAL, cwd=str(tmp_path))
            await hub.turns.run(LOCAL, session.id, "Hello")
            project = claude.project_key_for_directory(tmp_path)
            key: SessionKey = {"project_key": project, "session_id": session.id}
            entries = await room.load(key)
            assert [each["type"] for each in entries] == ["user", "ai-title", "assistant"]
            assert entries[0]["message"]["content"] == "Hello"
            assert entries[2]["parentUuid"] == entries[0]["uuid"]
            assert await room.load({**key, "project_key": "-other"}) is None
            await hub.editor.create(LOCAL, cwd=str(tmp_path))  # nothing was said in this one
            (listed,) = await room.store.list_sessions(project)
            assert listed["session_id"] == session.id
            (info,) = await claude.list_sessions_from_store(room.store, str(tmp_path))
            assert info.summary == "Hello"
            more = user(U + "6", entries[2]["uuid"], "More", cwd=str(tmp_path))
            await room.append(more, key=key)
            assert [each["session_id"] for each in await room.store.list_sessions(project)] == [
                session.id
            ]
            assert await room.store.list_sessions("-other") == []

    run(body)


def test_the_trash_hides_a_session_and_gives_it_back(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        await room.hub.editor.trash(LOCAL, S)
        assert await room.load() is None
        assert await room.store.list_sessions("-w") == []
        await room.append(title("Late"))  # what still arrives is not lost
        await room.hub.editor.restore(LOCAL, S)
        assert await room.load() == [*talk(), title("Late")]

    run(body)


def test_a_fork_has_the_transcript_under_its_own_id_with_calls_closed(run: Run) -> None:
    async def body(room: Room) -> None:
        await room.append(*talk())
        events = [event async for event in room.hub.history.read(LOCAL, S)]
        at = next(event.seq for event in events if isinstance(event.body, ToolCall))
        fork = await room.hub.editor.fork(LOCAL, S, at=at)
        project = claude.project_key_for_directory("/w")
        loaded = await room.load({"project_key": project, "session_id": fork.id})
        own = {"sessionId": fork.id}
        asked, said = (loaded[1]["uuid"], loaded[2]["uuid"])
        assert not {asked, said} & {U + "1", U + "2"}
        assert loaded[:3] == [
            {**talk()[0], **own},
            {**talk()[1], **own, "uuid": asked},
            {**talk()[2], **own, "uuid": said, "parentUuid": asked},
        ]
        (block,) = loaded[3]["message"]["content"]
        assert (block["tool_use_id"], block["is_error"]) == ("t1", True)
        assert loaded[3]["parentUuid"] == loaded[3]["sourceToolAssistantUUID"] == said

    run(body)


@BOTH
def test_forks_of_forks_have_ids_of_their_own_and_the_whole_conversation(run: Run) -> None:
    async def body(room: Room) -> None:
        cut = boundary(U + "5", U + "6", [U + "4"])
        summary = user(U + "6", U + "5", "So far: light.", isCompactSummary=True)
        await room.append(*talk(), cut, summary)
        told = ["So far: light.", [{"type": "text", "text": "Rayleigh."}]]
        seen, id = set[str](), S
        for number in range(7, 10):
            key: SessionKey = {"project_key": "-w", "session_id": id}
            messages = await claude.get_session_messages_from_store(room.store, id, "/w")
            assert [each.message["content"] for each in messages] == told
            entries = [entry for entry in await room.load(key) if "uuid" in entry]
            await room.append(*entries, key=key)  # all of them are known already
            assert [entry for entry in await room.load(key) if "uuid" in entry] == entries
            ids = {entry["uuid"] for entry in entries}
            assert len(ids) == number - 1 and not ids & seen
            await room.append(user(U + str(number), messages[-1].uuid, "More", cwd="/w"), key=key)
            told.append("More")
            seen |= {*ids, U + str(number)}
            id = (await room.hub.editor.fork(LOCAL, id)).id

    run(body)


def test_the_transcript_of_an_agent_under_a_key_of_its_own_is_in_no_list(run: Run) -> None:
    async def body(room: Room) -> None:
        key: SessionKey = {"project_key": "-w", "session_id": "agent-1"}
        await room.append(user("x", None, isSidechain=True), key=key)
        assert (await room.hub.sessions.list(LOCAL)).sessions == []
        assert await claude.list_sessions_from_store(room.store, "/w") == []
        assert len(await room.load(key)) == 1

    run(body)


def test_compaction_is_told(run: Run) -> None:
    async def body(room: Room) -> None:
        summary = user("c1", "b1", "So far: light.", isCompactSummary=True)
        await room.append(*talk(), boundary("b1"), summary)
        types = [event.type async for event in room.hub.history.read(LOCAL, S)]
        assert "compacted" in types
        assert (await room.load())[-1] == summary

    run(body)


@BOTH
def test_entries_of_any_shape_are_kept(run: Run) -> None:
    async def body(room: Room) -> None:
        odd: list[Any] = [
            {},
            {"type": None, "uuid": 7},
            {"type": "user", "uuid": "u", "message": 3},
            {"type": "assistant", "uuid": "a", "message": {"content": ["text", 5, None]}},
            {"type": "assistant", "uuid": "a2", "message": {"content": {}}},
            {"type": "user", "uuid": "U" * 10_000, "message": {"content": [[]]}},
            {"type": "system", "subtype": "compact_boundary", "uuid": "b", "timestamp": "soon"},
            {"type": "tag", "tag": ["x"]},
        ]
        await room.append(*odd)
        assert await room.load() == odd

    run(body)


def test_sessions_of_files_are_taken_in_and_written_out(
    run: Run, home: Home, tmp_path: Path
) -> None:
    async def body(room: Room) -> None:
        path = home.write(talk())
        assert await room.store.import_session(S) == len(talk())
        assert await room.store.import_session(str(path)) == 0
        assert await room.load() == talk()
        with pytest.raises(errors.Conflict):
            await room.store.export_session(S)
        before = path.read_bytes()
        path.unlink()
        assert await room.store.export_session(S) == str(path)
        assert path.read_bytes() == before

    run(body)


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_session_that_another_makes_meanwhile_is_the_same_session(
    run: Run, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    async def body(room: Room) -> None:
        get, seen = room.kept.get, list[str]()

        async def late(workspace: str, id: str) -> Any:
            found = await get(workspace, id)
            seen.append(id)
            if len(seen) == looks:
                await SegueSessionStore(store=room.kept).append(KEY, [user("theirs", None)])
            return found

        monkeypatch.setattr(room.kept, "get", late)
        await room.append(user("ours", None))
        assert len(seen) > looks
        assert [entry["uuid"] for entry in await room.load()] == ["theirs", "ours"]
        assert len((await room.hub.sessions.list(LOCAL)).sessions) == 1

    run(body)


APPENDER = """
import asyncio, json, sys
from segue.claude import SegueSessionStore
async def main():
    store = SegueSessionStore(sys.argv[1], sys.argv[2] or None)
    key = {"project_key": "-w", "session_id": sys.argv[3]}
    for number in range(20):
        both = {"type": "user", "uuid": f"both-{number}", "n": number}
        mine = {"type": "user", "uuid": f"{sys.argv[4]}-{number}", "n": number}
        await store.append(key, [both, mine])
    await store.close()
asyncio.run(main())
"""


@BOTH
def test_several_processes_append_to_one_session(run: Run, tmp_path: Path) -> None:
    async def body(room: Room) -> None:
        where = [str(tmp_path), room.url or "", S]
        children = [
            subprocess.Popen([sys.executable, "-c", APPENDER, *where, str(name)])
            for name in range(3)
        ]
        assert [child.wait(60) for child in children] == [0, 0, 0]
        uuids = [entry["uuid"] for entry in await room.load()]
        names = ("both", "0", "1", "2")
        assert sorted(uuids) == sorted(f"{name}-{n}" for name in names for n in range(20))
        for name in ("0", "1", "2"):
            mine = [uuid for uuid in uuids if uuid.startswith(f"{name}-")]
            assert mine == [f"{name}-{n}" for n in range(20)]
        (listed,) = await room.store.list_sessions("-w")
        assert listed["session_id"] == S

    run(body)

"""SegueSessionStore stores an agent's sessions in a segue store and returns them unchanged."""

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


class StoreSetup:
    """A store, with a hub and a SegueSessionStore over it."""

    def __init__(self, store: Store, directory: Path, url: str | None) -> None:
        self.database = store
        self.url = url
        self.hub = Hub(store, directory)
        self.store = SegueSessionStore(store=store)

    async def append(self, *entries: Any, key: SessionKey = KEY) -> None:
        await self.store.append(key, list(entries))

    async def load(self, key: SessionKey = KEY) -> Any:
        return await self.store.load(key)

    async def texts(self, id: str = S) -> list[str]:
        """Return the texts of a session's messages, from the hub."""
        return [
            plain_text(event.body.content)
            async for event in self.hub.history.read(LOCAL, id)
            if isinstance(event.body, UserMessage | AgentMessage)
        ]


BOTH = pytest.mark.parametrize("run", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def run(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[Callable[[StoreSetup], Awaitable[T]]], T]]:
    """Return a function that runs a test with a new store, SQLite unless a test selects another."""
    url = None
    if getattr(request, "param", "sqlite") == "postgresql":
        url = request.getfixturevalue("migrated_database_url")

    @asynccontextmanager
    async def opened() -> AsyncIterator[StoreSetup]:
        store = await open_store(tmp_path, url)
        try:
            yield StoreSetup(store, tmp_path, url)
        finally:
            await store.close()

    def do(body: Callable[[StoreSetup], Awaitable[T]]) -> T:
        async def within() -> T:
            async with opened() as setup:
                return await body(setup)

        return asyncio.run(within())

    yield do


Run = Callable[[Callable[[StoreSetup], Awaitable[None]]], None]


def conversation() -> list[dict[str, Any]]:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "A"},
    ]
    return [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": S},
        user(U + "1", None, "Why is the sky blue?", cwd="/w", gitBranch="main"),
        assistant(U + "2", U + "1", [*content, *call("t1")], "msg_1"),
        user(U + "3", U + "2", result("t1"), toolUseResult={"stdout": "ok"}),
        assistant(U + "4", U + "3", [{"type": "text", "text": "Rayleigh."}]),
        {"type": "mode", "mode": "plan", "sessionId": S},
    ]


@BOTH
def test_store_returns_entries_equal_and_in_order(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        odd = user(U + "5", U + "4", "half \ud83d, NUL \0, \u2028, big", n=2**70, x=1.5, none=None)
        await setup.append(*conversation()[:2])
        await setup.append(*conversation()[2:], odd, title("Named"))
        loaded = await setup.load()
        assert loaded == [*conversation(), odd, title("Named")]
        assert list(loaded[1]) == list(conversation()[1])  # the order of keys, too

    run(body)


@BOTH
def test_mirrored_session_is_listed_read_and_searched_like_others(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        (session,) = (await setup.hub.sessions.list(LOCAL, Query(cwd="/w"))).sessions
        assert (session.id, session.cwd) == (S, "/w")
        assert (session.owner, session.source) == ("segue", "claude")
        assert (session.title, session.git_branch) == ("Why is the sky blue?", "main")
        assert (session.status, session.open_calls, session.mode) == ("idle", (), "plan")
        assert await setup.texts() == ["Why is the sky blue?", "A", "Rayleigh."]
        bodies = [event.body async for event in setup.hub.history.read(LOCAL, S)]
        assert [match.name for match in bodies if isinstance(match, ToolCall)] == ["Bash"]
        assert [match.call_id for match in bodies if isinstance(match, ToolResult)] == ["t1"]
        matches = (await setup.hub.sessions.search(LOCAL, Query(text="rayleigh"))).matches
        assert [match.session.id for match in matches] == [S]

    run(body)


def test_title_replaces_the_first_prompt(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        await setup.append({"type": "ai-title", "aiTitle": "Light", "sessionId": S})
        assert (await setup.hub.sessions.get(LOCAL, S)).title == "Light"
        await setup.append(title("Optics"), {"type": "tag", "tag": "physics", "sessionId": S})
        session = await setup.hub.sessions.get(LOCAL, S)
        assert (session.title, session.tag) == ("Optics", "physics")

    run(body)


@BOTH
def test_repeated_entry_is_stored_once_unless_it_has_no_id(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        before = [event async for event in setup.hub.history.read(LOCAL, S)]
        await setup.append(*conversation()[1:5])
        assert [event async for event in setup.hub.history.read(LOCAL, S)] == before
        await setup.append(conversation()[5], *conversation()[3:5])
        assert await setup.load() == [*conversation(), conversation()[5]]

    run(body)


def test_usage_of_a_response_is_counted_once(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        usage = {"input_tokens": 100, "output_tokens": 7}
        for number in "123":
            line = assistant(U + number, None, [{"type": "text", "text": number}], "msg_1")
            line["message"] |= {"usage": usage, "model": "m"}
            await setup.append(line)
        assert (await setup.hub.sessions.get(LOCAL, S)).usage.input_tokens == 100

    run(body)


def test_later_entry_sets_the_directory_of_a_session(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(conversation()[0])
        assert (await setup.hub.sessions.get(LOCAL, S)).cwd == "/"
        await setup.append(*conversation()[1:])
        assert (await setup.hub.sessions.list(LOCAL, Query(cwd="/w"))).sessions[0].id == S

    run(body)


def test_transcripts_of_subagents_are_not_in_the_conversation(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        about = {"type": "agent_metadata", "agentType": "x", "toolUseId": "t1"}
        inner = [user(U + "1", None, "do it", isSidechain=True), about]
        await setup.append(*inner, key=AGENT)  # before the session's own entries
        await setup.append(*conversation())
        assert await setup.load(AGENT) == inner
        assert await setup.load() == conversation()
        assert "do it" not in await setup.texts()
        assert await setup.store.list_subkeys({"project_key": "-w", "session_id": S}) == [
            "subagents/agent-1"
        ]

    run(body)


def test_deleted_subagent_transcript_can_be_created_again(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        await setup.append(user("x", None), key=AGENT)
        await setup.store.delete(AGENT)
        assert await setup.load(AGENT) is None
        await setup.append(user("y", None), key=AGENT)
        assert [entry["uuid"] for entry in await setup.load(AGENT)] == ["y"]

    run(body)


@BOTH
def test_same_id_in_two_projects_is_two_sessions(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        other: SessionKey = {"project_key": "-v", "session_id": S}
        await setup.append(user("a", None, "one"))
        await setup.append(user("b", None, "two"), key=other)
        assert [entry["uuid"] for entry in await setup.load()] == ["a"]
        assert [entry["uuid"] for entry in await setup.load(other)] == ["b"]
        assert len((await setup.hub.sessions.list(LOCAL)).sessions) == 2
        await setup.store.delete(KEY)
        assert await setup.load() is None
        assert [session["session_id"] for session in await setup.store.list_sessions("-v")] == [S]

    run(body)


@BOTH
def test_summaries_include_appends_of_other_stores(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        (first,) = await setup.store.list_session_summaries("-w")
        assert first["data"]["first_prompt"] == "Why is the sky blue?"
        await SegueSessionStore(store=setup.database).append(KEY, [title("Named")])
        (second,) = await setup.store.list_session_summaries("-w")
        assert second["data"] == first["data"] | {"custom_title": "Named"}
        (info,) = await claude.list_sessions_from_store(setup.store, "/w")
        assert (info.summary, info.cwd) == ("Named", "/w")

    run(body)


def test_list_reads_only_events_since_the_last_list(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        await setup.store.list_sessions("-w")
        read: list[Any] = []
        events = setup.database.events

        async def counted(*arguments: Any, **options: Any) -> Any:
            read.extend(events_read := await events(*arguments, **options))
            return events_read

        monkeypatch.setattr(setup.database, "events", counted)
        await setup.store.list_sessions("-w")
        assert read == []
        await setup.append(title("Named"))
        await setup.store.list_session_summaries("-w")
        assert len(read) == 1

    run(body)


def test_edits_of_the_hub_are_in_the_transcript(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        await setup.hub.editor.set_title(LOCAL, S, "From the hub")
        await setup.hub.editor.set_tag(LOCAL, S, "mine")
        assert (await setup.load())[-2:] == [
            {"type": "custom-title", "customTitle": "From the hub", "sessionId": S},
            {"type": "tag", "tag": "mine", "sessionId": S},
        ]
        info = await claude.get_session_info_from_store(setup.store, S, "/w")
        assert info is not None
        assert (info.custom_title, info.tag) == ("From the hub", "mine")

    run(body)


def test_turn_of_the_hub_continues_the_transcript(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        async with setup.hub as hub:
            await hub.config.set(LOCAL.workspace, "model", "demo")
            await hub.turns.run(LOCAL, S, "And at night?")
            messages = await claude.get_session_messages_from_store(setup.store, S, "/w")
            prompts = [one.message["content"] for one in messages if one.type == "user"]
            assert prompts[-1] == "And at night?"
            assert len(messages) > 5
            loaded = await setup.load()
            assert loaded[:6] == conversation()
            # Claude Code continues from there, and its mirror appends to the same session.
            await setup.append(user(U + "6", loaded[-1]["uuid"], "Good night", cwd="/w"))
            assert (await setup.texts())[-1] == "Good night"

    run(body)


@BOTH
def test_session_of_the_hub_is_loaded_as_a_transcript(run: Run, tmp_path: Path) -> None:
    async def body(setup: StoreSetup) -> None:
        async with setup.hub as hub:
            session = await hub.editor.create(LOCAL, cwd=str(tmp_path))
            await hub.turns.run(LOCAL, session.id, "Hello")
            project = claude.project_key_for_directory(tmp_path)
            key: SessionKey = {"project_key": project, "session_id": session.id}
            entries = await setup.load(key)
            assert [entry["type"] for entry in entries] == ["user", "ai-title", "assistant"]
            assert entries[0]["message"]["content"] == "Hello"
            assert entries[2]["parentUuid"] == entries[0]["uuid"]
            assert await setup.load({**key, "project_key": "-other"}) is None
            await hub.editor.create(LOCAL, cwd=str(tmp_path))  # without messages
            (listed,) = await setup.store.list_sessions(project)
            assert listed["session_id"] == session.id
            (info,) = await claude.list_sessions_from_store(setup.store, str(tmp_path))
            assert info.summary == "Hello"
            prompt = user(U + "6", entries[2]["uuid"], "More", cwd=str(tmp_path))
            await setup.append(prompt, key=key)
            assert [
                session["session_id"] for session in await setup.store.list_sessions(project)
            ] == [session.id]
            assert await setup.store.list_sessions("-other") == []

    run(body)


def test_trashed_session_is_hidden_until_it_is_restored(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        await setup.hub.editor.trash(LOCAL, S)
        assert await setup.load() is None
        assert await setup.store.list_sessions("-w") == []
        await setup.append(title("Late"))  # later entries are stored
        await setup.hub.editor.restore(LOCAL, S)
        assert await setup.load() == [*conversation(), title("Late")]

    run(body)


def test_fork_has_its_own_ids_and_no_open_calls(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        await setup.append(*conversation())
        events = [event async for event in setup.hub.history.read(LOCAL, S)]
        at = next(event.seq for event in events if isinstance(event.body, ToolCall))
        fork = await setup.hub.editor.fork(LOCAL, S, at=at)
        project = claude.project_key_for_directory("/w")
        loaded = await setup.load({"project_key": project, "session_id": fork.id})
        own = {"sessionId": fork.id}
        prompt, answer = (loaded[1]["uuid"], loaded[2]["uuid"])
        assert not {prompt, answer} & {U + "1", U + "2"}
        assert loaded[:3] == [
            {**conversation()[0], **own},
            {**conversation()[1], **own, "uuid": prompt},
            {**conversation()[2], **own, "uuid": answer, "parentUuid": prompt},
        ]
        (block,) = loaded[3]["message"]["content"]
        assert (block["tool_use_id"], block["is_error"]) == ("t1", True)
        assert loaded[3]["parentUuid"] == loaded[3]["sourceToolAssistantUUID"] == answer

    run(body)


@BOTH
def test_forks_of_forks_have_new_ids_and_the_whole_conversation(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        cut = boundary(U + "5", U + "6", [U + "4"])
        summary = user(U + "6", U + "5", "So far: light.", isCompactSummary=True)
        await setup.append(*conversation(), cut, summary)
        contents = ["So far: light.", [{"type": "text", "text": "Rayleigh."}]]
        seen, id = set[str](), S
        for number in range(7, 10):
            key: SessionKey = {"project_key": "-w", "session_id": id}
            messages = await claude.get_session_messages_from_store(setup.store, id, "/w")
            assert [message.message["content"] for message in messages] == contents
            entries = [entry for entry in await setup.load(key) if "uuid" in entry]
            await setup.append(*entries, key=key)  # all of them are stored already
            assert [entry for entry in await setup.load(key) if "uuid" in entry] == entries
            ids = {entry["uuid"] for entry in entries}
            assert len(ids) == number - 1 and not ids & seen
            await setup.append(user(U + str(number), messages[-1].uuid, "More", cwd="/w"), key=key)
            contents.append("More")
            seen |= {*ids, U + str(number)}
            id = (await setup.hub.editor.fork(LOCAL, id)).id

    run(body)


def test_sidechain_session_is_not_listed(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        key: SessionKey = {"project_key": "-w", "session_id": "agent-1"}
        await setup.append(user("x", None, isSidechain=True), key=key)
        assert (await setup.hub.sessions.list(LOCAL)).sessions == []
        assert await claude.list_sessions_from_store(setup.store, "/w") == []
        assert len(await setup.load(key)) == 1

    run(body)


def test_compaction_becomes_an_event(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
        summary = user("c1", "b1", "So far: light.", isCompactSummary=True)
        await setup.append(*conversation(), boundary("b1"), summary)
        types = [event.type async for event in setup.hub.history.read(LOCAL, S)]
        assert "compacted" in types
        assert (await setup.load())[-1] == summary

    run(body)


@BOTH
def test_store_returns_entries_of_any_shape(run: Run) -> None:
    async def body(setup: StoreSetup) -> None:
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
        await setup.append(*odd)
        assert await setup.load() == odd

    run(body)


def test_store_imports_and_exports_sessions_of_files(run: Run, home: Home, tmp_path: Path) -> None:
    async def body(setup: StoreSetup) -> None:
        path = home.write(conversation())
        assert await setup.store.import_session(S) == len(conversation())
        assert await setup.store.import_session(str(path)) == 0
        assert await setup.load() == conversation()
        with pytest.raises(errors.Conflict):
            await setup.store.export_session(S)
        before = path.read_bytes()
        path.unlink()
        assert await setup.store.export_session(S) == str(path)
        assert path.read_bytes() == before

    run(body)


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_concurrent_creation_gives_one_session(
    run: Run, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    async def body(setup: StoreSetup) -> None:
        get, seen = setup.database.get, list[str]()

        async def late(workspace: str, id: str) -> Any:
            session = await get(workspace, id)
            seen.append(id)
            if len(seen) == looks:
                await SegueSessionStore(store=setup.database).append(KEY, [user("theirs", None)])
            return session

        monkeypatch.setattr(setup.database, "get", late)
        await setup.append(user("ours", None))
        assert len(seen) > looks
        assert [entry["uuid"] for entry in await setup.load()] == ["theirs", "ours"]
        assert len((await setup.hub.sessions.list(LOCAL)).sessions) == 1

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
    async def body(setup: StoreSetup) -> None:
        where = [str(tmp_path), setup.url or "", S]
        children = [
            subprocess.Popen([sys.executable, "-c", APPENDER, *where, str(name)])
            for name in range(3)
        ]
        assert [child.wait(60) for child in children] == [0, 0, 0]
        uuids = [entry["uuid"] for entry in await setup.load()]
        names = ("both", "0", "1", "2")
        assert sorted(uuids) == sorted(f"{name}-{n}" for name in names for n in range(20))
        for name in ("0", "1", "2"):
            own_uuids = [uuid for uuid in uuids if uuid.startswith(f"{name}-")]
            assert own_uuids == [f"{name}-{n}" for n in range(20)]
        (listed,) = await setup.store.list_sessions("-w")
        assert listed["session_id"] == S

    run(body)

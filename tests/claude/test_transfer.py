"""Importing Claude Code's sessions into the store, and writing sessions out as transcripts."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import segue as segue_python
from segue import LOCAL, Hub, Principal, Query, claude, errors
from segue.agents.permission import verdict
from segue.interfaces.cli.main import segue
from segue.model.content import plain_text
from segue.model.event import AgentMessage, UserMessage
from segue.sources.claude.exchange import event_codec
from segue.store.memory import MemoryStore
from tests.claude.entries import (
    S2,
    VERSIONS,
    Home,
    S,
    as_line,
    assistant,
    call,
    result,
    title,
    user,
)
from tests.claude.helpers import Within, claude_hub, list_transcripts, text


def contents(home: Path) -> dict[str, bytes]:
    """Return the transcripts of a home by their paths in it."""
    paths = sorted((home / "projects").rglob("*.jsonl"))
    return {str(path.relative_to(home)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("version", VERSIONS)
def test_import_and_export_of_a_home_keep_every_byte(
    homes: Path, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Import every session into a store, and export it with its subagents into an empty home."""
    paths = [path for path in list_transcripts(homes / version) if holds_session(path)]
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))

    async def through() -> None:
        store = MemoryStore()
        hub = Hub(store, tmp_path)
        for path in paths:
            session, count = await hub.sync.import_session(LOCAL, str(path), "claude")
            assert count > 0
            again = await hub.sync.import_session(LOCAL, str(path), "claude")
            assert again == (session, 0)
            await hub.sync.write(LOCAL, session.id, "claude")

    asyncio.run(through())
    exported, originals = contents(tmp_path), contents(homes / version)
    for path in paths:
        relative_path = str(path.relative_to(homes / version))
        assert exported[relative_path].splitlines() == [
            line for line in originals[relative_path].splitlines() if line
        ]
    agents = {relative_path for relative_path in originals if "/subagents/" in relative_path}
    assert {relative_path: exported.get(relative_path) for relative_path in agents} == {
        p: originals[p] for p in agents
    }


def holds_session(path: Path) -> bool:
    """Return whether a file is the transcript of a session: not empty, and not of a subagent."""
    return not path.name.startswith("agent-") and path.stat().st_size > 0


def test_import_and_export_keep_damaged_lines(home: Home, within: Within) -> None:
    odd = [
        b'{"type":"user","uuid":"u1","message":{"content":"a\xffb"}}',
        b"\0" * 9 + b'{"type":"user","uuid":"u2","parentUuid":"u1","message":{"content":"x"}}',
        b'{"type":"user","mess',
        b'{"type":"tag","tag":"a","sessionId":"s"}{"type":"tag","tag":"b","sessionId":"s"}',
        b'{ "type": "mode",  "mode": "plan" }',
        b'{"type":"x","n":1e-07,"text":"\\u00e9"}',
        b'{"type":"user","uuid":"u1","message":{"content":"the same id again"}}',
    ]
    path = home.write(odd)
    within(lambda hub: hub.sync.import_session(LOCAL, str(path), "claude"))
    path.unlink()
    written = within(lambda hub: hub.sync.write(LOCAL, S, "claude")).path
    assert Path(written).read_bytes().split(b"\n") == [*odd, b""]


def test_second_import_adds_only_new_lines(home: Home, within: Within) -> None:
    lines = [user("u1", None, "hi", cwd="/w"), assistant("a1", "u1"), title("One"), title("One")]
    home.write(lines)
    session, count = within(lambda hub: hub.sync.import_session(LOCAL, S, "claude"))
    assert (session.id, session.cwd, session.title, count) == (S, "/w", "One", 4)
    assert within(lambda hub: hub.sync.import_session(LOCAL, S, "claude"))[1] == 0
    home.write([*lines, title("Two"), user("u2", "a1", "more")])
    session, count = within(lambda hub: hub.sync.import_session(LOCAL, S, "claude"))
    assert (session.title, session.messages, count) == ("Two", 3, 2)

    async def matching_ids(hub: Hub) -> list[str]:
        return [
            match.session.id
            for match in (await hub.sessions.search(LOCAL, Query(text="more"))).matches
        ]

    assert within(matching_ids) == [S]


@pytest.mark.parametrize("by_prompt", [False, True])
async def test_configured_agent_answers_in_an_imported_copy(home: Home, by_prompt: bool) -> None:
    home.write_conversation(cwd=str(home.root))
    async with claude_hub(home) as (hub, _):
        [listed] = (await hub.sessions.list(LOCAL, Query())).sessions
        assert listed.agent is not None
        if not by_prompt:
            await hub.sync.import_session(LOCAL, S, "claude")
            await hub.config.set("local", "claude.continue", "true")  # applies to the original only
        await hub.turns.run(LOCAL, S, "/say from here")
        [copy] = (await hub.sessions.list(LOCAL, Query(agent_id=listed.agent.id))).sessions
        assert (copy.owner, copy.messages) == ("segue", listed.messages + 2)
        names = await hub.records.agent_names("local", [listed.agent.id])
        assert names == {listed.agent.id: "Claude Code"}
        replies = [
            event async for event in hub.history.read(LOCAL, S) if event.type == "agent_message"
        ]
        assert isinstance(replies[-1].body, AgentMessage)
        assert plain_text(replies[-1].body.content) == "from here"


async def test_copy_counts_the_same_turns_as_the_original(home: Home) -> None:
    printed = "<local-command-stdout>nothing</local-command-stdout>"
    home.write(
        [
            user("u1", None, "hi", cwd=str(home.root)),
            assistant("a1", "u1", call("toolu_1")),
            user("u2", "a1", result("toolu_1")),
            assistant("a2", "u2"),
            user("u3", "a2", printed),
            user("u4", "u3", "more"),
            assistant("a4", "u4"),
        ]
    )
    async with claude_hub(home) as (hub, _):
        [listed] = (await hub.sessions.list(LOCAL, Query())).sessions
        copy, _ = await hub.sync.import_session(LOCAL, S, "claude")
        assert listed.turns == copy.turns == 2
        await hub.turns.run(LOCAL, S, "/say from here")
        assert (await hub.sessions.get(LOCAL, S)).turns == 3


def test_messages_of_segue_stay_in_the_conversation_after_a_pull(
    home: Home, within: Within, tmp_path: Path
) -> None:
    entries = [user("u1", None, "one", cwd="/w"), assistant("a1", "u1", "two")]
    path = home.write(entries)
    bodies = [UserMessage(content=text("three")), AgentMessage(content=text("four"))]

    async def work(hub: Hub) -> list[Any]:
        await hub.sync.import_session(LOCAL, S, "claude")
        await hub.editor.append(LOCAL, S, *bodies[:1])
        await hub.editor.set_title(LOCAL, S, "Named")
        await hub.editor.append(LOCAL, S, *bodies[1:])
        home.write([*entries, user("u2", "a1", "five")])
        assert (await hub.sync.import_session(LOCAL, S, "claude"))[1] == 1
        return await segue_python.get_session_messages(S, store=hub)

    def texts(messages: list[Any]) -> list[str]:
        parts = [message.message["content"] for message in messages]
        return [part if isinstance(part, str) else part[0]["text"] for part in parts]

    conversation = ["one", "two", "three", "four", "five"]
    assert texts(within(work)) == conversation
    path.unlink()
    within(lambda hub: hub.sync.write(LOCAL, S, "claude"))
    assert texts(claude.get_session_messages(S)) == conversation
    assert within(lambda hub: hub.sync.import_session(LOCAL, S, "claude"))[1] == 0


def test_mirrored_lines_are_not_imported_again(home: Home, within: Within) -> None:
    lines = [user("u1", None), {"type": "mode", "mode": "plan"}, assistant("a1", "u1")]

    async def work(hub: Hub) -> int:
        store = claude.SegueSessionStore(store=hub.store)
        await store.append({"project_key": "-w", "session_id": S}, lines[:2])
        _, count = await hub.sync.import_session(LOCAL, S, "claude")
        return count

    home.write(lines)
    assert within(work) == 1


def test_concurrent_imports_copy_each_line_once(home: Home, within: Within) -> None:
    lines = [user("u1", None), *(title(f"Title {n}") for n in range(5)), assistant("a1", "u1")]
    home.write(lines[:3])

    async def work(hub: Hub) -> Any:
        await hub.sync.import_session(LOCAL, S, "claude")
        home.write(lines)
        took = await asyncio.gather(
            *(hub.sync.import_session(LOCAL, S, "claude") for _ in range(5))
        )
        assert sorted(count for _, count in took) == [0, 0, 0, 0, 4]
        return [line async for line in hub.sync.transcript(LOCAL, S, "claude")]

    assert [json.loads(line) for line in within(work)] == lines


def test_transcript_outside_the_home_is_imported_by_its_content(
    home: Home, within: Within, tmp_path: Path
) -> None:
    path = home.write_conversation(cwd="/some/where")
    copy = tmp_path / "mailed.jsonl"
    shutil.move(path, copy)
    session, _ = within(lambda hub: hub.sync.import_session(LOCAL, str(copy), "claude"))
    assert (session.id, session.cwd) == (S, "/some/where")
    written = within(lambda hub: hub.sync.write(LOCAL, S, "claude")).path
    assert Path(written).parent.name == "-some-where"


def test_imported_session_is_listed_once(home: Home, within: Within) -> None:
    home.write_conversation(cwd="/w")

    async def listed(hub: Hub) -> list[Any]:
        rows = (await hub.sessions.list(LOCAL)).sessions
        return [(session.id, session.owner, session.source) for session in rows]

    assert within(listed) == [(S, "claude", "claude")]
    with pytest.raises(errors.Conflict, match="already"):
        within(lambda hub: hub.sync.write(LOCAL, S, "claude"))
    within(lambda hub: hub.sync.import_session(LOCAL, S, "claude"))
    assert within(listed) == [(S, "segue", "claude")]


def test_import_of_an_exported_session_belongs_to_the_store(home: Home, within: Within) -> None:
    home.write_conversation(cwd="/w")

    async def through(hub: Hub) -> str:
        lines = [line async for line in hub.exchange.export(LOCAL, S)]
        return (await hub.exchange.import_session(LOCAL, lines)).owner

    assert within(through) == "segue"


def test_fork_into_the_store_is_exported_as_its_own_session(home: Home, within: Within) -> None:
    extra = {"type": "attachment", "attachment": {"type": "x"}, "uuid": "t1", "parentUuid": "u1"}
    home.write([user("u1", None, "hi", cwd="/w"), extra, assistant("a1", "t1"), user("u2", "a1")])

    async def work(hub: Hub) -> str:
        fork = await hub.editor.fork(LOCAL, S, in_store=True)
        await hub.sync.write(LOCAL, fork.id, "claude")
        return fork.id

    fork = within(work)
    assert [message.message["content"] for message in claude.get_session_messages(fork)] == [
        message.message["content"] for message in claude.get_session_messages(S)
    ]


def test_only_the_local_user_may_import_and_export_files(home: Home, within: Within) -> None:
    home.write_conversation()
    with pytest.raises(errors.Unauthorized):
        within(lambda hub: hub.sync.import_session(Principal(workspace="local"), S, "claude"))
    with pytest.raises(errors.Unauthorized):
        within(lambda hub: hub.sync.write(Principal(workspace="local"), S, "claude"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "nor a Claude Code transcript"),
        (b"hello\n", "nor a Claude Code transcript"),
        (b'{"type":"user","uuid":"u"}\n', "contain a session id"),
        (b'{"a":1}\n', "nor a Claude Code transcript"),
    ],
)
def test_import_rejects_a_file_that_is_not_a_transcript(
    tmp_path: Path, within: Within, content: bytes, why: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(errors.InvalidInput, match=why):
        within(lambda hub: hub.sync.import_session(LOCAL, str(tmp_path / "file"), "claude"))


@pytest.mark.parametrize("named", [S, "nothing", "/", "\0"])
def test_import_of_an_unknown_session_raises_not_found(
    home: Home, within: Within, named: str
) -> None:
    with pytest.raises(errors.NotFound):
        within(lambda hub: hub.sync.import_session(LOCAL, named, "claude"))


def test_export_does_not_overwrite_a_transcript(home: Home, within: Within) -> None:
    path = home.write_conversation()
    before = path.read_bytes()
    within(lambda hub: hub.sync.import_session(LOCAL, S, "claude"))
    with pytest.raises(errors.Conflict, match="already"):
        within(lambda hub: hub.sync.write(LOCAL, S, "claude"))
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_interrupted_export_can_be_repeated(home: Home, within: Within) -> None:
    path = home.write_conversation()
    agent = path.with_suffix("") / "subagents" / "agent-1.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(as_line(user("x", None)))
    agent.with_suffix(".meta.json").write_text('{"agentType":"x"}')
    within(lambda hub: hub.sync.import_session(LOCAL, S, "claude"))
    path.unlink()  # an export writes it last
    assert within(lambda hub: hub.sync.write(LOCAL, S, "claude")).path == str(path)
    path.unlink()
    agent.write_bytes(as_line(user("another", None)))
    with pytest.raises(errors.Conflict, match="another file exists already"):
        within(lambda hub: hub.sync.write(LOCAL, S, "claude"))
    assert not path.exists()
    assert b"another" in agent.read_bytes()


def test_export_ignores_subagent_paths_outside_the_session(home: Home, within: Within) -> None:
    async def work(hub: Hub) -> str:
        store = claude.SegueSessionStore(store=hub.store)
        await store.append({"project_key": "-w", "session_id": S}, [user("u1", None)])
        for subpath in ("../../evil", "/evil", "subagents/agent-1", "a/./b", ""):
            key = {"project_key": "-w", "session_id": S, "subpath": subpath}
            await store.append(key, [user("x", None)])
        return (await hub.sync.write(LOCAL, S, "claude")).path

    written = Path(within(work))
    below = sorted(str(path.relative_to(home.projects)) for path in home.root.rglob("*.jsonl"))
    assert below == [f"-w/{S}.jsonl", f"-w/{S}/subagents/agent-1.jsonl"]
    assert written.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("field", ["project", "session"])
@pytest.mark.parametrize("name", ["../evil", "..", "a/b", "nul\0", 7])
def test_export_rejects_names_that_lead_outside_the_home(
    home: Home, within: Within, field: str, name: Any
) -> None:
    """An imported file may contain such names."""

    async def work(hub: Hub) -> str:
        extra = {"claude": {"project": "-w", "session": S, field: name}}
        session = await hub.editor.create(LOCAL, cwd="/w", extra=extra)
        await hub.editor.append(LOCAL, session.id, UserMessage(content=text("hello")))
        return (await hub.sync.write(LOCAL, session.id, "claude")).path

    with pytest.raises(errors.InvalidInput, match="cannot be used as a file name"):
        within(work)
    assert list(home.root.parent.rglob("*.jsonl")) == []


def command(tmp_path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(segue, [*arguments, "--data-dir", str(tmp_path / "data")])


def test_export_command_copies_an_original_transcript(home: Home, tmp_path: Path) -> None:
    path, out = home.write_conversation(cwd="/w"), tmp_path / "out.jsonl"
    out.write_text("what was there")
    assert isinstance(
        command(tmp_path, "export", S2, "--format", "claude", "-o", str(out)).exception,
        errors.NotFound,
    )
    assert out.read_text() == "what was there"
    copied = command(tmp_path, "export", S, "--format", "claude", "-o", str(out))
    assert (copied.exit_code, out.read_bytes()) == (0, path.read_bytes())
    assert sorted(each.name for each in tmp_path.glob("out*")) == ["out.jsonl"]
    shown = command(tmp_path, "export", S, "--format", "claude", "-o", "-")
    assert shown.stdout_bytes == path.read_bytes()
    lost = command(tmp_path, "export", S, "-o", str(tmp_path / "gone" / "out.jsonl"))
    assert isinstance(lost.exception, OSError)
    assert lost.exception.filename == str(tmp_path / "gone" / "out.jsonl")
    os.truncate(path, 5)  # without a session the export fails and keeps the file
    command(tmp_path, "export", S, "--format", "claude", "-o", str(out))
    assert len(out.read_bytes()) > 5


def test_commands_import_and_export_a_session(home: Home, tmp_path: Path) -> None:
    path = home.write_conversation(cwd="/w")
    imported = command(tmp_path, "import", S)
    assert (imported.exit_code, imported.stdout, imported.stderr) == (0, f"{S}\n", "2 new lines.\n")
    for named in (str(path), S[:8], "hi"):
        again = command(tmp_path, "import", named)
        assert (again.stdout, again.stderr) == (f"{S}\n", "No new lines.\n")
    assert isinstance(command(tmp_path, "import", "gone.jsonl").exception, errors.NotFound)
    before = path.read_bytes()
    out = tmp_path / "out.jsonl"
    command(tmp_path, "export", S, "--format", "claude", "-o", str(out))
    assert out.read_bytes() == before
    os.unlink(path)
    written = command(tmp_path, "export", S, "--format", "claude")
    assert written.stdout == f"{path}\n"
    assert f"claude --resume {S}" in written.stderr
    assert path.read_bytes() == before
    again = command(tmp_path, "export", S, "--format", "claude")
    assert isinstance(again.exception, errors.Conflict)
    assert "-o FILE" in str(again.exception)


async def test_import_reads_a_transcript_in_a_thread(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is also read there to find what a fork inherited."""
    home.write_conversation()
    forked = claude.fork_session(S).session_id
    readers: list[threading.Thread] = []
    created = event_codec.creation_drafts

    def creation_drafts(*args: Any) -> Any:
        readers.append(threading.current_thread())
        return created(*args)

    monkeypatch.setattr(event_codec, "creation_drafts", creation_drafts)
    async with claude_hub(home) as (hub, _):
        await hub.sync.import_session(LOCAL, forked, "claude")
    assert readers and threading.current_thread() not in readers


async def test_imported_fork_counts_only_its_own_usage(home: Home) -> None:
    def answer(uuid: str, parent: str, id: str) -> dict[str, Any]:
        entry = assistant(uuid, parent, id=id)
        entry["message"] |= {"model": "m", "usage": {"input_tokens": 5}}
        return entry

    home.write([user("u1", None, "one"), answer("a1", "u1", "r1")])
    forked = claude.fork_session(S).session_id
    path = home.projects / "-w" / f"{forked}.jsonl"
    before = path.read_bytes() + as_line(answer("a2", "a1", "r2"))
    path.write_bytes(before)
    async with claude_hub(home) as (hub, _):
        read = await hub.sessions.get(LOCAL, forked)
        session, _ = await hub.sync.import_session(LOCAL, forked, "claude")
        assert session.fork is not None and session.fork.session == S
        assert session.usage.input_tokens == read.usage.input_tokens == 5
        assert session.messages == read.messages == 3 and session.days == read.days
        assert (
            b"".join([line async for line in hub.sync.transcript(LOCAL, forked, "claude")])
            == before
        )


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
async def test_permission_mode_of_a_transcript_is_not_imported(home: Home, mode: str) -> None:
    modes = {"mode": mode, "permissionMode": mode, "sessionId": S}
    lines = [user("u1", None, "hi", **modes), {"type": "mode", **modes}]
    path = home.write([*lines, {"type": "permission-mode", **modes}])
    async with claude_hub(home) as (hub, _):
        assert (await hub.sessions.get(LOCAL, S)).mode is None
        assert (await hub.editor.fork(LOCAL, S, in_store=True)).mode is None
        session, _ = await hub.sync.import_session(LOCAL, S, "claude")
        for kind in ("execute", "edit"):
            assert verdict(session, "any", kind, "auto") == "ask"
        copied = b"".join([line async for line in hub.sync.transcript(LOCAL, S, "claude")])
        assert copied == path.read_bytes()  # the transcript is unchanged

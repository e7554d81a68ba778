"""Continue sessions in other tools: the new session, its link to the original, and refusals."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import segue
from segue.hub import Hub
from segue.model import clock
from segue.model.content import as_content, plain_text
from segue.model.errors import InvalidInput, NoAgent, NotFound
from segue.model.event import AgentMessage, Event, ToolCall, ToolResult, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.sources import registry
from tests.sources.writing.tool_sessions import (
    as_events,
    convert_for,
    rich_session,
    use_homes,
    writer_of,
)

TARGETS = ["claude", "codex", "copilot", "gemini", "qwen", "kimi"]
MODEL = "anthropic:claude-sonnet-4-6"


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every tool an empty home."""
    use_homes(monkeypatch, tmp_path)


@asynccontextmanager
async def open_hub(directory: Path) -> AsyncIterator[Hub]:
    """Open a hub over Claude Code's and Codex's sessions."""
    sources = ",".join(TARGETS)
    async with await segue.open_hub(directory / "store", sources=sources, lasting=True) as hub:
        yield hub


async def session_of(hub: Hub, tool: str, cwd: Path) -> Session:
    """Write a session of a tool, and return it as the hub lists it."""
    names = registry.get("claude").tool_names()
    writer = writer_of(tool)
    conversation = convert_for(tool, as_events(rich_session(str(cwd))), names, str(cwd))[0]
    native_id = writer.write(writer.prepare(conversation))
    return await hub.sessions.get(LOCAL, registry.get(tool).transcripts().read(native_id).id)


async def conversation(hub: Hub, id: str) -> list[Event]:
    """Return the messages, calls and results of a session."""
    kinds = UserMessage | AgentMessage | ToolCall | ToolResult
    events = [event async for event in hub.history.conversation(LOCAL, id)]
    return [event for event in events if isinstance(event.body, kinds)]


def texts(events: list[Event]) -> list[str]:
    return [
        plain_text(event.body.content)
        for event in events
        if isinstance(event.body, UserMessage | AgentMessage)
    ]


SHELLS = {
    "claude": "Bash",
    "codex": "exec_command",
    "copilot": "bash",
    "gemini": "run_shell_command",
    "qwen": "run_shell_command",
    "kimi": "Bash",
}


def native_id(session: Session) -> str:
    return session.native_id or session.id


@pytest.mark.parametrize(
    ("source", "target"), list(zip(TARGETS, [*TARGETS[1:], *TARGETS[:1]], strict=True))
)
async def test_session_continues_in_another_tool_as_a_fork_of_the_original(
    tmp_path: Path, source: str, target: str
) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, source, tmp_path)
        before = await conversation(hub, original.id)
        began = clock.now()
        new, report, command = await hub.continuing.continue_in(LOCAL, original.id, target)
        assert (new.source, new.cwd, new.title) == (target, str(tmp_path), "A session")
        assert command is not None and command.arguments[-1].endswith(native_id(new))
        events = await conversation(hub, new.id)
        said = texts(events)
        if any((loss.what, loss.becomes) == ("thoughts", "text") for loss in report.losses):
            said = [text for text in said if not text.startswith("<thinking>")]
        assert said == texts(before)
        calls = [event.body for event in events if isinstance(event.body, ToolCall)]
        results = [event.body.call_id for event in events if isinstance(event.body, ToolResult)]
        assert [call.call_id for call in calls] == results and len(calls) == report.tool_calls == 9
        assert [call.name for call in calls].count(SHELLS[target]) == 3
        # The original is as it was, and both lists name it as the parent.
        bodies = [event.body for event in await conversation(hub, original.id)]
        assert bodies == [event.body for event in before]
        listed = {row.id: row for row in (await hub.sessions.list(LOCAL, Query())).sessions}
        link = listed[new.id].fork
        assert link is not None and link.session == original.id
        assert link.seq == listed[new.id].last_seq
        # The copy is as old as the copying, and so the first of the list.
        assert min(new.created_at, new.active_at) >= began
        assert [row.id for row in listed.values()] == [new.id, original.id]
        assert listed[new.id].active_at >= began
        imported = (await hub.sync.import_session(LOCAL, native_id(new), target)).session
        assert imported.fork is not None and imported.fork.session == original.id
        assert 1 < imported.fork.seq <= imported.last_seq
        assert imported.active_at >= began


@pytest.mark.parametrize("tool", TARGETS)
async def test_continuing_in_the_same_tool_forks_the_session_without_loss(
    tmp_path: Path, tool: str
) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, tool, tmp_path)
        began = clock.now()
        new, report, _ = await hub.continuing.continue_in(LOCAL, original.id, tool)
        assert (await hub.sessions.get(LOCAL, new.id)).active_at >= began
        assert new.source == tool and new.id != original.id and report.losses == ()
        assert texts(await conversation(hub, new.id)) == texts(await conversation(hub, original.id))


async def test_two_continuations_at_once_make_two_sessions(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, "claude", tmp_path)
        expected = texts(await conversation(hub, original.id))
        first, second = await asyncio.gather(
            hub.continuing.continue_in(LOCAL, original.id, "codex"),
            hub.continuing.continue_in(LOCAL, original.id, "codex"),
        )
        assert first.session.id != second.session.id
        for new in (first.session, second.session):
            assert texts(await conversation(hub, new.id)) == expected


async def test_report_names_losses_and_writes_nothing(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, "claude", tmp_path)
        report = await hub.continuing.report(LOCAL, original.id, "codex")
        assert {loss.what for loss in report.losses} >= {"marks of failed calls"}
        assert (report.prompts, report.tool_calls, report.images) == (3, 9, 2)
        assert not os.path.exists(registry.get("codex").home())


async def test_original_is_in_the_store_before_gemini_can_delete_it(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, "gemini", tmp_path)
        before = texts(await conversation(hub, original.id))
        new, _, _ = await hub.continuing.continue_in(LOCAL, original.id, "gemini")
        assert new.id != original.id
        for path in Path(registry.get("gemini").home()).rglob("session-*.jsonl"):
            path.unlink()  # as version 0.61 does when it starts again
        assert texts(await conversation(hub, original.id)) == before
        # A tool that deletes nothing needs no copy.
        other = await session_of(hub, "codex", tmp_path)
        await hub.continuing.continue_in(LOCAL, other.id, "qwen")
        for path in Path(registry.get("codex").home()).rglob("rollout-*.jsonl"):
            path.unlink()
        with pytest.raises(NotFound):
            await conversation(hub, other.id)


async def test_two_sessions_of_one_minute_are_two_for_gemini(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, "codex", tmp_path)
        ids = [
            (await hub.continuing.continue_in(LOCAL, original.id, "gemini")).session.id
            for _ in range(2)
        ]
        assert len({id[:8] for id in ids}) == 2


async def test_session_of_the_store_continues_in_a_tool(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        created = await hub.editor.create(LOCAL, cwd=str(tmp_path), title="Own")
        calls = ToolCall(call_id="c", name="bash", input={"command": "ls"})
        await hub.editor.append(
            LOCAL, created.id, *rich_session(str(tmp_path))[:1], calls, ToolResult(call_id="c")
        )
        new, _, _ = await hub.continuing.continue_in(LOCAL, created.id, "codex")
        (call,) = [e.body for e in await conversation(hub, new.id) if isinstance(e.body, ToolCall)]
        assert (call.name, call.input) == ("exec_command", {"cmd": "ls"})
        assert new.fork is not None and new.fork.session == created.id


async def test_unknown_target_or_model_for_a_tool_is_refused(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        created = await hub.editor.create(LOCAL, cwd=str(tmp_path))
        with pytest.raises(
            InvalidInput, match="cannot continue in 'nothing'; the tools are claude"
        ):
            await hub.continuing.continue_in(LOCAL, created.id, "nothing")
        with pytest.raises(InvalidInput, match="a model can be chosen for segue only"):
            await hub.continuing.continue_in(LOCAL, created.id, "codex", model="openai:gpt-5")


async def test_segue_continues_a_session_with_a_model_and_never_with_the_demo_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, "claude", tmp_path)
        with pytest.raises(NoAgent, match="no model is configured"):
            await hub.continuing.continue_in(LOCAL, original.id, "segue")
        new, report, command = await hub.continuing.continue_in(
            LOCAL, original.id, "segue", model=MODEL
        )
        assert command is None and new.source == "segue" and report.tool_calls == 9
        assert new.fork is not None and new.fork.session == original.id
        assert new.agent is not None and new.agent.overrides == {"model": MODEL}


@pytest.mark.parametrize("tool", TARGETS)
async def test_demo_agent_does_not_answer_in_a_session_of_a_tool(tmp_path: Path, tool: str) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, tool, tmp_path)
        label = registry.label(tool)
        with pytest.raises(NoAgent, match=f"session of {label}, .*no model is configured"):
            await hub.turns.submit(LOCAL, original.id, "hello")
        assert await hub.sessions.owner(LOCAL, original.id) == tool
        imported = (await hub.sync.import_session(LOCAL, native_id(original), tool)).session
        with pytest.raises(NoAgent, match=f"session of {label}, .*no model is configured"):
            await hub.turns.submit(LOCAL, original.id, "hello")
        # The import changes nothing: the tool still resumes it.
        assert await hub.sync.resuming_tool(LOCAL, imported) == tool


@pytest.mark.parametrize("tool", TARGETS)
async def test_demo_agent_does_not_answer_in_a_fork_of_a_session_of_a_tool(
    tmp_path: Path, tool: str
) -> None:
    async with open_hub(tmp_path) as hub:
        original = await session_of(hub, tool, tmp_path)
        fork = await hub.editor.fork(LOCAL, original.id, in_store=True)
        assert await hub.sessions.owner(LOCAL, fork.id) is None
        label = registry.label(tool)
        with pytest.raises(NoAgent, match=f"session of {label}, .*no model is configured"):
            await hub.turns.submit(LOCAL, fork.id, "hello")


async def test_agent_of_a_tool_is_known_after_the_first_continuation_in_it(tmp_path: Path) -> None:
    async with await segue.open_hub(tmp_path / "store", sources="claude") as hub:
        original = await hub.editor.create(LOCAL, cwd=str(tmp_path))
        await hub.editor.append(LOCAL, original.id, *rich_session(str(tmp_path))[:1])
        assert hub.records.author(LOCAL.workspace, "codex") is None
        new, _, _ = await hub.continuing.continue_in(LOCAL, original.id, "codex")
        author = hub.records.author(LOCAL.workspace, "codex")
        assert author is not None
        record = await hub.records.get(LOCAL.workspace, "agent", author.id)
        assert record.body["name"] == "Codex"
        imported = (await hub.sync.import_session(LOCAL, new.id, "codex")).session
        assert imported.agent == author


async def test_copy_of_a_session_is_kept_unless_the_store_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(tmp_path) as hub:
        first = await session_of(hub, "gemini", tmp_path)
        second = await session_of(hub, "gemini", tmp_path)
        assert await hub.continuing.keep_copy(LOCAL, first)
        assert await hub.sessions.owner(LOCAL, first.id) is None
        monkeypatch.setattr(os, "access", lambda file, mode: mode != os.W_OK)
        assert not await hub.continuing.keep_copy(LOCAL, second)
        assert await hub.sessions.owner(LOCAL, second.id) == "gemini"


CRASH = """
import os, signal, sys
from pathlib import Path
from segue.sources.writing import staging
from tests.sources.writing.tool_sessions import as_events, convert_for, rich_session, writer_of
from segue.sources import registry

tool, cwd, moment = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if moment == "before the rename":
    staging._rename_to_new = die
else:
    os.fsync = die
writer = writer_of(tool)
names = registry.get("claude").tool_names()
writer.write(writer.prepare(convert_for(tool, as_events(rich_session(cwd)), names, cwd)[0]))
"""


@pytest.mark.parametrize("moment", ["before the rename", "before the sync"])
@pytest.mark.parametrize("tool", TARGETS)
async def test_killed_writer_leaves_no_half_session(tmp_path: Path, tool: str, moment: str) -> None:
    async with open_hub(tmp_path) as hub:
        root = Path(__file__).parents[2]
        command = [sys.executable, "-c", textwrap.dedent(CRASH), tool, str(tmp_path), moment]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
        process = await asyncio.to_thread(subprocess.run, command, env=environment, cwd=root)
        assert process.returncode == -signal.SIGKILL
        assert (await hub.sessions.list(LOCAL, Query())).sessions == []
        # What was staged is where no tool looks for sessions.
        files = [path for path in tmp_path.rglob("*.jsonl") if ".part/" not in str(path)]
        assert [path.name for path in files] in ([], ["session_index.jsonl"])


async def test_another_tool_gets_masks_instead_of_secrets_on_request(tmp_path: Path) -> None:
    key = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    async with open_hub(tmp_path) as hub:
        original = await hub.editor.create(LOCAL, cwd=str(tmp_path))
        for body in (
            UserMessage(content=as_content(f"use {key}")),
            AgentMessage(content=as_content("done")),
        ):
            await hub.editor.append(LOCAL, original.id, body)
        for mask in (False, True):
            new, _, _ = await hub.continuing.continue_in(LOCAL, original.id, "codex", mask=mask)
            said = texts(await conversation(hub, new.id))
            assert (key in said[0]) is not mask
        with pytest.raises(InvalidInput, match="redact"):
            await hub.continuing.continue_in(LOCAL, original.id, "segue", mask=True)

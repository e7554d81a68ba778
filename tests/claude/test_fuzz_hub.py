"""Damaged transcripts in the hub: each operation works or raises an error, and hides no session.

A transcript has every kind of line. Values are replaced by values of other types, and lines and
bytes are damaged as crashes, editors and other programs do it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import tempfile
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.hub import Hub
from segue.model.errors import SegueError
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.format.jsonl import BLANK_BYTES
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.sqlite import SQLiteStore
from tests.claude.entries import (
    Home,
    S,
    assistant,
    attachment,
    boundary,
    system,
    title,
    user,
)
from tests.claude.helpers import write_session_with_subagent
from tests.claude.test_hostile import GOOD

ODD: list[Any] = [None, True, 0, -1, 1 << 70, 1e308, "", "x", "\ud800", "\0", "u1", [], {}, [[]]]
ODD += [[None], {"a": {}}, [{"type": "text"}], {"type": "text", "text": 1}, [1, "x"], "x" * 70_000]
ODD += ["2026-13-45T99:99:99Z", "9999-12-31T23:59:59.999Z", "../..", "/", "a\nb", "\u2028"]


ABOUT = ("agentType", "description", "toolUseId", "parentAgentId", "type")


def kinds() -> list[dict[str, Any]]:
    """Return a session with every kind of line that a reader parses."""
    uses = {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 1}
    work = {"description": "d", "prompt": "p", "subagent_type": "Explore"}
    call = {"type": "tool_use", "id": "t1", "name": "Task", "input": work}
    edit = {"type": "tool_use", "id": "t2", "name": "Edit", "input": {"file_path": "/a"}}
    plan = {"type": "tool_use", "id": "t3", "name": "TodoWrite", "input": {}}
    plan["input"] = {"todos": [{"content": "c", "status": "pending", "activeForm": "f"}]}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA"}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    task_result = {"agentId": "a1b2c3", "status": "completed", "stdout": "out", "totalTokens": 3}
    lines = [
        {"type": "mode", "mode": "plan", "sessionId": S},
        {"type": "permission-mode", "permissionMode": "plan", "sessionId": S},
        {
            "type": "file-history-snapshot",
            "messageId": "u1",
            "snapshot": {"trackedFileBackups": {}},
        },
        user("u1", None, "hi", cwd="/w", gitBranch="main", version="2", userType="external"),
        assistant("a1", "u1", [thought, {"type": "text", "text": "word"}], "m1"),
        assistant("a2", "a1", [call, edit, plan], "m1"),
        user("u2", "a2", [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]),
        user("u3", "a2", [{"type": "tool_result", "tool_use_id": "t2", "is_error": True}, image]),
        system("s1", "u3", "api_error", level="error", content="c", error={"status": 500}),
        attachment("x1", "s1", type="queued_command", prompt="more", commandMode="prompt"),
        {"type": "queue-operation", "operation": "enqueue", "content": "q", "sessionId": S},
        boundary("b1", "c1", ["a1"], logicalParentUuid="x1"),
        user("c1", "b1", "summary", isCompactSummary=True),
        user("u4", "c1", "<command-name>/x</command-name>", isMeta=True),
        assistant("a3", "u4", [{"type": "text", "text": "end"}], "m2", isApiErrorMessage=True),
        user("f1", "a3", "forked", forkedFrom={"sessionId": GOOD, "messageUuid": "u1"}),
        {"type": "summary", "summary": "old", "leafUuid": "a3"},
        {"type": "last-prompt", "lastPrompt": "hi", "sessionId": S},
        {"type": "ai-title", "aiTitle": "made", "sessionId": S},
        {"type": "tag", "tag": "t", "sessionId": S},
        title("named"),
    ]
    lines[4]["message"] |= {"model": "m", "usage": uses}
    lines[5]["message"] |= {"model": "m", "usage": uses}
    lines[6]["toolUseResult"] = task_result
    lines[7]["toolUseResult"] = {"structuredPatch": [{"oldStart": 1, "lines": ["+a"]}]}
    return lines


def value_paths(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside a value, at any depth."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    paths = []
    for name, item in inside:
        paths.append((*above, name))
        if isinstance(item, dict | list):
            paths += value_paths(item, (*above, name))
    return paths


EVERYWHERE = value_paths(kinds())


def changed(value: Any, value_path: tuple[Any, ...], replacement: Any) -> Any:
    result = copy.deepcopy(value)
    inner = result
    for name in value_path[:-1]:
        inner = inner[name]
    inner[value_path[-1]] = replacement
    return result


def as_bytes(line: Any) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def encode_lines(lines: Sequence[Any]) -> bytes:
    return b"".join(map(as_bytes, lines))


@st.composite
def transcripts(draw: st.DrawFn) -> bytes:
    lines = kinds()
    for _ in range(draw(st.integers(0, 6))):
        value_path = draw(st.sampled_from(EVERYWHERE))
        with suppress(KeyError, IndexError, TypeError):  # the value around it was replaced
            lines = changed(lines, value_path, draw(st.sampled_from(ODD)))
    parts = [as_bytes(line) for line in lines]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(parts) - 1))
        match draw(
            st.sampled_from(["tear", "nul", "crlf", "repeat", "swap", "bom", "long", "cut"])
        ):
            case "tear":
                parts[at] = parts[at][: draw(st.integers(0, len(parts[at])))]
            case "nul":
                parts[at] = b"\0" * draw(st.integers(1, 5000)) + parts[at]
            case "crlf":
                parts = [part.replace(b"\n", b"\r\n") for part in parts]
            case "repeat":
                parts.insert(draw(st.integers(0, len(parts))), parts[at])
            case "swap":
                parts[at], parts[0] = parts[0], parts[at]
            case "bom":
                parts[0] = b"\xef\xbb\xbf" + parts[0]
            case "long":
                parts.insert(at, b'{"type":"user","x":"' + b"y" * (9 << 20) + b'"}\n')
            case "cut":
                parts = parts[: at + 1]
    return b"".join(parts)


async def result_or_none(work: Awaitable[Any]) -> Any:
    """Return the result, or None if an error of segue was raised."""
    try:
        return await work
    except SegueError:
        return None


async def check(directory: Path, datas: Sequence[bytes]) -> None:
    home = Home(directory / "claude")
    paths = {}
    for number, data in enumerate(datas):
        id = f"{number:08x}{S[8:]}"
        data = data.replace(S.encode(), id.encode())
        paths[id], agent = write_session_with_subagent(home, id=id)
        paths[id].write_bytes(data)
        if number % 2:  # the transcript and the metadata of its subagent are odd, too
            agent.write_bytes(data)
            metadata = {name: ODD[number % len(ODD)] for name in ABOUT}
            agent.with_suffix(".meta.json").write_bytes(as_bytes(metadata))
    home.write_conversation(GOOD, prompt="lighthouse")
    os.environ["CLAUDE_CONFIG_DIR"] = str(home.root)
    source = ClaudeSource(directory / "index", ClaudeHome(str(home.root)))
    store = SQLiteStore.open(directory / "store.db")
    async with Hub(store, directory, sources=[source]) as hub:
        before = contents(home)
        listed = [one.id for one in (await hub.sessions.list(LOCAL, Query(limit=1000))).sessions]
        assert GOOD in listed
        for ranked in (False, True):
            results = await hub.sessions.search(LOCAL, Query(text="lighthouse"), ranked=ranked)
            assert [one.session.id for one in results.matches] == [GOOD]
            await hub.sessions.search(LOCAL, Query(text="word"), ranked=ranked)
        for id in paths:
            if id in listed:
                await read(hub, id)
        assert contents(home) == before  # reading writes nothing
        for id, path in paths.items():
            await change(hub, id, path, id in listed)
        assert GOOD in [
            one.id for one in (await hub.sessions.list(LOCAL, Query(limit=1000))).sessions
        ]


async def change(hub: Hub, id: str, path: Path, listed: bool) -> None:
    """Edit a session and copies of it."""
    data = path.read_bytes()
    forks = [
        await result_or_none(hub.editor.fork(LOCAL, id)),
        await result_or_none(hub.editor.fork(LOCAL, id, in_store=True)),
    ]
    assert (forks[1] is not None) == listed
    for fork in filter(None, forks):
        await read(hub, fork.id)
    if listed:
        await hub.editor.set_title(LOCAL, id, "mine")
        await hub.editor.set_tag(LOCAL, id, "yours")
        await hub.editor.archive(LOCAL, id)
        now = await hub.sessions.get(LOCAL, id)
        assert (now.title, now.tag) == ("mine", "yours")
        assert path.read_bytes().startswith(data)
        await hub.editor.trash(LOCAL, id)
        await read(hub, id)
        await hub.editor.restore(LOCAL, id)
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip(BLANK_BYTES)]
    if imported := await result_or_none(hub.sync.import_session(LOCAL, str(path), "claude")):
        await read(hub, imported[0].id)
        assert (await hub.sync.import_session(LOCAL, str(path), "claude"))[1] == 0
        copied = [line async for line in hub.sync.transcript(LOCAL, imported[0].id, "claude")]
        assert copied == [line + b"\n" for line in lines]
        await hub.editor.purge(LOCAL, imported[0].id)


async def read(hub: Hub, id: str) -> None:
    """Read a session in every way."""
    session = await hub.sessions.get(LOCAL, id)
    events = [event async for event in hub.history.read(LOCAL, id)]
    assert events[-1].seq == session.last_seq
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    conversation = [event async for event in hub.history.conversation(LOCAL, id)]
    assert {event.id for event in conversation} <= {event.id for event in events}
    assert await hub.history.events(LOCAL, id, backward=True, limit=3) == events[-3:]
    for match in await hub.history.find(LOCAL, id, "word"):
        assert match.event is not None
    for thread in await hub.history.threads(LOCAL, id):
        [event async for event in hub.history.thread_events(LOCAL, id, thread.id)]
    exported = [line async for line in hub.exchange.export(LOCAL, id)]
    copy = await hub.exchange.import_session(LOCAL, exported, new_id=True)
    assert copy.last_seq >= len(events)
    await hub.editor.purge(LOCAL, copy.id)


def contents(home: Home) -> dict[str, bytes]:
    files = (path for path in home.root.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files}


def run(*datas: bytes) -> None:
    handler = logging.Handler(logging.ERROR)
    handler.emit = fail  # type: ignore[method-assign]  # only for this test
    logging.getLogger("segue.claude").addHandler(handler)
    try:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(check(Path(directory), datas))
    finally:
        logging.getLogger("segue.claude").removeHandler(handler)


def fail(record: logging.LogRecord) -> None:
    """Fail if the source logs that it skips a file."""
    assert record.exc_info is not None
    raise AssertionError(record.getMessage()) from record.exc_info[1]


@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=pytest.mark.full)])
def test_every_operation_on_a_damaged_transcript_works_or_raises_an_error(examples: int) -> None:
    @given(st.lists(transcripts(), min_size=3, max_size=3))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def check_transcripts(datas: list[bytes]) -> None:
        run(*datas)

    check_transcripts()


@pytest.mark.full
@pytest.mark.parametrize("first", range(4))
def test_value_of_another_type_in_any_field_is_handled(first: int) -> None:
    """Try some of the types for each value; more values of `first` try more types."""
    for number in range(0, len(EVERYWHERE), 20):
        some = enumerate(EVERYWHERE[number : number + 20], number + first)
        run(
            *(encode_lines(changed(kinds(), position, ODD[at % len(ODD)])) for at, position in some)
        )

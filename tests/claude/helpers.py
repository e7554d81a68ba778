"""A hub over a home directory of Claude Code, and helpers for tests of both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from segue.hub import Hub
from segue.model.content import Text
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
from tests.claude.entries import Home, S, as_line, assistant, user

Within = Callable[[Callable[[Hub], Awaitable[Any]]], Any]  # runs a coroutine function with a hub

S3 = "33333333-3333-4333-8333-333333333333"


@asynccontextmanager
async def claude_hub(home: Home, **options: Any) -> AsyncIterator[tuple[Hub, ClaudeSource]]:
    """Open a hub over a home directory, with an empty store in memory.

    The demo agent answers, which must be chosen for sessions of another tool.
    """
    index = home.root.parent / "data" / "index.db"
    source = ClaudeSource(index, ClaudeHome(str(home.root)), **options)
    async with Hub(MemoryStore(), home.root.parent, sources=[source]) as hub:
        await hub.config.set(LOCAL.workspace, "model", "demo")
        yield hub, source


async def list_ids(hub: Hub, **query: Any) -> list[str]:
    """Return the ids of the sessions that a list shows."""
    return [session.id for session in (await hub.sessions.list(LOCAL, Query(**query))).sessions]


def text(*parts: str) -> tuple[Text, ...]:
    return tuple(Text(text=part) for part in parts)


def list_transcripts(home: Path) -> list[Path]:
    return sorted(home.glob("projects/*/*.jsonl"))


def append(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(map(as_line, lines)))


def timed_user(uuid: str, parent: str | None, text: str, at: str, **fields: Any) -> dict[str, Any]:
    return user(uuid, parent, text, timestamp=at, **fields)


def write_session_with_subagent(
    home: Home, agent: str = "a1b2c3", id: str = S
) -> tuple[Path, Path]:
    """Write a session that started a subagent. Return its transcript and the subagent's."""
    task = {"description": "count birds", "prompt": "Count them", "subagent_type": "Explore"}
    call = [{"type": "tool_use", "id": "toolu_9", "name": "Task", "input": task}]
    task_result = [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "There are nine."}]
    path = home.write(
        [
            user("u1", None, "How many?", cwd="/w"),
            assistant("a1", "u1", call),
            user("u2", "a1", task_result, toolUseResult={"agentId": agent, "status": "completed"}),
            assistant("a2", "u2", [{"type": "text", "text": "Nine."}]),
        ],
        id,
    )
    sidechain: dict[str, Any] = {"isSidechain": True, "agentId": agent}
    answer = assistant(
        "s2", "s1", [{"type": "text", "text": "A kingfisher, too"}], "m9", **sidechain
    )
    answer["message"] |= {"model": "small", "usage": {"input_tokens": 7, "output_tokens": 2}}
    file = path.with_suffix("") / "subagents" / f"agent-{agent}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(as_line(user("s1", None, "Count them", **sidechain)) + as_line(answer))
    metadata = {"agentType": "Explore", "description": "count birds", "toolUseId": "toolu_9"}
    file.with_suffix(".meta.json").write_text(json.dumps(metadata))
    return path, file

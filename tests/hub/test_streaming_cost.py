"""Streaming a message costs what is added, however long the message is. Tests count the work."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.hub import Hub
from segue.hub.history.follow import UnfinishedMessage
from segue.model.event import AgentMessage, Delta, Event
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

WORDS = 20_000
SIZE = WORDS * len("word ")


class Words:
    """An agent that streams words, and lets other tasks run in between."""

    async def run(self, turn: Turn) -> StopReason:
        for number in range(WORDS):
            await turn.delta("word ")
            if number % 100 == 0:
                await asyncio.sleep(0.001)
        return "end_turn"


def open_hub(path: Path) -> Hub:
    registry = AgentRegistry({"default": lambda _: Words()})
    return Hub(SQLiteStore.open(path / "segue.db"), path, agent_registry=registry)


async def streamed_text(hub: Hub, id: str) -> tuple[str, int]:
    """Return the text of the deltas of a message, and their number, once it is stored."""
    deltas: list[str] = []
    async for item in hub.history.follow(LOCAL, id, deltas=True):
        if isinstance(item, Delta):
            assert item.offset == sum(map(len, deltas))
            deltas.append(item.text)
        elif isinstance(item, Event) and isinstance(item.body, AgentMessage):
            return "".join(deltas), len(deltas)
    raise AssertionError("the session ended")


async def test_follower_copies_each_character_of_a_message_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = 0
    text = UnfinishedMessage.text

    def counted(self: UnfinishedMessage, *pieces: Any) -> str:
        nonlocal copied
        part = text(self, *pieces)
        copied += len(part)
        return part

    monkeypatch.setattr(UnfinishedMessage, "text", counted)
    async with open_hub(tmp_path) as hub, asyncio.timeout(60):
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        follower = asyncio.ensure_future(streamed_text(hub, id))
        assert await hub.turns.run(LOCAL, id, "go") == "end_turn"
        streamed, count = await follower
    assert count > 50 and ("word " * WORDS).startswith(streamed)
    assert copied == len(streamed) <= SIZE


async def test_follower_in_another_process_reads_each_delta_once(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path) as other, asyncio.timeout(60):
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        new_deltas = other.store.new_deltas
        read = 0

        async def counted(*arguments: Any) -> tuple[list[Delta], int]:
            nonlocal read
            deltas, last = await new_deltas(*arguments)
            read += sum(len(delta.text) for delta in deltas)
            return deltas, last

        other.store.new_deltas = counted  # type: ignore[method-assign]
        follower = asyncio.ensure_future(streamed_text(other, id))
        assert await hub.turns.run(LOCAL, id, "go") == "end_turn"
        streamed, count = await follower
    assert count >= 2
    assert read == len(streamed) <= SIZE

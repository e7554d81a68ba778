"""Turns of agents that run one coroutine function, and what they stored."""

import asyncio
from collections.abc import Callable
from typing import Any

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.hub import Hub
from segue.model.event import (
    Event,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL

MakeHub = Callable[..., Hub]


async def read_bodies(hub: Hub, id: str, *types: str) -> list[Any]:
    return [event.body for event in await hub.history.events(LOCAL, id, types=types)]


async def wait_for(hub: Hub, id: str, matches: Callable[[Any], bool], after: int = 0) -> Event:
    async with asyncio.timeout(20):
        async for item in hub.history.follow(LOCAL, id, after):
            if isinstance(item, Event) and matches(item.body):
                return item
    raise AssertionError("the session ended first")


class ScriptedAgent:
    """An agent that runs one coroutine function."""

    def __init__(self, play: Callable[[Turn], Any]) -> None:
        self._play = play

    async def run(self, turn: Turn) -> StopReason:
        return await self._play(turn) or "end_turn"


def registry_with(play: Callable[[Turn], Any]) -> AgentRegistry:
    return AgentRegistry({"default": lambda _: ScriptedAgent(play)})

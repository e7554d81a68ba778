"""An agent for tests that runs a function in the session's directory."""

from collections.abc import Callable
from pathlib import Path

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.model.lifecycle import StopReason

Act = Callable[[Path], object]


class DirectoryAgent:
    """Call `act` with the session's directory in each turn."""

    def __init__(self) -> None:
        self.act: Act = lambda _: None

    async def run(self, turn: Turn) -> StopReason:
        self.act(Path(turn.cwd))
        return "end_turn"


def registry_with(directory_agent: DirectoryAgent) -> AgentRegistry:
    return AgentRegistry({"default": lambda _: directory_agent})

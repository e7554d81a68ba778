"""An agent that does what a test says, for what turns leave in a session's directory."""

from collections.abc import Callable
from pathlib import Path

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.model.lifecycle import StopReason

Act = Callable[[Path], object]


class Hand:
    """An agent that does in the session's directory what the test says."""

    def __init__(self) -> None:
        self.act: Act = lambda _: None

    async def run(self, turn: Turn) -> StopReason:
        self.act(Path(turn.cwd))
        return "end_turn"


def registry_with(hand: Hand) -> AgentRegistry:
    return AgentRegistry({"default": lambda _: hand})

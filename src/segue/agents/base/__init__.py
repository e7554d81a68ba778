"""Agent and Turn: the interface between segue and the code that answers a prompt.

    class Echo:
        async def run(self, turn: Turn) -> StopReason:
            await turn.send_message(f"You said: {turn.text}")
            return "end_turn"

This is a complete agent. Every interface can prompt it, and segue stores, lists, searches and
replays its turns. When a user cancels the turn, segue cancels `run` like any asyncio task, stores
the text streamed so far and marks it as partial.
"""

from __future__ import annotations

from .abilities import (
    NO_FIELDS,
    Agent,
    AgentSession,
    HandlesClosed,
    HandlesConfigured,
    HandlesExtensions,
    HandlesLogin,
    HandlesNotifications,
    HandlesOpened,
    HasOptions,
    NeedsLogin,
    OfferedOptions,
    OwnsSessions,
    ReadsDirectorySettings,
    SpeaksBetweenTurns,
    SupportsCheck,
    SupportsRelease,
    SupportsResume,
    SupportsSummary,
)
from .client import Client, Terminal
from .declaration import Choice, Command, Select, Switch
from .ports import (
    ALLOW,
    ALLOW_ALWAYS,
    REJECT,
    Answer,
    ConnectedTools,
    Keyring,
    McpTool,
    NewThread,
    NoTools,
    PermissionRequest,
    SessionPort,
    StreamKind,
    ThreadPort,
    ThreadsPort,
    Tools,
    TurnPort,
)
from .tool_run import ToolRun, remember_permission
from .turn import (
    Turn,
    streamed_draft,
)

__all__ = [
    "ALLOW",
    "ALLOW_ALWAYS",
    "NO_FIELDS",
    "REJECT",
    "Agent",
    "AgentSession",
    "Answer",
    "Choice",
    "Client",
    "Command",
    "ConnectedTools",
    "HandlesClosed",
    "HandlesConfigured",
    "HandlesExtensions",
    "HandlesLogin",
    "HandlesNotifications",
    "HandlesOpened",
    "HasOptions",
    "Keyring",
    "McpTool",
    "NeedsLogin",
    "NewThread",
    "NoTools",
    "OfferedOptions",
    "OwnsSessions",
    "PermissionRequest",
    "ReadsDirectorySettings",
    "Select",
    "SessionPort",
    "SpeaksBetweenTurns",
    "StreamKind",
    "SupportsCheck",
    "SupportsRelease",
    "SupportsResume",
    "SupportsSummary",
    "Switch",
    "Terminal",
    "ThreadPort",
    "ThreadsPort",
    "ToolRun",
    "Tools",
    "Turn",
    "TurnPort",
    "remember_permission",
    "streamed_draft",
]

"""segue: every AI-agent session in one place.

    import asyncio, segue

    async def main() -> None:
        async with await segue.open_hub() as hub:
            session = await hub.editor.create(segue.LOCAL, cwd="/home/me/project")
            await hub.turns.run(segue.LOCAL, session.id, "What does this project do?")
            async for event in hub.history.read(segue.LOCAL, session.id):
                print(event.type, event.body)

    asyncio.run(main())

These names are the whole public API; each is imported when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own is not worth its import, which every command would wait for
__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from segue.acp.wire import LoginMethod
    from segue.agents.base import (
        Agent,
        Answer,
        Choice,
        Client,
        Command,
        Select,
        Switch,
        Terminal,
        ToolRun,
        Turn,
    )
    from segue.agents.registry import AgentRegistry
    from segue.factory import open_hub
    from segue.hub import Hub, Page, SearchMatch, SearchPage
    from segue.hub.location import data_dir
    from segue.hub.sessions.retention import RetentionPolicy
    from segue.interfaces.acp.serve import serve_acp
    from segue.interfaces.python import (
        AssistantMessage,
        Message,
        PartialMessage,
        ResultMessage,
        ResumeInResult,
        SDKSession,
        SearchResult,
        SessionInfo,
        SystemMessage,
        UserMessage,
        archive_session,
        create_session,
        delete_session,
        fork_session,
        get_session_info,
        get_session_messages,
        list_sessions,
        prompt,
        rename_session,
        resume_in,
        resume_session,
        search_sessions,
        tag_session,
        unarchive_session,
        unstable_v2_create_session,
        unstable_v2_prompt,
        unstable_v2_resume_session,
    )
    from segue.model import content, errors, event
    from segue.model.content import Block, Text
    from segue.model.errors import SegueError
    from segue.model.event import Event
    from segue.model.lifecycle import StopReason
    from segue.model.principal import LOCAL, Principal
    from segue.model.query import Query
    from segue.model.session import Session
    from segue.server.own_agent import serve_agent
    from segue.store.base import Store

_HOMES = {
    "acp.wire": ("LoginMethod",),
    "agents.base": (
        "Agent",
        "Answer",
        "Choice",
        "Client",
        "Command",
        "Select",
        "Switch",
        "Terminal",
        "ToolRun",
        "Turn",
    ),
    "agents.registry": ("AgentRegistry",),
    "interfaces.acp.serve": ("serve_acp",),
    "interfaces.python": (
        "AssistantMessage",
        "Message",
        "PartialMessage",
        "ResultMessage",
        "ResumeInResult",
        "SDKSession",
        "SearchResult",
        "SessionInfo",
        "SystemMessage",
        "UserMessage",
        "archive_session",
        "create_session",
        "delete_session",
        "fork_session",
        "get_session_info",
        "get_session_messages",
        "list_sessions",
        "prompt",
        "rename_session",
        "resume_in",
        "resume_session",
        "search_sessions",
        "tag_session",
        "unarchive_session",
        "unstable_v2_create_session",
        "unstable_v2_prompt",
        "unstable_v2_resume_session",
    ),
    "factory": ("open_hub",),
    "hub": ("Hub", "Page", "SearchMatch", "SearchPage"),
    "hub.location": ("data_dir",),
    "hub.sessions.retention": ("RetentionPolicy",),
    "model": ("content", "errors", "event"),
    "model.content": ("Block", "Text"),
    "model.errors": ("SegueError",),
    "model.event": ("Event",),
    "model.lifecycle": ("StopReason",),
    "model.principal": ("LOCAL", "Principal"),
    "model.query": ("Query",),
    "model.session": ("Session",),
    "server.own_agent": ("serve_agent",),
    "store.base": ("Store",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "LOCAL",
    "Agent",
    "AgentRegistry",
    "Answer",
    "AssistantMessage",
    "Block",
    "Choice",
    "Client",
    "Command",
    "Event",
    "Hub",
    "LoginMethod",
    "Message",
    "Page",
    "PartialMessage",
    "Principal",
    "Query",
    "ResultMessage",
    "ResumeInResult",
    "RetentionPolicy",
    "SDKSession",
    "SearchMatch",
    "SearchPage",
    "SearchResult",
    "SegueError",
    "Select",
    "Session",
    "SessionInfo",
    "StopReason",
    "Store",
    "Switch",
    "SystemMessage",
    "Terminal",
    "Text",
    "ToolRun",
    "Turn",
    "UserMessage",
    "archive_session",
    "content",
    "create_session",
    "data_dir",
    "delete_session",
    "errors",
    "event",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "list_sessions",
    "open_hub",
    "prompt",
    "rename_session",
    "resume_in",
    "resume_session",
    "search_sessions",
    "serve_acp",
    "serve_agent",
    "tag_session",
    "unarchive_session",
    "unstable_v2_create_session",
    "unstable_v2_prompt",
    "unstable_v2_resume_session",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'segue' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f".{_HOME[name]}", __name__)
    value = import_module(f".{name}", home.__name__) if home.__name__ == "segue.model" else None
    value = getattr(home, name) if value is None else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

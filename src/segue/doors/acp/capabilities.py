"""What the agent says of itself in answer to `initialize`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ...acp import v1, v2
from ...acp.wire import Empty, Implementation
from .meta import NAMESPACE

LOCAL_AUTH = "segue-local"
TERMINAL_AUTH = "segue-terminal"
_FILTERS = ["search", "createdAfter", "tag", "includeWorktrees", "limit"]
_GATES = {
    "session/list": "list",
    "session/load": "load",
    "session/resume": "resume",
    "session/close": "close",
    "session/delete": "delete",
    "session/fork": "fork",
    "session/set_title": "title",
    "session/archive": "archive",
    "session/unarchive": "archive",
    "session/status": "status",
}


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the optional methods an agent has. By default all of them."""

    name: str = "segue"
    title: str = "segue"
    without: frozenset[str] = frozenset()
    auth_methods: tuple[str, ...] = (LOCAL_AUTH, TERMINAL_AUTH)

    def has(self, capability: str) -> bool:
        return capability not in self.without

    def method(self, name: str) -> bool:
        gate = _GATES.get(name)
        return gate is None or self.has(gate)

    def marker(self, capability: str, meta: dict[str, Any] | None = None) -> Empty | UnsetType:
        return Empty(meta=meta) if self.has(capability) else UNSET


def _list_meta() -> dict[str, Any]:
    return {NAMESPACE: {"filters": _FILTERS}}


def initialized_v1(
    offers: Offers, client: v1.ClientCapabilities, version: str
) -> v1.InitializeResponse:
    methods = [
        v1.AuthMethod(id=LOCAL_AUTH, name="This computer's user", description="Nothing to do")
    ]
    if client.auth.terminal:
        methods.append(
            v1.AuthMethod(
                type="terminal",
                id=TERMINAL_AUTH,
                name="In a terminal",
                description="Choose a model and enter its key",
                args=["--setup"],
            )
        )
    return v1.InitializeResponse(
        protocol_version=v1.VERSION,
        agent_info=Implementation(name=offers.name, title=offers.title, version=version),
        auth_methods=methods,
        agent_capabilities=v1.AgentCapabilities(
            load_session=offers.has("load"),
            prompt_capabilities=v1.PromptCapabilities(
                image=True, audio=True, embedded_context=True
            ),
            mcp_capabilities=v1.McpCapabilities(http=offers.has("mcp")),
            session_capabilities=v1.SessionCapabilities(
                list=offers.marker("list", _list_meta()),
                resume=offers.marker("resume"),
                close=offers.marker("close"),
                delete=offers.marker("delete"),
                additional_directories=offers.marker("additionalDirectories"),
                fork=offers.marker("fork"),
                title=offers.marker("title"),
                archive=offers.marker("archive"),
                status=offers.marker("status"),
            ),
            auth=v1.AgentAuth(logout=Empty()),
        ),
    )


def initialized_v2(offers: Offers, terminal: bool, version: str) -> v2.InitializeResponse:
    methods = [
        v2.AuthMethod(
            type="agent",
            method_id=LOCAL_AUTH,
            name="This computer's user",
            description="Nothing to do",
        )
    ]
    if terminal:
        methods.append(
            v2.AuthMethod(
                type="terminal",
                method_id=TERMINAL_AUTH,
                name="In a terminal",
                description="Choose a model and enter its key",
                args=["--setup"],
            )
        )
    servers = v2.McpCapabilities(stdio=Empty(), http=Empty()) if offers.has("mcp") else UNSET
    return v2.InitializeResponse(
        protocol_version=v2.VERSION,
        info=Implementation(name=offers.name, title=offers.title, version=version),
        auth_methods=methods,
        capabilities=v2.AgentCapabilities(
            session=v2.SessionCapabilities(
                prompt=v2.PromptCapabilities(
                    image=Empty(), audio=Empty(), embedded_context=Empty()
                ),
                mcp=servers,
                delete=offers.marker("delete"),
                additional_directories=offers.marker("additionalDirectories"),
                fork=offers.marker("fork"),
                title=offers.marker("title"),
                archive=offers.marker("archive"),
                status=offers.marker("status"),
                list=offers.marker("list", _list_meta()),
                load=offers.marker("load"),
                resume=offers.marker("resume"),
                close=offers.marker("close"),
            )
        ),
    )

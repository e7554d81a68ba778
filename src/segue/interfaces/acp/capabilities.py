"""What the two sides say of themselves in `initialize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from segue import __version__
from segue.acp import v1, v2
from segue.acp.wire import Empty, EnvVariable, Implementation, LoginMethod, Wire

from .meta import NAMESPACE

W = TypeVar("W", bound=Wire)

LOCAL_AUTH = "segue-local"
OURS = (
    LoginMethod(id=LOCAL_AUTH, name="This computer's user", description="Nothing to do"),
    LoginMethod(
        id="segue-terminal",
        name="In a terminal",
        description="Shows which agents are set up",
        args=("--setup",),
    ),
)
_FILTERS = ["search", "createdAfter", "tag", "includeWorktrees", "limit"]

# The optional methods, each with the marker that says it is there.
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
_AUTH = ("authenticate", "logout", "auth/login", "auth/logout")
MARKERS = frozenset({*_GATES.values(), "additionalDirectories"})


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says it is and can do. By default everything.

    `remembers` is False for an agent whose sessions end with their connection: it lists none.
    `keep_days` is after how many idle days a session is forgotten.
    """

    name: str = "segue"
    title: str = "segue"
    version: str = __version__
    without: frozenset[str] = frozenset()
    auth: bool = True
    remembers: bool = True
    keep_days: int | None = None

    def has(self, capability: str) -> bool:
        return capability not in self.without

    def method(self, name: str, version: int) -> bool:
        if name in _AUTH:
            return self.auth
        if name == "session/resume" and version == v2.VERSION and not self.remembers:
            return True  # which every agent of version 2 has, if it finds nothing to resume
        gate = _GATES.get(name)
        return gate is None or self.has(gate)

    def marker(self, capability: str, meta: dict[str, Any] | None = None) -> Empty | UnsetType:
        return Empty(meta=meta) if self.has(capability) else UNSET

    def info(self) -> Implementation:
        return Implementation(name=self.name, title=self.title, version=self.version)


def leniently(given: Any, kind: type[W]) -> W:
    """A client's capabilities, without those that do not parse: the schemas ask for that."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(given, dict) and field.encode_name in given:
            value = given[field.encode_name]
            inner = next(
                (each for each in (field.type, *get_args(field.type)) if _wire(each)), None
            )
            if inner is not None and isinstance(value, dict):
                found[field.name] = leniently(value, inner)
                continue
            try:
                found[field.name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                continue
    return kind(**found)


def _wire(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Wire)


def _list_meta() -> dict[str, Any]:
    return {NAMESPACE: {"filters": _FILTERS}}


def logins(offers: Offers, own: Sequence[LoginMethod], terminal: bool) -> list[LoginMethod]:
    """The ways to log in that a client is shown: the agent's `own`, or else ours.

    Those of a terminal are for clients that have one.
    """
    if not offers.auth:
        return []
    found = [
        each if each.args is None else replace(each, args=("--login", "--", *each.args))
        for each in own
    ]
    return [each for each in found or OURS if terminal or each.args is None]


def initialized_v1(offers: Offers, ways: Sequence[LoginMethod]) -> v1.InitializeResponse:
    methods = [
        v1.AuthMethod(
            id=each.id,
            name=each.name,
            description=each.description,
            type=UNSET if each.args is None else "terminal",
            args=UNSET if each.args is None else [*each.args],
            env=each.env or UNSET,
        )
        for each in ways
    ]
    return v1.InitializeResponse(
        protocol_version=v1.VERSION,
        agent_info=offers.info(),
        auth_methods=methods,
        agent_capabilities=v1.AgentCapabilities(
            load_session=offers.has("load"),
            prompt_capabilities=v1.PromptCapabilities(
                image=True, audio=True, embedded_context=True
            ),
            mcp_capabilities=v1.McpCapabilities(http=True),
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
            auth=v1.AgentAuth(logout=Empty() if offers.auth else UNSET),
        ),
    )


def initialized_v2(offers: Offers, ways: Sequence[LoginMethod]) -> v2.InitializeResponse:
    methods = [
        v2.AuthMethod(
            type="agent" if each.args is None else "terminal",
            method_id=each.id,
            name=each.name,
            description=each.description,
            args=UNSET if each.args is None else [*each.args],
            env=[EnvVariable(name=k, value=v) for k, v in each.env.items()] or UNSET,
        )
        for each in ways
    ]
    return v2.InitializeResponse(
        protocol_version=v2.VERSION,
        info=offers.info(),
        auth_methods=methods,
        capabilities=v2.AgentCapabilities(
            session=v2.SessionCapabilities(
                prompt=v2.PromptCapabilities(
                    image=Empty(), audio=Empty(), embedded_context=Empty()
                ),
                mcp=v2.McpCapabilities(stdio=Empty(), http=Empty()),
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

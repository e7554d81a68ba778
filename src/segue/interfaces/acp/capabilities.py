"""The capabilities that client and agent exchange in `initialize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from segue import __version__
from segue.acp import v1, v2
from segue.acp.methods import (
    AUTH_STATUS,
    MCP_OVER_ACP,
    OPTIONAL_METHODS,
    PROVIDERS,
    SYSTEM_PROMPT,
)
from segue.acp.wire import (
    Empty,
    EnvVariable,
    Implementation,
    LoginMethod,
    SessionCapabilities,
    Wire,
)
from segue.model import codec

from .meta import NAMESPACE

if TYPE_CHECKING:
    from segue.agents.base.declaration import AgentDeclaration
    from segue.agents.base.external import AgentDescription

WireStruct = TypeVar("WireStruct", bound=Wire)

# The login methods of segue itself, for agents that have none of their own.
DEFAULT_LOGIN_METHODS = (
    LoginMethod(id="segue-local", name="This computer's user", description="Nothing to do"),
    LoginMethod(
        id="segue-terminal",
        name="In a terminal",
        description="Shows which agents are set up",
        args=("--setup",),
    ),
)
_LIST_FILTERS = ["search", "createdAfter", "tag", "includeWorktrees", "limit"]

# The optional methods, each with the capability that announces it.
_METHOD_CAPABILITIES = {
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
_SET_MODE, _MODE = "session/set_mode", "mode"
_OPTION_METHODS = (_SET_MODE, "session/set_config_option")
_REQUIRED_V2 = ("session/list", "session/resume", "session/close")
_AUTH_METHODS = ("authenticate", "logout", "auth/login", "auth/logout")
OPTIONAL_CAPABILITIES = frozenset({*_METHOD_CAPABILITIES.values(), "additionalDirectories"})


class AgentProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The name and abilities of an agent, by default all abilities.

    `without` has the optional capabilities that the agent does not offer. `persistent` is False
    for an agent whose sessions end when they are closed; it lists none. Sessions that were idle
    for `keep_days` are deleted. `mcp` says that clients may pass MCP servers. `resumable` has the
    limits of a transport that can resume. `agent` describes the external agent that answers.
    `declaration` is what an agent of a Python program declares: it offers nothing else.
    """

    name: str = "segue"
    title: str = "segue"
    version: str = __version__
    without: frozenset[str] = frozenset()
    auth: bool = True
    persistent: bool = True
    keep_days: int | None = None
    mcp: bool = True
    resumable: dict[str, int] | None = None
    agent: AgentDescription | None = None
    declaration: AgentDeclaration | None = None
    declared_meta: Mapping[str, Any] = {}

    def for_agent(self, agent: AgentDescription) -> AgentProfile:
        """Return the profile for an external agent: only with what the agent can do."""
        missing = frozenset() if agent.additional_directories else {"additionalDirectories"}
        return replace(self, agent=agent, without=self.without | missing)

    def accepts(self, content: str) -> bool:
        """Return whether a prompt may have image, audio or embeddedContext."""
        if self.declaration is not None:
            return content in self.declaration.prompt_content
        return self.agent is None or content in self.agent.prompt_content

    @property
    def logins(self) -> Sequence[LoginMethod]:
        """The login methods, unless an external agent has its own."""
        return DEFAULT_LOGIN_METHODS if self.declaration is None else self.declaration.logins

    @property
    def http_mcp_servers(self) -> bool:
        """Whether the agent connects to MCP servers over HTTP."""
        return self.mcp and (self.agent is None or self.agent.http_mcp_servers)

    def has(self, capability: str) -> bool:
        """Return whether the agent offers an optional capability."""
        return capability not in self.without

    def optional(self, capability: str) -> Any:
        """Return the value of an unstable capability, or None.

        segue itself reports its login and accepts system prompts; the others are those of an
        external agent.
        """
        if self.agent is not None:
            return self.agent.optional.get(capability)
        is_own = self.declaration is None and capability not in self.without
        if capability == AUTH_STATUS and is_own and self.auth:
            return {}
        if capability == SYSTEM_PROMPT and is_own:
            return {"mode": {"override": {}}}
        return None

    def optional_marker(self, capability: str) -> Empty | UnsetType:
        """Return the field that announces an unstable capability, or unset."""
        return UNSET if self.optional(capability) is None else Empty()

    def has_method(self, method: str, version: int) -> bool:
        """Return whether the agent offers a method of a protocol version."""
        if method in _AUTH_METHODS:
            return self.auth
        if method in OPTIONAL_METHODS:
            return self.optional(OPTIONAL_METHODS[method]) is not None
        if self.declaration is not None and method in _OPTION_METHODS:
            # Version 1 has methods for modes and for options; a mode is also an option.
            options = self.declaration.options
            return any(method != _SET_MODE or option.category == _MODE for option in options)
        if version == v2.VERSION and method in _REQUIRED_V2:
            return True  # even if there is no session to list or to resume
        capability = _METHOD_CAPABILITIES.get(method)
        return capability is None or self.has(capability)

    def marker(self, capability: str, meta: dict[str, Any] | None = None) -> Empty | UnsetType:
        """Return the field that announces a capability, unset if the agent does not offer it."""
        return Empty(meta=meta) if self.has(capability) else UNSET

    @property
    def transport(self) -> dict[str, Any] | UnsetType:
        """The capabilities of the transport, as a draft of the protocol has them."""
        return UNSET if self.resumable is None else {"resumable": self.resumable}

    def implementation(self) -> Implementation:
        """Return the name and version of the agent, with those of an external one."""
        info = {} if self.agent is None else self.agent.info
        name = info.get("title") or info.get("name")
        if not isinstance(name, str):
            return Implementation(name=self.name, title=self.title, version=self.version)
        return Implementation(
            name=self.name,
            title=f"{name} ({self.title})",
            version=self.version,
            meta={NAMESPACE: {"agent": info}},
        )

    @property
    def meta(self) -> dict[str, Any] | None:
        """The `_meta` of the answer to `initialize`."""
        return None if self.agent is None else dict(self.agent.meta) or None

    @property
    def capability_meta(self) -> dict[str, Any] | None:
        """The `_meta` of the agent's capabilities."""
        if self.declared_meta:
            return dict(self.declared_meta)
        return None if self.agent is None else dict(self.agent.capability_meta) or None


def parse_leniently(value: Any, struct_type: type[WireStruct]) -> WireStruct:
    """Return a client's capabilities, with defaults for fields that do not parse.

    The schemas of the protocol require that an agent ignores such fields.
    """
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct_type):
        if isinstance(value, dict) and field.encode_name in value:
            field_value = value[field.encode_name]
            nested_type = next(
                (
                    candidate
                    for candidate in (field.type, *get_args(field.type))
                    if _is_wire_type(candidate)
                ),
                None,
            )
            if nested_type is not None and isinstance(field_value, dict):
                fields[field.name] = parse_leniently(field_value, nested_type)
                continue
            try:
                fields[field.name] = codec.convert(field_value, field.type)
            except msgspec.ValidationError:
                continue
    return struct_type(**fields)


def _is_wire_type(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, Wire)


def _session_markers(profile: AgentProfile) -> dict[str, Any]:
    """Return the fields of SessionCapabilities, which both versions have."""
    return {
        "list": profile.marker("list", {NAMESPACE: {"filters": _LIST_FILTERS}}),
        "resume": profile.marker("resume"),
        "close": profile.marker("close"),
        "delete": profile.marker("delete"),
        "additional_directories": profile.marker("additionalDirectories"),
        "fork": profile.marker("fork"),
        "title": profile.marker("title"),
        "archive": profile.marker("archive"),
        "status": profile.marker("status"),
        "system_prompt": UNSET if (value := profile.optional(SYSTEM_PROMPT)) is None else value,
    }


def available_login_methods(
    profile: AgentProfile, agent_methods: Sequence[LoginMethod], *, terminal: bool
) -> list[LoginMethod]:
    """Return the login methods for a client: those of the agent, or else segue's.

    `terminal` says whether the client can run methods that need a terminal.
    """
    if not profile.auth:
        return []
    methods = [
        method if method.args is None else replace(method, args=("--login", "--", *method.args))
        for method in agent_methods
    ]
    return [method for method in methods or profile.logins if terminal or method.args is None]


def initialize_response_v1(
    profile: AgentProfile, login_methods: Sequence[LoginMethod]
) -> v1.InitializeResponse:
    """Return the answer to `initialize` in version 1."""
    auth_methods = [
        v1.AuthMethod(
            id=method.id,
            name=method.name,
            description=method.description,
            type=UNSET if method.args is None else "terminal",
            args=UNSET if method.args is None else [*method.args],
            env=method.env or UNSET,
        )
        for method in login_methods
    ]
    return v1.InitializeResponse(
        protocol_version=v1.VERSION,
        meta=profile.meta,
        agent_info=profile.implementation(),
        auth_methods=auth_methods,
        agent_capabilities=v1.AgentCapabilities(
            load_session=profile.has("load"),
            prompt_capabilities=v1.PromptCapabilities(
                image=profile.accepts("image"),
                audio=profile.accepts("audio"),
                embedded_context=profile.accepts("embeddedContext"),
            ),
            meta=profile.capability_meta,
            mcp_capabilities=v1.McpCapabilities(
                http=profile.http_mcp_servers, acp=profile.optional(MCP_OVER_ACP) is not None
            ),
            session_capabilities=SessionCapabilities(**_session_markers(profile)),
            auth=v1.AgentAuth(
                logout=Empty() if profile.auth else UNSET,
                status=profile.optional_marker(AUTH_STATUS),
            ),
            providers=profile.optional_marker(PROVIDERS),
            transport=profile.transport,
        ),
    )


def initialize_response_v2(
    profile: AgentProfile, login_methods: Sequence[LoginMethod]
) -> v2.InitializeResponse:
    """Return the answer to `initialize` in version 2."""
    auth_methods = [
        v2.AuthMethod(
            type="agent" if method.args is None else "terminal",
            method_id=method.id,
            name=method.name,
            description=method.description,
            args=UNSET if method.args is None else [*method.args],
            env=[EnvVariable(name=name, value=value) for name, value in method.env.items()]
            or UNSET,
        )
        for method in login_methods
    ]
    return v2.InitializeResponse(
        protocol_version=v2.VERSION,
        meta=profile.meta,
        info=profile.implementation(),
        auth_methods=auth_methods,
        capabilities=v2.AgentCapabilities(
            meta=profile.capability_meta,
            session=v2.SessionCapabilities(
                prompt=v2.PromptCapabilities(
                    image=Empty() if profile.accepts("image") else UNSET,
                    audio=Empty() if profile.accepts("audio") else UNSET,
                    embedded_context=Empty() if profile.accepts("embeddedContext") else UNSET,
                ),
                mcp=v2.McpCapabilities(
                    stdio=Empty(),
                    http=Empty() if profile.http_mcp_servers else UNSET,
                    acp=profile.optional_marker(MCP_OVER_ACP),
                )
                if profile.mcp
                else UNSET,
                load=profile.marker("load"),
                **_session_markers(profile),
            ),
            auth=v2.AgentAuth(status=profile.optional_marker(AUTH_STATUS)),
            providers=profile.optional_marker(PROVIDERS),
            transport=profile.transport,
        ),
    )

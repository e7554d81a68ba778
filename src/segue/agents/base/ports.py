"""The services that agents use: MCP servers, credentials, permissions, the turn engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any, Literal, Protocol

import msgspec

from segue.model.content import Content, as_content
from segue.model.event import AgentRef, AnyBody, Draft, Event, Option, ToolResult
from segue.model.lifecycle import StopReason
from segue.model.session import Session, Thread

from .client import ClientPort

StreamKind = Literal["message", "thought"]

ALLOW = Option(id="allow", name="Allow", kind="allow_once")
ALLOW_ALWAYS = Option(id="allow_always", name="Always allow", kind="allow_always")
REJECT = Option(id="reject", name="Reject", kind="reject_once")


class SessionPort(Protocol):
    """Adds to a session between its turns."""

    async def append(self, *bodies: AnyBody | Draft) -> None:
        """Store events; they are lost if the session does not exist any more."""
        ...

    def publish(self, payload: Any) -> None:
        """Send a message of the agent as it is to clients that use the agent's protocol."""
        ...


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the user, usually about a tool call."""

    title: str
    options: tuple[Option, ...]
    call_id: str | None = None
    extra: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a permission request; `option` is None if the request was withdrawn.

    If `input` is set, the tool must run with that input instead of the one in the request. `extra`
    has fields that only the client's protocol has, by protocol.
    """

    option: Option | None = None
    note: str | None = None
    input: dict[str, Any] | None = None
    extra: dict[str, Any] = {}

    @property
    def allowed(self) -> bool:
        """True if the user chose an option that allows the tool call."""
        return self.option is not None and self.option.kind.startswith("allow")


class Tools(Protocol):
    """The MCP servers that are connected for a session."""

    def servers(self) -> Sequence[str]:
        """Return the names of the servers."""
        ...

    async def offered(self) -> Sequence[McpTool]:
        """Return the tools that the servers offer now."""
        ...

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool and return its result, with an empty call_id.

        A failed call does not raise; it returns a result with the status `failed`.
        """
        ...


class ConnectedTools(Tools, Protocol):
    """MCP servers that stay connected until they are closed."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Return the reason for each server that could not be connected, by its name."""
        ...

    @property
    def is_connecting(self) -> bool:
        """True while servers are being connected."""
        ...

    async def wait_connected(self) -> None:
        """Wait until each server is connected or has failed."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class McpTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that a connected MCP server offers."""

    server: str
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class Keyring(Protocol):
    """The credentials in a session's vaults, decrypted on demand."""

    async def token(self, url: str, refused: str | None = None) -> str | None:
        """Return the bearer token for the MCP server at `url`, or None if the vaults have none.

        `refused` is a token that the server rejected; the keyring then fetches a new one if it can.
        """
        ...

    async def variables(self) -> dict[str, str]:
        """Return the secret environment variables for programs that the agent runs.

        The values must not appear in events or in requests to a model.
        """
        ...


class TurnPort(Protocol):
    """The services that the turn engine provides to a Turn."""

    @property
    def session(self) -> Session: ...
    @property
    def local(self) -> bool: ...
    def keyring(self, *, private: bool) -> Keyring: ...
    async def outputs(self) -> str | None: ...
    async def read_only_directories(self) -> tuple[str, ...]: ...
    def mounts(self) -> tuple[str, ...]: ...
    def private_directories(self) -> tuple[str, ...]: ...
    async def append(self, drafts: Sequence[AnyBody | Draft]) -> list[Event]: ...
    async def begin_request(self, model: str | None) -> str: ...
    async def history(self, *, since_compaction: bool) -> list[Event]: ...
    async def request_permission(self, request: PermissionRequest) -> Answer: ...
    async def result(self, call_id: str) -> list[Event]: ...
    async def ask(self, requests: Sequence[PermissionRequest]) -> list[Answer | None]: ...
    async def events(self) -> list[Event]: ...
    async def take_new_prompts(self) -> list[Event]: ...
    def publish_delta(self, message: str, kind: StreamKind, offset: int, text: str) -> None: ...
    def publish(self, payload: Any) -> None: ...
    @property
    def session_port(self) -> SessionPort: ...
    @property
    def client(self) -> ClientPort | None: ...
    @property
    def threads(self) -> ThreadsPort: ...
    @property
    def thread(self) -> str | None: ...


class ThreadPort(TurnPort, Protocol):
    """The services that the turn engine provides to a thread that answers one tool call.

    `prompt` is the message of the agent that delegates the work, `message_id` the id of its event.
    """

    @property
    def prompt(self) -> Content: ...
    @property
    def message_id(self) -> str: ...
    @property
    def is_interrupted(self) -> bool: ...
    def on_interrupt(self, action: Callable[[], object]) -> None:
        """Call `action` when a client interrupts this thread alone."""
        ...


class NewThread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread that is about to start; the fields are those of ThreadStarted."""

    name: str
    title: str | None = None
    agent: AgentRef | None = None
    definition: dict[str, Any] = {}


class ThreadsPort(Protocol):
    """The threads of a session: agents that its own agent has delegated work to."""

    async def all(self) -> Sequence[Thread]:
        """Return all threads, in the order in which they started."""
        ...

    async def start(self, new: NewThread, call_id: str, prompt: Content) -> ThreadPort:
        """Start a thread that answers a tool call."""
        ...

    async def prompt(self, thread: Thread, call_id: str, prompt: Content) -> ThreadPort:
        """Send a message to a thread that has ended its work, and let it run again."""
        ...

    async def resume(self, thread: Thread) -> ThreadPort | None:
        """Let a thread that waits for clients run again; None if it has nothing to do yet."""
        ...

    async def wait(self, port: ThreadPort, calls: Set[str]) -> None:
        """Store that a thread waits for permissions and for the results of `calls`."""
        ...

    async def end(
        self, port: ThreadPort, drafts: Sequence[Draft], reason: StopReason, reply: Content
    ) -> None:
        """Store the last events of a thread, its reply, and why it ended its work."""
        ...

    def unstored(self, port: ThreadPort, drafts: Sequence[Draft]) -> list[Draft]:
        """Return the last events of a thread whose turn is cancelled, for the end of the turn."""
        ...

    def next_answer(self) -> Coroutine[Any, Any, object]:
        """Wait until a client answers a request or submits a result after this call."""
        ...


class NoTools:
    """The Tools of a session without MCP servers."""

    def servers(self) -> Sequence[str]:
        return ()

    async def offered(self) -> Sequence[McpTool]:
        return ()

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        text = f"no MCP server named {server!r} is connected to this session"
        return ToolResult(call_id="", status="failed", content=as_content(text))

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
    OwnsSessions,
    ReadsDirectorySettings,
    SpeaksBetweenTurns,
    SupportsCheck,
    SupportsRelease,
    SupportsResume,
)
<<<<<<< HEAD
from segue.model.lifecycle import StopReason
from segue.model.session import Session

if TYPE_CHECKING:
    from segue.acp.wire import LoginMethod

StreamKind = Literal["message", "thought"]

ALLOW = Option(id="allow", name="Allow", kind="allow_once")
ALLOW_ALWAYS = Option(id="allow_always", name="Always allow", kind="allow_always")
REJECT = Option(id="reject", name="Reject", kind="reject_once")


class Agent(Protocol):
    """An object that answers prompts."""

    async def run(self, turn: Turn) -> StopReason:
        """Answer `turn.prompt` by emitting events, and return why the turn ended."""
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """An agent that can check before a turn whether it is able to answer."""

    async def check(self) -> None:
        """Raise NoAgent, with a message that names what is missing, if the agent cannot answer."""
        ...


@runtime_checkable
class SupportsResume(Protocol):
    """An agent that can continue a turn from its stored events, also in another process.

    It does not wait for answers and results of clients: `run` and `resume` return
    `requires_action` when nothing else is left to do. The turn is stored then, and has no task.
    """

    async def run(self, turn: Turn) -> StopReason: ...
    async def resume(self, turn: Turn) -> StopReason:
        """Continue a turn, whose `events` tell what has been done and answered."""
        ...


@runtime_checkable
class SupportsRelease(Protocol):
    """An agent that keeps resources for a session between its turns."""

    async def release(self, session: str) -> None:
        """Free the resources of a session that was closed."""
        ...


class AgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that an agent has started on its side.

    `id` is the session id to use in segue, `native_id` the agent's own. `bind` receives the segue
    id that the session got, and returns the session options that identify it to the agent. `meta`
    is for clients that use the protocol of the agent.
    """

    id: str
    native_id: str
    bind: Callable[[str], dict[str, Any]]
    meta: Any = None


@runtime_checkable
class OwnsSessions(Protocol):
    """An agent that has its own sessions, one for each session of segue.

    Such an agent connects a session's MCP servers itself: `tools` only lists them.
    """

    async def start_session(
        self, cwd: str, roots: Sequence[str], tools: Tools | None, meta: Any = None
    ) -> AgentSession:
        """Start a session in the agent; `meta` comes from a client that uses its protocol."""
        ...


@runtime_checkable
class ReadsDirectorySettings(Protocol):
    """An agent whose program reads settings in the working directory, such as hooks to run.

    It does not run for the local user in a directory that an API key may have written to.
    """

    @property
    def directory_settings(self) -> str:
        """Return the name of the program, for messages."""
        ...


@runtime_checkable
class HasOptions(Protocol):
    """An agent that offers options of its own; the session's `offered` option lists them."""

    async def set_option(
        self, session: Session, tools: Tools | None, option: str, value: str | bool
    ) -> Any:
        """Set an option, and return the options that the agent offers now."""
        ...


@runtime_checkable
class NeedsLogin(Protocol):
    """An agent that may require the user to log in."""

    async def logins(self) -> Sequence[LoginMethod]:
        """Return the login methods that the agent offers."""
        ...

    async def log_in(self, id: str) -> None:
        """Log in with one of the methods."""
        ...

    async def log_out(self) -> None:
        """Log out."""
        ...


class SessionPort(Protocol):
    """Adds to a session between its turns."""

    async def append(self, *bodies: AnyBody | Draft) -> None:
        """Store events; they are lost if the session does not exist any more."""
        ...

    def publish(self, payload: Any) -> None:
        """Send a message of the agent as it is to clients that use the agent's protocol."""
        ...


@runtime_checkable
class SpeaksBetweenTurns(Protocol):
    """An agent that may add to a session while no turn of it runs."""

    def connect(self, session: Session, port: SessionPort) -> None:
        """Use the port for a session from now on, until the session is released."""
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
    def mounts(self) -> tuple[str, ...]: ...
    def private_directories(self) -> tuple[str, ...]: ...
    async def read_only_directories(self) -> tuple[str, ...]: ...
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


class Turn:
    """One prompt that an agent is answering."""

    def __init__(
        self,
        port: TurnPort,
        prompt: Content,
        turn_id: str,
        tools: Tools,
        outcome: OutcomeDefined | None = None,
        system: Content = (),
    ) -> None:
        self._port = port
        self._stream: _Stream | None = None
        self._at_end: list[AnyBody] = []
        self.prompt = prompt
        self.id = turn_id
        self._tools = tools
        self.waiting_calls: set[str] = set()  # whose results a resumable agent waits for
        self.outcome = outcome  # the outcome that the prompt defines, if any
        self.system = system  # the system message sent with the prompt
        self.prompt_extra: Mapping[str, Any] = {}  # the prompt's fields that one protocol has

    @property
    def session(self) -> Session:
        """The session as of the last event that this turn stored."""
        return self._port.session

    @property
    def local(self) -> bool:
        """True if the local user sent every prompt of this turn.

        For other callers an agent runs programs in a sandbox, or not at all.
        """
        return self._port.local

    @property
    def tools(self) -> Tools:
        """The MCP servers that the session was opened with.

        They run with the local user's rights, so turns with prompts from other callers have none.
        """
        return self._tools if self.local else NoTools()

    def keyring(self, *, private: bool = False) -> Keyring:
        """Return the credentials of the session's vaults, for MCP servers and the agent's programs.

        With `private`, a token may be renewed at a private network address. Turns of the local
        user may always do that, unless an API key has set the credential.
        """
        return self._port.keyring(private=private)

    async def outputs(self) -> str | None:
        """Return the directory whose files segue stores after the turn, or None without one."""
        return await self._port.outputs()

    @property
    def mounts(self) -> tuple[str, ...]:
        """Absolute paths that segue maps into `cwd`, if segue created that directory."""
        return self._port.mounts()

    @property
    def private_directories(self) -> tuple[str, ...]:
        """Directories of segue that programs of callers other than the local user must not see.

        `cwd` may be inside of one.
        """
        return self._port.private_directories()

    async def read_only_directories(self) -> tuple[str, ...]:
        """Return directories below `cwd` that the agent may read but not change."""
        return await self._port.read_only_directories()

    @property
    def text(self) -> str:
        """The text of the prompt."""
        return plain_text(self.prompt)

    @property
    def cwd(self) -> str:
        """The session's working directory, which relative paths start from."""
        return self.session.cwd

    @property
    def roots(self) -> tuple[str, ...]:
        """Every directory that the agent may work in, `cwd` first."""
        session = self.session
        return (session.cwd, *session.roots)

    async def history(self, *, since_compaction: bool = False) -> list[Event]:
        """Return the events before this turn's prompt.

        With `since_compaction`, return only those since the last compaction.
        """
        return await self._port.history(since_compaction=since_compaction)

    async def emit(self, *bodies: AnyBody | Draft) -> list[Event]:
        """Store events. When this returns they are durable and every follower has them."""
        stream = self._stream
        try:
            return await self._port.append([*self._take_stream(), *bodies])
        except BaseException:
            # The append may have succeeded or not. The engine stores the message again at the end
            # of the turn; the store ignores an event id that it already has.
            self._stream = self._stream or stream
            raise

    async def begin_request(self, model: str | None = None) -> str:
        """Begin a request to a model, and return its id.

        The messages, thoughts and tool calls up to its end are its response. The request ends with
        a ModelCalled event with this id in `asked`. If it is emitted with the last event of the
        response, that event has the usage, and the ModelCalled event is not stored.
        """
        await self.emit()
        return await self._port.begin_request(model)

    async def send_message(self, text: str) -> None:
        """Store a complete message."""
        await self.emit(AgentMessage(content=as_content(text)))

    async def delta(
        self,
        text: str,
        kind: StreamKind = "message",
        *,
        message_id: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """Stream a part of a message or a thought.

        Consecutive parts of one kind form one message. It is stored when the agent emits another
        event or the turn ends. The first part may choose the id of the message and its `extra`.
        """
        if self._stream is not None and self._stream.kind != kind:
            await self.emit()
        if self._stream is None:
            self._stream = _Stream(kind, message_id, extra)
        stream = self._stream
        self._port.publish_delta(stream.id, kind, stream.size, text)
        stream.parts.append(text)
        stream.size += len(text)

    async def tool(
        self,
        name: str,
        *,
        input: Any = None,
        title: str | None = None,
        kind: ToolKind = "other",
        custom: bool = False,
    ) -> str:
        """Store a tool call and return its id, which the ToolResult must carry.

        The client runs a `custom` tool; `result` waits for its result.
        """
        call_id = ids.new_id()
        await self.emit(
            ToolCall(call_id=call_id, name=name, title=title, kind=kind, input=input, custom=custom)
        )
        return call_id

    async def result(self, call_id: str) -> list[Event]:
        """Wait until a client submits the result of a call, and return the stored events.

        The first event is the ToolResult; other events that the client sent with it follow.
        """
        await self.emit()
        return await self._port.result(call_id)

    async def request_permission(
        self,
        title: str,
        options: Sequence[Option] = (ALLOW, ALLOW_ALWAYS, REJECT),
        call_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Ask the user for permission, through any interface, and wait for the answer.

        `extra` has fields that only one protocol has, for clients that use it.
        """
        await self.emit()
        request = PermissionRequest(
            title=title, options=tuple(options), call_id=call_id, extra=dict(extra or {})
        )
        return await self._port.request_permission(request)

    def publish(self, payload: Any) -> None:
        """Send a message of the agent as it is to clients that use the agent's protocol."""
        self._port.publish(payload)

    @property
    def session_port(self) -> SessionPort:
        """The port that adds to the session when this turn is over."""
        return self._port.session_port

    async def ask(self, requests: Sequence[PermissionRequest]) -> list[Answer | None]:
        """Ask the user for permissions, all at once, and do not wait for the answers.

        Returns the answers that the session's mode gives already, None for the others. For agents
        that can resume: see SupportsResume.
        """
        await self.emit()
        return await self._port.ask(requests)

    async def events(self) -> list[Event]:
        """Return the stored events of this turn, its prompt included."""
        await self.emit()
        return await self._port.events()

    async def take_new_prompts(self) -> list[Event]:
        """Add the prompts that arrived since the turn began to it, and return their events."""
        await self.emit()
        return await self._port.take_new_prompts()

    def take_unstored(self) -> list[Draft]:
        """Return the streamed text that is not stored, as a partial message, and pending events.

        The turn engine calls this when the turn ends.
        """
        bodies, self._at_end = self._at_end, []
        return [*self._take_stream(partial=True), *(Draft(body=body) for body in bodies)]

    def emit_at_end(self, *bodies: AnyBody) -> None:
        """Store events when the turn ends; for an agent that is being cancelled."""
        self._at_end += bodies

    async def finish(
        self, *, partial: bool = False, extra: dict[str, Any] | None = None
    ) -> list[Event]:
        """Store the streamed message; set `partial` if the message is incomplete."""
        if self._stream is None:
            return []
        self._stream.partial = partial
        if extra is not None:
            self._stream.extra = extra
        return await self.emit()

    def _take_stream(self, *, partial: bool = False) -> list[Draft]:
        stream, self._stream = self._stream, None
        return [] if stream is None else [stream.draft(partial=partial)]


class _Stream:
    """A message that is being streamed."""

    def __init__(
        self, kind: StreamKind, id: str | None = None, extra: dict[str, Any] | None = None
    ) -> None:
        self.id = id or ids.new_id()
        self.kind = kind
        self.parts: list[str] = []
        self.size = 0
        self.partial = False
        self.extra = extra or {}

    def draft(self, *, partial: bool) -> Draft:
        text = "".join(self.parts)
        return streamed_draft(
            self.id, self.kind, text, partial=partial or self.partial, extra=self.extra
        )


def streamed_draft(
    id: str, kind: StreamKind, text: str, *, partial: bool, extra: dict[str, Any] | None = None
) -> Draft:
    """Return the event for a streamed message or thought."""
    body = AgentMessage if kind == "message" else AgentThought
    return Draft(id=id, body=body(content=(Text(text=text),), partial=partial, extra=extra or {}))


class NoTools:
    """The Tools of a session without MCP servers."""

    def servers(self) -> Sequence[str]:
        return ()

    async def offered(self) -> Sequence[McpTool]:
        return ()

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        text = f"no MCP server named {server!r} is connected to this session"
        return ToolResult(call_id="", status="failed", content=as_content(text))
=======
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
    NoTools,
    PermissionRequest,
    SessionPort,
    StreamKind,
    Tools,
    TurnPort,
)
from .tool_run import ToolRun
from .turn import (
    Turn,
    streamed_draft,
)

__all__ = [
    "ALLOW",
    "ALLOW_ALWAYS",
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
    "NoTools",
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
    "Switch",
    "Terminal",
    "ToolRun",
    "Tools",
    "Turn",
    "TurnPort",
    "streamed_draft",
]
>>>>>>> acp

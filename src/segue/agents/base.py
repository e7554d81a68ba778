"""Agent and Turn: all that an agent needs to know of segue.

    class Echo:
        async def run(self, turn: Turn) -> StopReason:
            await turn.say(f"You said: {turn.text}")
            return "end_turn"

That is a whole agent: every door can drive it, its turns are stored, listed, searched and
replayed. `run` is cancelled like any task when somebody cancels the turn; what it had streamed
by then is kept and marked partial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from segue.model import ids
from segue.model.content import Content, Text, as_content, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Draft,
    Event,
    Option,
    OutcomeDefined,
    ToolCall,
    ToolKind,
    ToolResult,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session

if TYPE_CHECKING:
    from segue.acp.wire import LoginMethod

StreamKind = Literal["message", "thought"]

ALLOW = Option(id="allow", name="Allow", kind="allow_once")
ALLOW_ALWAYS = Option(id="allow_always", name="Always allow", kind="allow_always")
REJECT = Option(id="reject", name="Reject", kind="reject_once")


class Agent(Protocol):
    """Anything with this one method."""

    async def run(self, turn: Turn) -> StopReason:
        """Answer `turn.prompt` by emitting events; say how it ended."""
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """An agent that knows before its turn whether it could answer at all."""

    async def check(self) -> None:
        """NoAgent, which says what is missing, if it could not."""
        ...


@runtime_checkable
class SupportsRelease(Protocol):
    """An agent that keeps something for a session between its turns."""

    async def release(self, session: str) -> None:
        """The session was closed: let go of what was kept for it."""
        ...


class AgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that an agent has begun on its own side: the id that it should have here, and the
    agent's own name for it. `keep` says which id it got, and gives the options to know it by."""

    id: str
    native_id: str
    bind: Callable[[str], dict[str, Any]]


@runtime_checkable
class OwnsSessions(Protocol):
    """An agent that has sessions of its own, and is asked when one begins.

    Such an agent connects a session's MCP servers itself: `tools` only names them.
    """

    async def start_session(
        self, cwd: str, roots: Sequence[str], tools: Tools | None
    ) -> AgentSession: ...


@runtime_checkable
class HasOptions(Protocol):
    """An agent that has options of its own, in the session's options under `offered`."""

    async def set_option(
        self, session: Session, tools: Tools | None, option: str, value: str | bool
    ) -> Any:
        """Choose a value; what is offered then."""
        ...


@runtime_checkable
class NeedsLogin(Protocol):
    """An agent that may want somebody to log in first."""

    async def logins(self) -> Sequence[LoginMethod]: ...
    async def log_in(self, id: str) -> None: ...
    async def log_out(self) -> None: ...


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody said to a permission question; no option when it was withdrawn.

    With an `input`, what was asked about may be done with that instead.
    """

    option: Option | None = None
    note: str | None = None
    input: dict[str, Any] | None = None

    @property
    def allowed(self) -> bool:
        return self.option is not None and self.option.kind.startswith("allow")


class Tools(Protocol):
    """The MCP servers that are connected for a session."""

    def servers(self) -> Sequence[str]: ...
    async def offered(self) -> Sequence[McpTool]:
        """What the servers' tools are, now."""
        ...

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; its result, with an empty call_id. A failure is a result too."""
        ...


class McpTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that a connected MCP server offers."""

    server: str
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class Keyring(Protocol):
    """What the session's vaults hold; each is opened when it is asked for."""

    async def token(self, url: str, refused: str | None = None) -> str | None:
        """The bearer token for the MCP server at an address, if there is one.

        `refused` is one that the server did not take: another is fetched, where that is possible.
        """
        ...

    async def variables(self) -> dict[str, str]:
        """What is secret in the environment of programs that the agent runs.

        It belongs nowhere else: not into an event, nor into what a model is told.
        """
        ...


class TurnPort(Protocol):
    """What the turn engine does for a Turn."""

    @property
    def session(self) -> Session: ...
    @property
    def local(self) -> bool: ...
    def keyring(self, *, private: bool) -> Keyring: ...
    async def outputs(self) -> str | None: ...
    def mounts(self) -> tuple[str, ...]: ...
    async def append(self, drafts: Sequence[AnyBody | Draft]) -> list[Event]: ...
    async def history(self, *, whole: bool) -> list[Event]: ...
    async def request_permission(
        self, title: str, options: Sequence[Option], call_id: str | None
    ) -> Answer: ...
    async def result(self, call_id: str) -> list[Event]: ...
    async def more(self) -> list[Event]: ...
    def publish_delta(self, message: str, kind: StreamKind, offset: int, text: str) -> None: ...


class Turn:
    """One prompt being answered."""

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
        self._left: list[AnyBody] = []
        self.prompt = prompt
        self.id = turn_id
        self._tools = tools
        self.outcome = outcome  # what the prompt asks to be reached, if it is such a prompt
        self.system = system  # what its sender's system said with it

    @property
    def session(self) -> Session:
        """The session as of the last event that this turn stored."""
        return self._port.session

    @property
    def local(self) -> bool:
        """Whether everybody who spoke in this turn is the local user.

        For anybody else an agent runs programs confined, or not at all.
        """
        return self._port.local

    @property
    def tools(self) -> Tools:
        """The MCP servers that the session was opened with; they run as the local user's.

        So there are none in a turn in which anybody else has spoken.
        """
        return self._tools if self.local else NoTools()

    def keyring(self, *, private: bool = False) -> Keyring:
        """The credentials of the session's vaults, for MCP servers and programs of its agent.

        `private` says that a token may be renewed at a private address, as the local user's may.
        """
        return self._port.keyring(private=private or self.local)

    async def outputs(self) -> str | None:
        """The directory whose files people are given after the turn, if the session has one."""
        return await self._port.outputs()

    @property
    def mounts(self) -> tuple[str, ...]:
        """Absolute paths that mean places in `cwd`, where that is a directory which segue made."""
        return self._port.mounts()

    @property
    def text(self) -> str:
        """The prompt's text."""
        return plain_text(self.prompt)

    @property
    def cwd(self) -> str:
        """The session's working directory; relative paths mean this one."""
        return self.session.cwd

    @property
    def roots(self) -> tuple[str, ...]:
        """Every directory that the agent may work in, `cwd` first."""
        session = self.session
        return (session.cwd, *session.roots)

    async def history(self, *, whole: bool = True) -> list[Event]:
        """Everything before this turn's prompt; not `whole`, from the last compaction on."""
        return await self._port.history(whole=whole)

    async def emit(self, *bodies: AnyBody | Draft) -> list[Event]:
        """Store events. They are durable, and on every follower's screen, when this returns."""
        stream = self._stream
        try:
            return await self._port.append([*self._finish(), *bodies])
        except BaseException:
            # It may be stored or not; the engine will ask for it again, and its id keeps it single.
            self._stream = self._stream or stream
            raise

    async def say(self, text: str) -> None:
        """Say something whole."""
        await self.emit(AgentMessage(content=as_content(text)))

    async def delta(self, text: str, kind: StreamKind = "message") -> None:
        """Stream a piece of a message or a thought.

        Pieces of one kind make one message, which is stored when something else is emitted or
        the turn ends.
        """
        if self._stream is not None and self._stream.kind != kind:
            await self.emit()
        if self._stream is None:
            self._stream = _Stream(kind)
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
        """Begin a tool call; its id, which the ToolResult must carry.

        A `custom` tool is run by the client: `result` waits for what comes of it.
        """
        call_id = ids.new_id()
        await self.emit(
            ToolCall(call_id=call_id, name=name, title=title, kind=kind, input=input, custom=custom)
        )
        return call_id

    async def result(self, call_id: str) -> list[Event]:
        """Wait until somebody at a door gives the result of a call, which is stored then.

        The ToolResult comes first, and after it what else was said with it.
        """
        await self.emit()
        return await self._port.result(call_id)

    async def request_permission(
        self,
        title: str,
        options: Sequence[Option] = (ALLOW, ALLOW_ALWAYS, REJECT),
        call_id: str | None = None,
    ) -> Answer:
        """Ask whoever is at a door for permission, and wait for the answer."""
        await self.emit()
        return await self._port.request_permission(title, options, call_id)

    async def more(self) -> list[Event]:
        """Prompts that were sent since the turn began, now part of it."""
        await self.emit()
        return await self._port.more()

    def take_unstored(self) -> list[Draft]:
        """What was streamed and not stored, as a partial message: the engine's last question."""
        left, self._left = self._left, []
        return [*self._finish(partial=True), *(Draft(body=body) for body in left)]

    def emit_at_end(self, *bodies: AnyBody) -> None:
        """Have events stored with the turn's end: for an agent that is being cancelled."""
        self._left += bodies

    async def finish(
        self, *, partial: bool = False, extra: dict[str, Any] | None = None
    ) -> list[Event]:
        """Store what was streamed; `partial` if it never came to its end."""
        if self._stream is None:
            return []
        self._stream.partial, self._stream.extra = partial, extra or {}
        return await self.emit()

    def _finish(self, partial: bool = False) -> list[Draft]:
        stream, self._stream = self._stream, None
        return [] if stream is None else [stream.draft(partial)]


class _Stream:
    def __init__(self, kind: StreamKind) -> None:
        self.id = ids.new_id()
        self.kind = kind
        self.parts: list[str] = []
        self.size = 0
        self.partial = False
        self.extra: dict[str, Any] = {}

    def draft(self, partial: bool) -> Draft:
        text = "".join(self.parts)
        return streamed_draft(self.id, self.kind, text, partial or self.partial, self.extra)


def streamed_draft(
    id: str, kind: StreamKind, text: str, partial: bool, extra: dict[str, Any] | None = None
) -> Draft:
    """A streamed message as the event it becomes."""
    body = AgentMessage if kind == "message" else AgentThought
    return Draft(id=id, body=body(content=(Text(text=text),), partial=partial, extra=extra or {}))


class NoTools:
    """No MCP servers at all."""

    def servers(self) -> Sequence[str]:
        return ()

    async def offered(self) -> Sequence[McpTool]:
        return ()

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        text = f"no MCP server named {server!r} is connected to this session"
        return ToolResult(call_id="", status="failed", content=as_content(text))

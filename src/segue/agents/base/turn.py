"""Turn: one prompt that an agent answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from segue.model import ids
from segue.model.content import Block, Content, Text, as_content, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    ConfigChanged,
    Draft,
    Event,
    InfoChanged,
    ModelCalled,
    Option,
    OutcomeDefined,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolKind,
    Usage,
)
from segue.model.session import Session

from .client import PROTOCOL, Client
from .declaration import MODE, MODEL, OFFERED, Commands, offered_commands, with_value
from .ports import (
    ALLOW,
    REJECT,
    Answer,
    Keyring,
    NoTools,
    PermissionRequest,
    SessionPort,
    StreamKind,
    ThreadPort,
    ThreadsPort,
    Tools,
    TurnPort,
)
from .tool_run import Paths, ToolRun

PlanStatus = Literal["pending", "in_progress", "completed", "cancelled"]


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
        self._at_end: list[AnyBody | Draft] = []
        self.prompt = prompt
        self.id = turn_id
        self._tools = tools
        self.waiting_calls: set[str] = set()  # a resumable agent waits for their results
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

    async def read_only_directories(self) -> tuple[str, ...]:
        """Return directories below `cwd` that the agent may read but not change."""
        return await self._port.read_only_directories()

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

    @property
    def thread(self) -> str | None:
        """The thread that this turn is a part of; None for the session's own agent."""
        return self._port.thread

    @property
    def threads(self) -> ThreadsPort:
        """The session's threads: agents that its own agent has delegated work to."""
        return self._port.threads

    def in_thread(self, port: ThreadPort) -> Turn:
        """Return what a thread does for a tool call of this turn, as a turn of its own."""
        return Turn(port, port.prompt, port.message_id, self._tools)

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

    def tool(
        self,
        name: str,
        *,
        input: Any = None,
        title: str | None = None,
        kind: ToolKind = "other",
        content: str | Block | Iterable[Block] = (),
        locations: Paths = (),
        meta: dict[str, Any] | None = None,
    ) -> ToolRun:
        """Return a tool call of the agent; `async with` begins and ends it.

        `meta` is the `_meta` of the call for ACP clients.
        """
        return ToolRun(
            self,
            name,
            input=input,
            title=title,
            kind=kind,
            content=content,
            locations=locations,
            meta=meta,
        )

    async def start_tool(
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

    async def plan(
        self, entries: Mapping[str, PlanStatus] | Iterable[str | PlanEntry], *, id: str = "plan"
    ) -> None:
        """Show the complete plan: each step with its status, or steps that are pending."""
        if isinstance(entries, Mapping):
            steps = [PlanEntry(content=step, status=status) for step, status in entries.items()]
        else:
            steps = [
                entry if isinstance(entry, PlanEntry) else PlanEntry(content=entry)
                for entry in entries
            ]
        await self.emit(PlanChanged(entries=tuple(steps), plan_id=id))

    async def title(self, title: str | None) -> None:
        """Set the title of the session, unless a person has chosen one; None removes it."""
        await self.emit(InfoChanged(title=title, by="agent"))

    async def usage(
        self,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        cost: float | None = None,
        context_used: int | None = None,
        context_size: int | None = None,
    ) -> None:
        """Report what a model request used: tokens, US dollars, and how full the context is.

        Tokens that were read from or written to a cache are not part of `input_tokens`.
        """
        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            cost=None if cost is None else round(cost * 1_000_000),
        )
        await self.emit(
            ModelCalled(
                usage=usage, model=model, context_used=context_used, context_size=context_size
            )
        )

    @property
    def client(self) -> Client:
        """The client that sent the prompt: its files, terminals, forms and extensions."""
        return Client(self._port.client)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the prompt."""
        meta = self.prompt_extra.get(PROTOCOL, {}).get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def options(self) -> Mapping[str, str | bool]:
        """The values of the options that the agent declared, by id; the mode is `mode`."""
        offered = self.session.options.get(OFFERED, {}).get("options", ())
        return {option["id"]: option["value"] for option in offered}

    async def set_option(self, id: str, value: str | bool) -> None:
        """Change an option that the agent declared, such as its mode; clients show the change.

        Raises InvalidInput if the agent did not declare this option or value.
        """
        offered = self.session.options.get(OFFERED, {})
        await self.emit(ConfigChanged(options={OFFERED: with_value(offered, id, value)}))

    async def set_commands(self, commands: Commands) -> None:
        """Replace the commands that clients show in this session."""
        offered = {**self.session.options.get(OFFERED, {}), "commands": offered_commands(commands)}
        await self.emit(ConfigChanged(options={OFFERED: offered}))

    @property
    def mode(self) -> str | None:
        """The user's choice among the modes that the agent declared."""
        mode = self.options.get(MODE)
        return mode if isinstance(mode, str) else None

    @property
    def model(self) -> str | None:
        """The user's choice among the models that the agent declared."""
        model = self.options.get(MODEL)
        return model if isinstance(model, str) else None

    async def result(self, call_id: str) -> list[Event]:
        """Wait until a client submits the result of a call, and return the stored events.

        The first event is the ToolResult; other events that the client sent with it follow.
        """
        await self.emit()
        return await self._port.result(call_id)

    async def request_permission(
        self,
        title: str,
        options: Sequence[Option] = (ALLOW, REJECT),
        call_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Ask the user for permission, through any interface, and wait for the answer.

        If `options` has one to allow always, the agent must remember the answer itself; a ToolRun
        does.
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
        drafts = [body if isinstance(body, Draft) else Draft(body=body) for body in bodies]
        return [*self._take_stream(partial=True), *drafts]

    def emit_at_end(self, *bodies: AnyBody | Draft) -> None:
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

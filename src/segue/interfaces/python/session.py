"""A session in a program's hands: send, stream, send again.

    async with segue.create_session(model="anthropic:claude-sonnet-4-6") as session:
        await session.send("What does this project do?")
        async for message in session.stream():
            print(message)

What is said is kept in the default store, where every other door finds it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Any, Self

from msgspec.structs import replace

from segue.agents.model.settings import DEMO, FUNCTIONS
from segue.agents.turn_hooks import HOOKS_KEY, TurnHooks
from segue.hub import Hub
from segue.hub.sessions import directories
from segue.hub.turns.inbox import Said
from segue.model import ids
from segue.model.content import Block, Content, as_content, plain_text
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.event import Delta, PermissionAsked, ToolCall
from segue.model.principal import LOCAL

from .hooks import ProgramHooks
from .messages import Message, SystemMessage, Tally, ended, message, partial
from .opening import Opened, opened
from .options import Options, check, overrides, server
from .permission import Permission, changes, permission
from .tools import functions

CLOSED = "Cannot send to closed session"


class SDKSession:
    """One conversation, new or taken up again. Closing it ends a turn that still runs."""

    def __init__(
        self,
        session_id: str,
        model: str,
        options: Options,
        *,
        new_in: str | None = None,
        known_in: str | None = None,
    ) -> None:
        """New in one directory; or known, if that is said, to be in one."""
        self.session_id = session_id
        self._model = model
        self._new_in = new_in
        self._known_in = known_in
        check(model, options)
        self._tools = functions(options.get("tools", ()))
        self._running: set[asyncio.Task[None]] = set()  # tools of the program's
        self._overrides = overrides(model, options)
        self._mode = options.get("permission_mode")
        given = options.get("mcp_servers") or {}
        env = dict(options.get("env") or {})
        self._servers = [server(name, told, env) for name, told in given.items()]
        hooks = options.get("hooks")
        self._hooks = ProgramHooks(hooks) if hooks else None
        self._turn_hooks = TurnHooks(self._hooks, env)
        self._hooks_id: str | None = None
        self._ask = options.get("can_use_tool")
        self._pieces = options.get("include_partial_messages", False)
        self._where = options.get("store")
        self._opening = asyncio.Lock()
        self._opened: Opened | None = None
        self._closed = False
        self._sent: deque[str] = deque()
        self._seen = 0  # the end of the last turn that was streamed
        self._init: SystemMessage | None = None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, prompt: str | Block | Iterable[Block]) -> None:
        """Ask something. It is kept when this returns; `stream` tells what comes of it."""
        hub = (await self._open()).hub
        content = as_content(prompt)
        turn = await hub.prompt(
            LOCAL,
            self.session_id,
            content,
            system=await self._added(hub, content),
            overrides=self._for_turns(),
            mode=self._mode,
        )
        self._sent.append(turn)

    async def stream(self) -> AsyncGenerator[Message, None]:
        """What happens until the answer to what was sent first is whole; `result` is the last.

        Call it again for what was sent after that. Nothing comes where nothing was sent.
        """
        hub = (await self._open()).hub
        while self._sent:
            turn = self._sent.popleft()
            if self._init is not None:
                yield replace(self._init, uuid=ids.new_id())
            begin = await hub.begun(LOCAL, self.session_id, turn)
            if begin is None or begin <= self._seen:
                continue  # taken back, or answered by a turn that was streamed already
            async with aclosing(self._turn(hub, begin)) as messages:
                async for each in messages:
                    yield each
            return

    async def close(self) -> None:
        """End a turn that still runs and let go of everything. Calling it again does nothing."""
        self._closed = True
        for task in self._running:
            task.cancel()
        held, self._opened = self._opened, None
        if held is not None:
            try:
                if self._hooks_id is not None:  # what has not begun is nobody else's to answer
                    for turn in self._sent:
                        await held.hub.withdraw(LOCAL, self.session_id, turn)
            finally:
                await held.close()
            if self._hooks_id is not None:
                held.hub.agent_registry.hooks.unregister(self._hooks_id)

    async def _open(self) -> Opened:
        if self._closed:
            raise Conflict(CLOSED)
        async with self._opening:
            if self._opened is None:
                self._opened = await opened(self._where)
                try:
                    await self._prepare(self._opened)
                except BaseException:
                    await self.close()
                    raise
            return self._opened

    async def _prepare(self, held: Opened) -> None:
        hub = held.hub
        if self._turn_hooks != TurnHooks():
            self._hooks_id = hub.agent_registry.hooks.register(self._turn_hooks)
        if self._new_in is not None:
            built_in = await hub.records.built_in_agent(LOCAL.workspace)
            agent = replace(built_in, overrides=self._overrides)
            session = await hub.create(LOCAL, id=self.session_id, cwd=self._new_in, agent=agent)
        else:
            session = await hub.promptable(LOCAL, self.session_id, overrides=self._for_turns())
            if self._known_in is not None and directories.real(self._known_in) != session.directory:
                raise InvalidInput(f"cwd: session {session.id} works in {session.cwd}")
            self._seen = session.last_seq
        failed = await held.hold(session, self._servers)
        self._init = SystemMessage(
            session_id=session.id,
            uuid=ids.new_id(),
            cwd=session.cwd,
            model=self._model,
            permission_mode=self._mode or session.mode or "default",
            mcp_servers=[
                {"name": each.name, "status": "failed" if each.name in failed else "connected"}
                for each in self._servers
            ],
        )

    def _for_turns(self) -> dict[str, Any]:
        """What this program asks of its own turns, beyond what the session is made with."""
        # The model that it names answers, whichever agent the session has.
        own: dict[str, Any] = {"kind": DEMO if self._model == DEMO else "default"}
        if self._tools:
            own[FUNCTIONS] = [tool.definition() for tool in self._tools.values()]
        if self._hooks_id is not None:
            own[HOOKS_KEY] = self._hooks_id
        return {**self._overrides, **own}

    async def _added(self, hub: Hub, content: Content) -> Said | None:
        """What hooks add to a prompt, unless they block it."""
        if self._hooks is None:
            return None
        session = await hub.get(LOCAL, self.session_id)
        context = await self._hooks.prompted(
            session, self._mode or session.mode, plain_text(content)
        )
        return None if context is None else Said(id=ids.new_id(), content=as_content(context))

    async def _turn(self, hub: Hub, begin: int) -> AsyncGenerator[Message, None]:
        tally = Tally()
        follow = hub.follow(LOCAL, self.session_id, begin - 1, deltas=self._pieces)
        async with aclosing(follow) as items:
            async for item in items:
                if isinstance(item, Delta):
                    yield partial(item)
                    continue
                tally.add(item)
                if isinstance(item.body, ToolCall) and item.body.custom:
                    self._run(hub, item.body)
                if isinstance(item.body, PermissionAsked):
                    await self._answer(hub, item.body, tally)
                if (told := message(self.session_id, item)) is not None:
                    yield told
                if (reason := ended(item)) is not None:
                    self._seen = item.seq
                    yield tally.result(self.session_id, item, reason)
                    return

    def _run(self, hub: Hub, call: ToolCall) -> None:
        """Run a tool of the program's, while others may run too; other clients have theirs."""
        if (tool := self._tools.get(call.name)) is None:
            return

        async def run() -> None:
            result = await tool.call(call.call_id, call.input)
            with suppress(NotFound):  # the turn was cancelled
                await hub.give(LOCAL, self.session_id, result)

        task = asyncio.create_task(run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, hub: Hub, asked: PermissionAsked, tally: Tally) -> None:
        session = await hub.get(LOCAL, self.session_id)
        if asked.ask_id not in session.open_asks:
            return  # somebody answered at another door
        try:
            said = await permission(self._ask, asked, tally.called(asked.call_id))
            changed = changes(said.updates, session, self._mode)
        except BaseException:
            await self._reply(hub, asked, Permission(False, "whoever decides about this failed"))
            raise
        for change in changed:
            await hub.configure(LOCAL, self.session_id, change)
        await self._reply(hub, asked, said)
        if not said.allowed:
            tally.denied(asked.call_id)
        if said.interrupt:
            await hub.cancel(LOCAL, self.session_id)

    async def _reply(self, hub: Hub, asked: PermissionAsked, said: Permission) -> None:
        wanted = "allow_once" if said.allowed else "reject_once"
        option = next((each.id for each in asked.options if each.kind == wanted), None)
        with suppress(NotFound):  # the turn was cancelled, or somebody else answered
            await hub.answer(
                LOCAL, self.session_id, asked.ask_id, option, said.note, input=said.input
            )

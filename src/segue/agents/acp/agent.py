"""Answering a turn by prompting a child, in a session of its own that is one with ours."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from segue.acp.client import AcpClient, UnsupportedCapability
from segue.acp.content import write_blocks
from segue.acp.rpc import AUTH_REQUIRED, Disconnected, RpcError
from segue.acp.wire import HttpMcpServer, LoginMethod, SessionInfo
from segue.agents.base import AgentSession, Tools, Turn
from segue.model import ids
from segue.model.content import Audio, Block, Content, Image, Resource, ResourceLink, Text
from segue.model.errors import AgentFailed, NoAgent, SegueError, Unauthorized
from segue.model.event import AnyBody, ConfigChanged
from segue.model.lifecycle import StopReason
from segue.model.session import Session

from .agent_options import MODE, OFFERED, login
from .client_requests import ClientProxy, Files
from .history_prompt import primer
from .processes import Child, Children, Command, Hearer
from .update_handler import Hearing, Recorder, stopped, title_of

log = logging.getLogger("segue.agents.acp")

OPTION = "acp"  # where a session keeps which session of the child it is
CANCEL_SECONDS = 0.5  # that a child has to end a turn that was cancelled
COMMAND_SECONDS = 0.1  # that a new session's commands have to come
STALE_SECONDS = 5.0  # that a turn which did not obey has before its child is ended


class AcpAgents:
    """Makes agents of commands; the children are shared, and ended by `close`."""

    def __init__(self, client_proxy: ClientProxy | None = None) -> None:
        """`client_proxy` does for children what clients do."""
        self._children = Children(client_proxy)

    def build(self, spec: Mapping[str, Any]) -> AcpAgent:
        return AcpAgent(self._children, command_of(spec))

    async def close(self) -> None:
        await self._children.close()


def command_of(spec: Mapping[str, Any]) -> Command:
    """The words of the command that a specification names."""
    words = tuple(shlex.split(str(spec.get("command", ""))))
    if not words:
        raise NoAgent("an agent of kind 'acp' needs a command")
    return words


class _Own(NamedTuple):
    """The child's session that is ours, and whether the child knows the conversation."""

    id: str
    knows: bool


class AcpAgent:
    """One command, as an agent."""

    def __init__(self, children: Children, command: Command) -> None:
        self._children = children
        self._command = command

    async def run(self, turn: Turn) -> StopReason:
        if not turn.local:
            raise NoAgent(
                "this agent is a program with the local user's rights, and answers no other"
            )
        async with self._borrowed(turn.cwd) as child:
            if not await self._is_stuck(turn, child):
                return await self._answer(turn, child)
            if len(child.busy()) > 1:  # with sessions that are not to suffer for this one
                raise AgentFailed(f"{self._command[0]} has not ended the turn that was cancelled")
        await self._children.discard(self._command, child)
        async with self._borrowed(turn.cwd) as child:
            return await self._answer(turn, child)

    # Its own sessions.

    async def list_sessions(self, cwd: str | None = None) -> list[SessionInfo]:
        """Those that the child lists, all or one directory's, if it can list any."""
        async with self._borrowed(os.getcwd()) as child:  # some list that directory's alone
            if not child.client.supports("list"):
                return []
            found = child.client.sessions(cwd=cwd)
            rows = [row async for row in found if os.path.isabs(row.cwd)]
            return [replace(row, title=title_of(row.title) or None) for row in rows]

    def session_id_for(self, native: str) -> str:
        """The id that a session of the child's has here."""
        return ids.parse(native) or ids.derived_id(OPTION, *self._command, native)

    def session_options(self, native: str, id: str) -> dict[str, Any]:
        """The options of a session that is one of the child's."""
        return {OPTION: {"session": native, "of": id, "command": [*self._command]}}

    def native_id(self, session: Session) -> str | None:
        """The child's session that one of ours is."""
        kept = session.options.get(OPTION)
        if not isinstance(kept, dict) or kept.get("command") != [*self._command]:
            return None
        found = kept.get("session")
        return found if isinstance(found, str) and kept.get("of") == session.id else None

    async def logins(self) -> list[LoginMethod]:
        """The ways to log in that the child tells."""
        async with self._borrowed(os.getcwd()) as child:
            found = [login(each) for each in child.client.auth_methods]
            return [each for each in found if each is not None]

    async def log_in(self, id: str) -> None:
        async with self._borrowed(os.getcwd()) as child:
            await child.client.log_in(id)

    async def log_out(self) -> None:
        async with self._borrowed(os.getcwd()) as child:
            await child.client.log_out()

    async def start_session(
        self, cwd: str, roots: Sequence[str], tools: Tools | None
    ) -> AgentSession:
        """Begin a session in the child, so that it is the same one on both sides."""
        async with self._borrowed(cwd) as child:
            native = await child.client.new(cwd, **_setup(roots, tools, child.client))
            child.opened(native)
            if child.client.version == 1:
                await asyncio.sleep(COMMAND_SECONDS)  # they come behind the answer
            offered = child.offered[native]

        def bind(id: str) -> dict[str, Any]:
            child.ours[id] = native
            return {**self.session_options(native, id), OFFERED: offered}

        return AgentSession(id=self.session_id_for(native), native_id=native, bind=bind)

    async def set_option(
        self, session: Session, tools: Tools | None, option: str, value: str | bool
    ) -> Any:
        """Choose a value of an option that the child offers; what it offers then."""
        native = self.native_id(session)
        async with self._borrowed(session.cwd) as child:
            if native is None or not await self._has(session, tools, child, native):
                raise AgentFailed("this session is not open in its agent; prompt it first")
            offered = child.offered[native].get("options", ())
            if any(each["id"] == option and each.get("by") == MODE for each in offered):
                await child.client.set_mode(native, str(value))
                return child.learn(native, {"currentModeId": value})
            return child.learn(native, await child.client.set_option(native, option, value))

    async def read_history(self, session: Session, native: str) -> list[AnyBody]:
        """The conversation of one of the child's sessions, if the child can tell it."""
        async with self._borrowed(session.cwd) as child:
            client = child.client
            if client.version == 1 and not client.supports("load"):
                return []
            recorder = Recorder(session)
            hearing = Hearing(recorder, replaying=True)
            child.hear(native, Hearer(hearing.update, hearing.permission))
            try:
                await client.load(native, session.cwd, **_setup((), None, client))
                await hearing.finish()
            finally:
                child.unhear(native)
            return recorder.bodies

    @asynccontextmanager
    async def _borrowed(self, cwd: str) -> AsyncIterator[Child]:
        """The child; what goes wrong with it is said in words."""
        child = await self._children.borrow(self._command, cwd)
        try:
            yield child
        except UnsupportedCapability as error:
            raise AgentFailed(str(error)) from error
        except Disconnected as error:
            why = await child.why(error)
            await self._children.discard(self._command, child)
            raise AgentFailed(f"{self._command[0]} went away: {why}") from error
        except RpcError as error:
            raise self._refusal(child.client, error) from error
        finally:
            self._children.give_back(self._command)

    async def release(self, session: str) -> None:
        """Nobody has this session open any more: so the child need not, nor be there for it."""
        child = self._children.peek(self._command)
        if child is None or child.gone:
            return
        own = child.ours.pop(session, None)
        if own is not None:
            child.open.discard(own)
            if child.client.supports("close"):
                try:
                    async with asyncio.timeout(CANCEL_SECONDS):
                        await child.client.close(own)
                except (RpcError, Disconnected, TimeoutError) as error:
                    log.info("the agent's session was not closed: %s", error)
        if not child.open and self._children.unused(self._command):
            await self._children.discard(self._command, child)

    async def _answer(self, turn: Turn, child: Child) -> StopReason:
        own = await self._open(turn, child)
        await _offer(turn, child, own.id)
        before = "" if own.knows else primer(await turn.history())
        hearing = Hearing(turn, titled=bool(before) and turn.session.title is not None)
        files = Files(turn, hearing.allowed)
        child.hear(own.id, Hearer(hearing.update, hearing.permission, files, hearing.seen))
        try:
            blocks = _fitting(turn.prompt, child.client)
            if before:
                blocks.append({"type": "text", "text": before})
            work = asyncio.ensure_future(_prompt(child.client, own.id, blocks, hearing))
            child.work(own.id, work)
            try:
                result = await asyncio.shield(work)
            except asyncio.CancelledError:
                await child.client.cancel(own.id)
                child.take_back(own.id)
                await asyncio.wait([work], timeout=CANCEL_SECONDS)
                raise
            await hearing.finish()
            await hearing.spent(result.get("usage"))
            await _offer(turn, child, own.id)
            reason: StopReason = stopped(result)
            return reason
        finally:
            hearing.close()
            files.close()

    async def _is_stuck(self, turn: Turn, child: Child) -> bool:
        """Whether the child is still at a turn of this session that was cancelled."""
        before = child.working.get(child.ours.get(turn.session.id, ""))
        if before is None or before.done():
            return False
        await asyncio.wait([before], timeout=STALE_SECONDS)
        return not before.done()

    # The child's session.

    async def _open(self, turn: Turn, child: Child) -> _Own:
        """The child's session for this one: the same as before, a fork of it, or a new one."""
        before = self.native_id(turn.session)
        if before is not None and await self._has(turn.session, turn.tools, child, before):
            return _Own(before, True)
        own = await self._new(turn, child)
        child.opened(own.id, turn.session.id)
        await turn.emit(ConfigChanged(options=self.session_options(own.id, turn.session.id)))
        return own

    async def _has(self, session: Session, tools: Tools | None, child: Child, id: str) -> bool:
        """Whether the child has its session open for this one of ours, opened again if need be."""
        if child.ours.get(session.id) == id:
            return True
        # One that counts its sessions anew gives the same name to another.
        if id in child.open or not await self._again(session, tools, child, id):
            return False
        child.opened(id, session.id)
        return True

    async def _again(self, session: Session, tools: Tools | None, child: Child, id: str) -> bool:
        """Whether the child has its session again. Its history is ours already, and not heard."""
        replayed = 0

        async def count(update: dict[str, Any]) -> None:
            nonlocal replayed
            replayed += str(update.get("sessionUpdate")).endswith(("message", "message_chunk"))

        async def never(request: dict[str, Any]) -> None:
            return None

        client, more = child.client, _setup(session.roots, tools, child.client)
        for way, open_it in (("resume", client.resume), ("load", client.load)):
            if not client.supports(way):
                continue
            child.hear(id, Hearer(count, never))
            try:
                await open_it(id, session.cwd, **more)
            except RpcError as error:
                if error.code == AUTH_REQUIRED:
                    raise
                log.info("%s: %s of %s: %s", self._command[0], way, id, error.message)
                continue
            finally:
                child.unhear(id)
            # Some answer yes to a session that they do not know; a load shows it.
            if way == "resume" or replayed:
                return True
        return False

    async def _new(self, turn: Turn, child: Child) -> _Own:
        parent = self._parent(turn.session)
        more = _setup(turn.session.roots, turn.tools, child.client)
        if parent is not None and child.client.supports("fork"):
            try:
                return _Own(await child.client.fork(parent, turn.cwd, **more), True)
            except RpcError as error:
                log.info("%s: fork of %s: %s", self._command[0], parent, error.message)
        return _Own(await child.client.new(turn.cwd, **more), False)

    def _parent(self, session: Session) -> str | None:
        """The child's session that this one, a fork, has its history from."""
        kept = session.options.get(OPTION)
        if not isinstance(kept, dict) or kept.get("command") != [*self._command]:
            return None
        return None if kept.get("of") == session.id else kept.get("session")

    def _refusal(self, client: AcpClient, error: RpcError) -> SegueError:
        if error.code != AUTH_REQUIRED:
            return AgentFailed(f"{self._command[0]}: {error.message}")
        ways = [str(each.get("name")) for each in client.auth_methods if each.get("name")]
        how = f" ({', '.join(ways)})" if ways else ""
        return Unauthorized(f"{self._command[0]} wants you to log in first, in its own way{how}")


async def _offer(turn: Turn, child: Child, native: str) -> None:
    """Keep what the child offers, where that is news."""
    offered = child.offered.get(native, {})
    if offered != turn.session.options.get(OFFERED, {}):
        await turn.emit(ConfigChanged(options={OFFERED: offered}))


async def _prompt(
    client: AcpClient, id: str, blocks: Sequence[Any], hearing: Hearing
) -> dict[str, Any]:
    """How the turn ended: version 1 answers with it, version 2 tells it later."""
    result = await client.prompt(id, blocks)
    if client.version == 1:
        return result
    gone: asyncio.Future[Any] = asyncio.ensure_future(client.wait_closed())
    rest: asyncio.Future[Any] = hearing.rest
    try:
        await asyncio.wait([rest, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    if not rest.done():
        raise Disconnected("the agent went away")
    return hearing.rest.result()


def _setup(roots: Sequence[str], tools: Tools | None, client: AcpClient) -> dict[str, Any]:
    """What a child is told beside the directory: further roots, and the client's MCP servers."""
    more: dict[str, Any] = {}
    if roots and client.supports("additionalDirectories"):
        more["additionalDirectories"] = [*roots]
    given = getattr(tools, "configs", None)
    servers = []
    for server in given() if given is not None else ():
        told = msgspec.to_builtins(server)
        lists: dict[str, Any] = (
            {"headers": []} if isinstance(server, HttpMcpServer) else {"args": [], "env": []}
        )
        if isinstance(server, HttpMcpServer):
            told = {"type": "http", **told}
        elif client.version == 2:
            told = {"type": "stdio", **told}
        servers.append({**lists, **told})
    more["mcpServers"] = servers
    return more


def _fitting(prompt: Content, client: AcpClient) -> list[Any]:
    """A prompt in blocks that this child takes; what it does not becomes words or a link."""
    found: list[Block] = []
    for block in prompt:
        match block:
            case Image() if not client.accepts_content("image"):
                found.append(Text(text=f"[an image of type {block.mime}]"))
            case Audio() if not client.accepts_content("audio"):
                found.append(Text(text=f"[a sound of type {block.mime}]"))
            case Resource() if not client.accepts_content("embeddedContext"):
                if block.text is not None:
                    found.append(Text(text=f"{block.uri}:\n\n{block.text}"))
                else:
                    found.append(ResourceLink(uri=block.uri, name=block.uri, mime=block.mime))
            case _:
                found.append(block)
    return [msgspec.to_builtins(each) for each in write_blocks(found)]

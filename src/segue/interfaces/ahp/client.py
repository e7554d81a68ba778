"""One client: its drafts, the chats that it follows, and the actions that it receives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from segue.acp.rpc import RpcError
from segue.hub import Hub
from segue.hub.turns.opened import OpenSession
from segue.model import ids
from segue.model.errors import NotFound, SegueError
from segue.model.principal import Principal
from segue.model.session import Session

from .chat.state import ChatState
from .protocol import (
    DEFAULT_CHAT,
    PROVIDER,
    ROOT,
    Action,
    Channel,
    ServerSequence,
    chat_uri,
    parse_channel,
)
from .subscriptions.followed_chat import FollowedChat
from .subscriptions.followed_thread import FollowedThread
from .subscriptions.forms import FormClient, Forms
from .subscriptions.session_list import SessionList

log = logging.getLogger("segue.ahp")

_REST_OF_LIST = "the rest of the list"
DEMO = "demo"  # stands for the demo agent, which answers if no model is configured

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Origin(NamedTuple):
    """The client that sent an action, and the number that it gave it."""

    client_id: str
    client_seq: int

    def to_wire(self) -> dict[str, Any]:
        return {"clientId": self.client_id, "clientSeq": self.client_seq}


class Draft(NamedTuple):
    """A session that a client prepares. It is created with its first message."""

    directory: str | None
    mode: str | None
    created_at: int


class Client:
    """The subscriptions of a client, and the sessions that it prepares.

    Nothing of a client is needed after its connection has ended: if it reconnects, it gets new
    snapshots, and the rows that changed meanwhile.
    """

    def __init__(self, hub: Hub, principal: Principal, send: Send, forms: Forms) -> None:
        self.hub = hub
        self.forms = forms
        self.principal = principal
        self.id = ""
        self.sequence = ServerSequence()
        self.list = SessionList(hub, principal, self.notify)
        self.chats: dict[str, FollowedChat] = {}
        self.threads: dict[tuple[str, str], FollowedThread] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.drafts: dict[str, Draft] = {}
        self.active_clients: dict[str, dict[str, Any]] = {}
        self.root_values: dict[str, Any] = {}
        self.model_names: list[str] = []  # offered to the client
        self.ids_of_events: dict[str, str] = {}  # the client's own ids of its messages
        # Actions of this client whose effects are events: they carry its origin when they arrive.
        self.expected: dict[tuple[str, str], tuple[Action, Origin]] = {}
        self._send = send
        self.forks: dict[str, str] = {}  # by the address that a client gave to a fork's chat
        self._opened: dict[str, OpenSession] = {}  # their agents send forms to the client

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def act(self, channel: str, action: Action) -> None:
        """Send an action that happened, with the client's own if this client caused it."""
        origin = None
        if self.expected:
            names = ("toolCallId", "requestId", "turnId")
            id = next((action[name] for name in names if action.get(name)), "")
            own, origin = self.expected.pop((action["type"], str(id)), ({}, None))
            action = {**action, **own}
        await self.send_action(channel, action, origin)

    async def send_action(
        self, channel: str, action: Action, origin: Origin | None, rejection: str | None = None
    ) -> None:
        envelope: dict[str, Any] = {
            "channel": channel,
            "action": action,
            "serverSeq": self.sequence.next(),
        }
        if origin is not None:
            envelope["origin"] = origin.to_wire()
        if rejection is not None:
            envelope["rejectionReason"] = rejection
        await self.notify("action", envelope)

    async def close(self) -> None:
        """Stop following. No turn is cancelled."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        for opened in self._opened.values():
            with suppress(SegueError):
                await opened.close(cancel=False)

    async def resolve(self, uri: str) -> Channel:
        """Return the session and the chat of an address.

        For clients a fork is a chat of its session, and here it is a session of its own. VS Code's
        id for that chat is the id of the session.
        """
        if uri not in self.forks:
            channel = parse_channel(uri)
            fork_id = ids.parse(channel.chat or "")
            if fork_id is None:
                return channel
            try:
                session = await self.hub.sessions.get(self.principal, fork_id)
            except NotFound:
                return channel
            if session.fork is None or session.fork.session != channel.session_id:
                return channel
            self.forks[uri] = fork_id
        return Channel(self.forks[uri], DEFAULT_CHAT)

    def chat_uri(self, session_id: str, chat: str | None = None) -> str:
        """Return the address that the client has for a chat of a session, or its own chat."""
        if chat not in (None, DEFAULT_CHAT):
            return chat_uri(session_id, chat or "")
        followed = self.chats.get(session_id)
        return chat_uri(session_id) if followed is None else followed.uri

    async def open_session(self, session_id: str) -> OpenSession:
        """Open a session, so that its agent can show forms to the user."""
        if session_id not in self._opened:
            port = FormClient(self.forms, (self.principal.workspace, session_id))
            self._opened[session_id] = await self.hub.turns.open(
                self.principal, session_id, client=port
            )
        return self._opened[session_id]

    def state_of(self, channel: Channel) -> ChatState | None:
        """Return the state of a chat that the client follows; None if it does not."""
        if channel.chat in (None, DEFAULT_CHAT):
            chat = self.chats.get(channel.session_id)
            return None if chat is None else chat.state
        thread = self.threads.get((channel.session_id, channel.chat or ""))
        return None if thread is None else thread.state

    async def follow_thread(self, session: Session, thread_id: str, uri: str) -> Action:
        """Return the chat of a subagent as it is now, and follow it."""
        await self._end_task(uri)
        thread = FollowedThread(self.hub, self.principal, session.id, thread_id, uri, self.act)
        state = await thread.load(session)
        self.threads[session.id, thread_id] = thread
        self.start_task(uri, thread.follow)
        return state

    async def follow_chat(
        self, session: Session, uri: str, since: int | None = None
    ) -> FollowedChat:
        """Return the chat of a session, and follow it under this address.

        Turns that began after the time `since` are not part of it, but sent as if they began now.
        """
        await self.unsubscribe(self.chat_uri(session.id))
        chat = FollowedChat(
            self.hub, self.principal, session.id, uri, self.act, self.ids_of_events, self.forms
        )
        await chat.load(session, since)
        self.chats[session.id] = chat
        self.start_task(chat.uri, chat.follow)
        return chat

    @property
    def follows_list(self) -> bool:
        return ROOT in self.tasks

    def send_rest_of_list(self, cursor: str) -> None:
        """Send the sessions after the first page, which VS Code does not ask for."""
        if (task := self.tasks.pop(_REST_OF_LIST, None)) is not None:
            task.cancel()
        self.start_task(_REST_OF_LIST, lambda: self.list.send_rest(cursor))

    def send_sessions_in(self, directory: str) -> None:
        """Send the sessions in a directory, once."""
        self.start_task(f"sessions in {directory}", lambda: self.list.send_sessions_in(directory))

    def start_task(self, channel: str, run: Callable[[], Awaitable[None]]) -> None:
        if channel not in self.tasks:
            self.tasks[channel] = asyncio.ensure_future(self._run_task(channel, run))

    async def _run_task(self, channel: str, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except SegueError as error:
            log.warning("%s is not followed any more: %s", channel, error.message)
        except OSError:
            pass  # the client is gone
        except Exception:
            log.exception("%s is not followed any more", channel)

    async def unsubscribe(self, channel: str) -> None:
        await self._end_task(ROOT if channel.rstrip("/") == ROOT.rstrip("/") else channel)
        with suppress(RpcError):
            parsed = await self.resolve(channel)
            if parsed.chat == DEFAULT_CHAT:
                if self.chat_uri(parsed.session_id) == channel:
                    self.chats.pop(parsed.session_id, None)
            elif parsed.chat is not None:
                self.threads.pop((parsed.session_id, parsed.chat), None)

    async def _end_task(self, channel: str) -> None:
        if (task := self.tasks.pop(channel, None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def models(self) -> list[dict[str, Any]]:
        """Return the models that the client can choose, the one that is used now first."""
        settings = await self.hub.config.all(self.principal.workspace)
        choices = await self.hub.model_choices.in_use(self.principal)
        used = settings.get("model") or DEMO
        self.model_names = [*dict.fromkeys([used, *choices])]
        return [{"id": name, "provider": PROVIDER, "name": name} for name in self.model_names]

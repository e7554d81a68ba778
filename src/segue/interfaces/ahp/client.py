"""One client: its drafts, the chats that it follows, and the actions that it receives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from segue.acp.rpc import RpcError
from segue.hub import Hub
from segue.model.errors import SegueError
from segue.model.principal import Principal
from segue.model.session import Session

from .protocol import PROVIDER, ROOT, Action, ServerSequence, chat_uri, parse_channel
from .subscriptions import FollowedChat, SessionList

log = logging.getLogger("segue.ahp")

_REST_OF_LIST = "the rest of the list"

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

    def __init__(self, hub: Hub, principal: Principal, send: Send) -> None:
        self.hub = hub
        self.principal = principal
        self.id = ""
        self.sequence = ServerSequence()
        self.list = SessionList(hub, principal, self.notify)
        self.chats: dict[str, FollowedChat] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.drafts: dict[str, Draft] = {}
        self.active_clients: dict[str, dict[str, Any]] = {}
        self.root_values: dict[str, Any] = {}
        self.ids_of_events: dict[str, str] = {}  # the client's own ids of its messages
        # Actions of this client whose effects are events: they carry its origin when they arrive.
        self.expected: dict[tuple[str, str], tuple[Action, Origin]] = {}
        self._send = send

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def act(self, channel: str, action: Action) -> None:
        """Send an action that happened, with the client's own if this client caused it."""
        key = (action["type"], str(action.get("toolCallId") or action.get("turnId") or ""))
        own, origin = self.expected.pop(key, (action, None))
        await self.send_action(channel, {**action, **own} if origin else action, origin)

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

    async def follow_chat(self, session: Session) -> FollowedChat:
        """Return the chat of a session as it is now, and follow it."""
        await self.unsubscribe(chat_uri(session.id))
        chat = FollowedChat(self.hub, self.principal, session.id, self.act, self.ids_of_events)
        await chat.load(session)
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
        task = self.tasks.pop(ROOT if channel.rstrip("/") == ROOT.rstrip("/") else channel, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        with suppress(RpcError):
            parsed = parse_channel(channel)
            if parsed.chat is not None:
                self.chats.pop(parsed.session_id, None)

    async def models(self) -> list[dict[str, Any]]:
        settings = await self.hub.config.all(self.principal.workspace)
        name = settings.get("model") or "demo"
        return [{"id": name, "provider": PROVIDER, "name": name}]

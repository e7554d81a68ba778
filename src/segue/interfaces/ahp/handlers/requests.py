"""Answer the requests of a client."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import segue
from segue.acp.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcError,
)
from segue.agents.base.spec import MODE_LABELS
from segue.interfaces.ahp.client import Client, Draft
from segue.interfaces.ahp.config import MODE, new_session_config, session_config
from segue.interfaces.ahp.protocol import (
    DEFAULT_CHAT,
    IDLE,
    MAX_SEQUENCE,
    PROVIDER,
    PROVIDER_NOT_FOUND,
    ROOT,
    SESSION_EXISTS,
    SESSION_NOT_FOUND,
    UNSUPPORTED_VERSION,
    VERSIONS,
    Channel,
    ServerSequence,
    chat_uri,
    choose_version,
    directory_of,
    directory_uri,
    event_id_of,
    parse_channel,
    session_uri,
    time_text,
)
from segue.interfaces.ahp.subscriptions import rows
from segue.model import clock, ids
from segue.model.errors import NotFound, SegueError
from segue.model.session import Session

from .resources import Resources

log = logging.getLogger("segue.ahp")

MAX_DRAFTS = 100  # sessions that a client prepared and has not prompted yet
TURNS_PER_REQUEST = 50  # loaded by one request
MAX_SUBSCRIPTIONS = 200
_FIRST_METHODS = ("initialize", "reconnect")


class Requests:
    """Answer requests, by the name of their method."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._hub = client.hub
        self._principal = client.principal
        self._handlers: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "reconnect": self._reconnect,
            "listSessions": self._list_sessions,
            "subscribe": self._subscribe,
            "resolveSessionConfig": self._resolve_config,
            "sessionConfigCompletions": self._no_items,
            "completions": self._no_items,
            "createSession": self._create_session,
            "disposeSession": self._dispose_session,
            "createChat": self._create_chat,
            "disposeChat": self._dispose_chat,
            "fetchTurns": self._fetch_turns,
            "resourceRead": Resources(client.hub, client.principal).read,
        }

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        handler = self._handlers.get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"segue does not support {method}")
        if not self._client.id and method not in _FIRST_METHODS:
            raise RpcError(INVALID_REQUEST, "initialize or reconnect first")
        try:
            return await handler(params)
        except NotFound as error:
            raise RpcError(SESSION_NOT_FOUND, error.remote_message) from None
        except SegueError as error:
            raise RpcError(INVALID_PARAMS, error.remote_message) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.debug("%s failed", method, exc_info=True)
            raise RpcError(
                INVALID_PARAMS, f"{method}: a field is missing or wrong: {error}"
            ) from error
        except RpcError:
            raise
        except Exception:
            log.exception("a request failed")
            raise RpcError(INTERNAL_ERROR, "internal error") from None

    # The connection.

    async def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        offered = params["protocolVersions"]
        if not isinstance(offered, list):
            raise RpcError(INVALID_PARAMS, "protocolVersions must be a list")
        version = choose_version(offered)
        if version is None:
            data = {"supportedVersions": list(VERSIONS)}
            reason = f"segue speaks the versions {', '.join(VERSIONS)} and none of those offered"
            raise RpcError(UNSUPPORTED_VERSION, reason, data)
        self._client.id = _client_id(params)
        snapshots = await self._snapshots(params.get("initialSubscriptions") or ())
        result: dict[str, Any] = {
            "protocolVersion": version,
            "serverSeq": self._client.sequence.last,
            "serverInfo": {"name": "segue", "version": segue.__version__},
            "snapshots": snapshots,
            "completionTriggerCharacters": [],
        }
        return result

    async def _reconnect(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return new snapshots, and send the rows that changed since the client's last number."""
        last_seen = params["lastSeenServerSeq"]
        if type(last_seen) is not int or last_seen > MAX_SEQUENCE:
            raise RpcError(
                INVALID_PARAMS, f"lastSeenServerSeq {str(last_seen)[:40]!r} is not valid"
            )
        self._client.id = _client_id(params)
        since = (last_seen + 1) * 1000 if last_seen > 0 else None
        snapshots = await self._snapshots(params["subscriptions"], since=since)
        await self._client.list.announce_since(last_seen * 1000)
        self._client.sequence = ServerSequence(max(last_seen, self._client.sequence.last))
        for snapshot in snapshots:
            snapshot["fromSeq"] = self._client.sequence.last
        return {"type": "snapshot", "snapshots": snapshots}

    async def _snapshots(self, channels: Any, *, since: int | None = None) -> list[dict[str, Any]]:
        """Subscribe to channels, and return the states of those that exist."""
        for channel in channels:
            with suppress(RpcError):
                await self._client.resolve(str(channel))  # so that sessions have their forks
        snapshots = []
        for channel in channels:
            with suppress(RpcError, SegueError):
                snapshots.append(await self._open(str(channel), None, since))
        return snapshots

    # Subscriptions.

    async def _subscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        view = params.get("view") or {}
        return {"snapshot": await self._open(str(params["channel"]), view.get("turns"))}

    async def _open(
        self, channel: str, max_turns: int | None, since: int | None = None
    ) -> dict[str, Any]:
        """Follow a channel and return its state."""
        if len(self._client.tasks) >= MAX_SUBSCRIPTIONS and channel not in self._client.tasks:
            raise RpcError(INVALID_PARAMS, "this connection has too many subscriptions")
        if channel.rstrip("/") == ROOT.rstrip("/"):
            state = await self._root_state()
            self._client.start_task(ROOT, self._client.list.follow)
        else:
            resolved = await self._client.resolve(channel)
            state = await self._open_session_channel(channel, resolved, max_turns, since)
        return {"resource": channel, "state": state, "fromSeq": self._client.sequence.last}

    async def _open_session_channel(
        self, uri: str, channel: Channel, max_turns: int | None, since: int | None
    ) -> dict[str, Any]:
        draft = self._client.drafts.get(channel.session_id)
        if draft is not None:
            return self._draft_state(channel, draft)
        await self._hub.sync.ensure_current(self._principal, channel.session_id)
        session = await self._hub.sessions.get(self._principal, channel.session_id)
        if session.state == "trashed":
            raise NotFound(f"session {session.id} is in the trash")
        if channel.chat is None:
            return await self._session_state(session)
        if channel.chat != DEFAULT_CHAT:
            return await self._client.follow_thread(session, channel.chat, uri)
        chat = await self._client.follow_chat(session, uri, since)
        return chat.snapshot(session, max_turns)

    async def _root_state(self) -> dict[str, Any]:
        return {
            "agents": [
                {
                    "provider": PROVIDER,
                    "displayName": "segue",
                    "description": "Every agent session",
                    "models": await self._client.models(),
                    "protectedResources": [],
                    "capabilities": {"multipleChats": {"fork": True}},
                }
            ],
            "terminals": [],
            "config": {
                "schema": {"type": "object", "properties": {}},
                "values": self._client.root_values,
            },
        }

    async def _session_state(self, session: Session) -> dict[str, Any]:
        client = self._client.active_clients.get(session.id)
        state = rows.session_state(
            session,
            await self._hub.history.threads(self._principal, session.id),
            session_config(session),
            [client] if client else [],
            is_read=self._client.list.is_read(session.id),
        )
        for uri, fork_id in self._client.forks.items():
            with suppress(NotFound, RpcError):
                if parse_channel(uri).session_id == session.id:
                    fork = await self._hub.sessions.get(self._principal, fork_id)
                    state["chats"].append({**rows.chat_summary(fork), "resource": uri})
        return state

    # The list, and sessions that a client creates and deletes.

    async def _list_sessions(self, params: dict[str, Any]) -> dict[str, Any]:
        limit = params.get("limit")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise RpcError(INVALID_PARAMS, f"limit must be a whole number above 0, not {limit!r}")
        cursor = params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise RpcError(INVALID_PARAMS, f"{cursor!r} is not a cursor of this list")
        page = await self._client.list.page(limit, cursor)
        next_cursor = page.get("nextCursor")
        if limit is None and "cursor" not in params and next_cursor and self._client.follows_list:
            self._client.send_rest_of_list(next_cursor)
        return page

    async def _resolve_config(self, params: dict[str, Any]) -> dict[str, Any]:
        values = params.get("config") or {}
        self._send_sessions_in(params.get("workingDirectory"))
        return new_session_config(values.get(MODE))

    def _send_sessions_in(self, directory: Any) -> None:
        """Send the sessions in a directory, which the client is likely to have open."""
        if directory and self._client.follows_list and self._principal.local:
            self._client.send_sessions_in(directory_of(str(directory)))

    async def _no_items(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"items": []}

    async def _create_session(self, params: dict[str, Any]) -> None:
        """Remember a session that the client prepares; its first message creates it."""
        if params.get("provider") not in (None, PROVIDER):
            raise RpcError(PROVIDER_NOT_FOUND, f"there is no agent {params['provider']!r}")
        session_id = parse_channel(str(params["channel"])).session_id
        with suppress(NotFound):
            await self._hub.sessions.get(self._principal, session_id)
            raise RpcError(SESSION_EXISTS, "this session exists already")
        directories = params.get("workingDirectories") or ()
        mode = (params.get("config") or {}).get(MODE)
        while len(self._client.drafts) >= MAX_DRAFTS:
            self._client.drafts.pop(next(iter(self._client.drafts)))
        self._client.drafts[session_id] = Draft(
            directory_of(directories[0]) if directories else None,
            mode if mode in MODE_LABELS else None,
            clock.now(),
        )

    def _draft_state(self, channel: Channel, draft: Draft) -> dict[str, Any]:
        """Return the state of a session or chat that is not created yet."""
        entry = {
            "resource": chat_uri(channel.session_id),
            "title": "New session",
            "status": IDLE,
            "modifiedAt": time_text(draft.created_at),
            "origin": {"kind": "user"},
        }
        if channel.chat is not None:
            return {**entry, "turns": []}
        return {
            "provider": PROVIDER,
            "title": "New session",
            "status": IDLE,
            "workingDirectories": [directory_uri(draft.directory)] if draft.directory else [],
            "lifecycle": "ready",
            "activeClients": [],
            "chats": [entry],
            "defaultChat": entry["resource"],
            "customizations": [],
            "config": new_session_config(draft.mode),
        }

    async def _dispose_session(self, params: dict[str, Any]) -> None:
        """Forget a draft, or move a session to the trash, from which it can be restored."""
        session_id = parse_channel(str(params["channel"])).session_id
        if self._client.drafts.pop(session_id, None) is None:
            await self._hub.editor.trash(self._principal, session_id)
            await self._client.list.remove(session_id)

    async def _create_chat(self, params: dict[str, Any]) -> None:
        """Fork a session at a turn.

        The fork is a session of its own in the list, and for the client also a chat of the session.
        """
        source = params.get("source") or {}
        if source.get("kind") != "fork":
            raise RpcError(INVALID_PARAMS, "segue creates chats only as forks of a turn")
        session = parse_channel(str(params["channel"]))
        forked = await self._client.resolve(str(source["chat"]))
        uri, turn_id = str(params["chat"]), str(source["turnId"])
        new_id = None
        with suppress(RpcError):
            chosen = parse_channel(uri)
            new_id = (
                ids.parse(chosen.chat or "") if chosen.session_id == session.session_id else None
            )
        seq = await self._last_seq_of_turn(forked.session_id, turn_id)
        fork = await self._hub.editor.fork(
            self._principal, forked.session_id, at=seq, new_id=new_id, origin="ahp", in_store=True
        )
        self._client.forks[uri] = fork.id
        origin = {"kind": "fork", "chat": source["chat"], "turnId": turn_id}
        summary = {**rows.chat_summary(fork), "resource": uri, "origin": origin}
        added = {"type": "session/chatAdded", "summary": summary}
        await self._client.send_action(session_uri(session.session_id), added, None)

    async def _dispose_chat(self, params: dict[str, Any]) -> None:
        """Move a fork to the trash."""
        uri = str(params["channel"])
        session, fork = parse_channel(uri), await self._client.resolve(uri)
        if fork == session:
            raise RpcError(INVALID_PARAMS, "only the chat of a fork can be deleted")
        await self._hub.editor.trash(self._principal, fork.session_id)
        await self._client.unsubscribe(uri)
        self._client.forks.pop(uri, None)
        removed = {"type": "session/chatRemoved", "chat": uri}
        await self._client.send_action(session_uri(session.session_id), removed, None)
        await self._client.list.remove(fork.session_id)

    async def _last_seq_of_turn(self, session_id: str, turn_id: str) -> int:
        """Return the seq of the last event before the next message of the user."""
        seq = await self._hub.history.locate(self._principal, session_id, event_id_of(turn_id))
        following = await self._hub.history.events(
            self._principal, session_id, after=seq, types=("user_message",), limit=1
        )
        if following:
            return following[0].seq - 1
        session = await self._hub.sessions.get(self._principal, session_id)
        return session.last_seq

    async def _fetch_turns(self, params: dict[str, Any]) -> dict[str, Any]:
        """Send the turns before those that the client has."""
        channel = await self._client.resolve(str(params["channel"]))
        chat = self._client.chats.get(channel.session_id)
        if chat is None:
            raise RpcError(INVALID_PARAMS, "subscribe to this chat before its turns are fetched")
        cursor = params.get("cursor", chat.next_cursor)
        if cursor != chat.next_cursor:
            raise RpcError(INVALID_PARAMS, f"{cursor!r} is not a cursor of this chat")
        if cursor is not None:
            await self._client.send_action(chat.uri, chat.older_turns(TURNS_PER_REQUEST), None)
        return {}


def _client_id(params: dict[str, Any]) -> str:
    id = params["clientId"]
    if not isinstance(id, str) or not id:
        raise RpcError(INVALID_PARAMS, f"clientId must be a text, not {id!r}")
    return id

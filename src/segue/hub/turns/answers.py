"""Take the answers and tool results that clients send to the turns of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import to_builtins

from segue.hub.access.quotas import Quotas
from segue.hub.history.follow import Name
from segue.hub.sessions.lookup import SessionLookup
from segue.model import codec, ids
from segue.model.errors import InvalidInput, NotFound, NotPermitted
from segue.model.event import Event, PermissionAnswered, PermissionAsked, ToolCall, ToolResult
from segue.model.principal import Principal
from segue.model.session import Session
from segue.store.base import InboxItem, InboxKind, Store

from .engine import TurnEngine
from .inbox import Result, SystemText, cancel_of, sent_before

RECENT_EVENTS = 200  # among which an earlier identical answer or result is searched


class RequestAnswers:
    """Check what clients answer to a turn's requests, and put it into the session's inbox."""

    def __init__(
        self, store: Store, engine: TurnEngine, lookup: SessionLookup, quotas: Quotas
    ) -> None:
        self._store = store
        self._engine = engine
        self._lookup = lookup
        self._quotas = quotas

    async def answer(
        self,
        principal: Principal,
        id: str,
        ask_id: str,
        option: str | None,
        note: str | None = None,
        *,
        input: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> str:
        """Answer a permission request of a running turn; None as `option` withdraws it.

        An allowed tool runs with `input`, if there is one, instead of the input that it asked for.
        `extra` has fields that only the client's protocol has, by protocol.
        Returns the id that the PermissionAnswered event will have; for an answer that repeats an
        earlier one, the id of that one's. Raises InvalidInput if the request has no such option,
        NotFound if it was answered differently or is not open, and NotPermitted if the turn is the
        local user's and the caller is not.
        """
        session = await self._find_not_trashed(principal, id)
        if ask_id not in session.open_asks:
            return await self._stored_answer(principal, id, ask_id, option)
        await self._check_answer(principal, id, ask_id, option)
        body = {
            "ask_id": ask_id,
            "option": option,
            "note": note,
            "input": input,
            "local": principal.local,
            "extra": extra or {},
        }

        def answers(item: InboxItem) -> bool:
            return item.kind == "answer" and item.body.get("ask_id") == ask_id

        def is_open(session: Session) -> bool:
            return ask_id in session.open_asks

        name = (principal.workspace, id)
        own, first = await self._put_first(name, "answer", body, answers, is_open)
        if first is None:  # an answer is stored already; it may be this one
            return await self._stored_answer(principal, id, ask_id, option, own)
        if first.body.get("option") != option:
            raise _not_open(id, ask_id)
        return first.id

    async def _find_not_trashed(self, principal: Principal, id: str) -> Session:
        """Return a stored session. Raises InvalidInput if it is in the trash."""
        session = await self._lookup.find_stored(principal, id)
        require_not_trashed(session)
        return session

    async def _put_first(
        self,
        name: Name,
        kind: InboxKind,
        body: dict[str, Any],
        is_same: Callable[[InboxItem], bool],
        is_open: Callable[[Session], bool],
    ) -> tuple[str, InboxItem | None]:
        """Put an answer or a result into the inbox, unless it has one for the same request.

        Returns the id of the new item, and the first item of the request. Other clients may have
        put theirs at the same time: the first one counts, and the others have no effect. It is None
        if it has left the inbox already, or if the turn was cancelled before it.
        """
        items = await self._store.inbox(*name)
        if first := next(filter(is_same, items), None):
            await self._engine.kick(name)  # its process may have been unable to act on it
            return first.id, first
        id = await self.put(name, items, kind, body)
        items = await self._store.inbox(*name)
        first = next(filter(is_same, items), None)
        if first is not None and first.id == id:
            # Another one may have come and been stored between the two reads of the inbox. The turn
            # may have been cancelled; the cancel stays in the inbox until the turn has ended.
            session = await self._store.get(*name)
            if session is None or not is_open(session):
                return id, None
            if first not in sent_before(items, cancel_of(items, session.turn)):
                return id, None
        return id, first

    async def put(
        self, name: Name, items: Sequence[InboxItem], kind: InboxKind, body: dict[str, Any]
    ) -> str:
        """Put an item into a session's inbox, act on it if no other process does; return its id.

        `items` are those that the inbox has. A turn that needs the process which began it is
        resumed there.
        """
        owner = next((item.holder for item in items if item.kind == "turn"), "")
        item_id = ids.new_id()
        await self._store.put_inbox(*name, kind, item_id, body, owner or self._engine.holder)
        await self._engine.kick(name)
        return item_id

    async def _stored_answer(
        self, principal: Principal, id: str, ask_id: str, option: str | None, own: str | None = None
    ) -> str:
        """Return the event that answered a permission request, if it is `own` or the same answer.

        Raises NotFound if it is another one.
        """
        for event in await self._recent(principal, id, "permission_answered"):
            body = event.body
            if isinstance(body, PermissionAnswered) and body.ask_id == ask_id:
                if event.id == own or (option is not None and body.option == option):
                    return event.id
                break
        raise _not_open(id, ask_id)

    async def _recent(self, principal: Principal, id: str, type: str) -> list[Event]:
        """Return the latest events of a type, newest first."""
        name = (principal.workspace, id)
        events = await self._store.events(*name, types=(type,), limit=RECENT_EVENTS, backward=True)
        return events[::-1]

    async def _check_answer(
        self, principal: Principal, id: str, ask_id: str, option: str | None
    ) -> None:
        """Raise an error if a permission request has no such option, or is for the local user."""
        name = (principal.workspace, id)
        seq = await self._store.locate(*name, ask_id) or 0
        for event in await self._store.events(*name, after=seq - 1, limit=1):
            if not isinstance(event.body, PermissionAsked):
                continue
            options = [offered.id for offered in event.body.options]
            if option is not None and option not in options:
                raise InvalidInput(
                    f"permission request {ask_id} has no option {option!r}; choose one of:"
                    f" {', '.join(options)}",
                    session=id,
                )
            if event.body.local and not principal.local:
                raise NotPermitted(
                    f"permission request {ask_id} belongs to a turn of the local user, who must"
                    " answer it: in their terminal or editor, or in a browser that was signed in"
                    " with `segue open`",
                    session=id,
                )

    async def submit_tool_result(
        self,
        principal: Principal,
        id: str,
        result: ToolResult,
        *,
        system: SystemText | None = None,
    ) -> str:
        """Submit the result of a tool call that the client runs for a turn.

        Returns the id that the ToolResult event will have; for a result that repeats an earlier
        one, the id of that one's. Raises InvalidInput if the call has another result, NotFound if
        its turn ended without one, NotPermitted if the call belongs to a turn of the local user and
        the caller is not that user, and QuotaExceeded if the workspace has too many bytes.
        """
        session = await self._find_not_trashed(principal, id)
        if result.call_id not in session.open_calls:
            return await self._stored_result(principal, id, result)
        submitted = Result(result=result, local=principal.local, system=system)
        body: dict[str, Any] = to_builtins(submitted)
        if not principal.local:
            await self._check_submittable(principal, id, result.call_id)
            await self._quotas.check(principal, bytes=len(codec.encode(body)))

        def is_of_call(item: InboxItem) -> bool:
            return item.kind == "result" and item.body["result"]["call_id"] == result.call_id

        def is_open(session: Session) -> bool:
            return result.call_id in session.open_calls

        name = (principal.workspace, id)
        own, first = await self._put_first(name, "result", body, is_of_call, is_open)
        if first is None:  # a result is stored already; it may be this one
            return await self._stored_result(principal, id, result, own)
        _require_same_result(codec.convert(first.body, Result).result, result, id)
        return first.id

    async def _stored_result(
        self, principal: Principal, id: str, result: ToolResult, own: str | None = None
    ) -> str:
        """Return the event that has a call's result, if it is `own` or the same result.

        Raises InvalidInput if the call has another one, NotFound if the server closed it.
        """
        for event in await self._recent(principal, id, "tool_result"):
            body = event.body
            if isinstance(body, ToolResult) and body.call_id == result.call_id:
                if event.id == own:
                    return event.id
                if body.status == "cancelled":
                    break  # the server closed the call
                _require_same_result(body, result, id)
                return event.id
        raise NotFound(f"session {id} has no open tool call {result.call_id}", session=id)

    async def _check_submittable(self, principal: Principal, id: str, call_id: str) -> None:
        """Raise NotPermitted if only the local user may submit the result of a tool call."""
        after: int | None = None
        while events := await self._store.events(
            principal.workspace, id, types=("tool_call",), before=after, limit=50, backward=True
        ):
            for event in reversed(events):
                if isinstance(event.body, ToolCall) and event.body.call_id == call_id:
                    if event.body.local:
                        raise NotPermitted(
                            f"tool call {call_id} belongs to a turn of the local user, who must"
                            " submit its result",
                            session=id,
                        )
                    return
            after = events[0].seq


def require_not_trashed(session: Session) -> None:
    """Raise InvalidInput if a session is in the trash."""
    if session.state == "trashed":
        raise InvalidInput(
            f"session {session.id} is in the trash; restore it first", session=session.id
        )


def _not_open(id: str, ask_id: str) -> NotFound:
    return NotFound(f"session {id} has no open permission request {ask_id}", session=id)


def _require_same_result(earlier: ToolResult, result: ToolResult, id: str) -> None:
    """Raise InvalidInput if a result differs from the one that its call has."""
    if (earlier.status, earlier.content, earlier.output) != (
        result.status,
        result.content,
        result.output,
    ):
        raise InvalidInput(f"tool call {result.call_id} has another result already", session=id)

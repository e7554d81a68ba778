"""Send permission requests to the client, and withdraw them when they are answered elsewhere."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from segue.acp.rpc import Connection, Disconnected, RpcError
from segue.hub import Hub
from segue.model.errors import NotFound, SegueError
from segue.model.event import PermissionAsked, ToolCall
from segue.model.principal import Principal
from segue.model.session import Session

from .errors import DIALECT
from .versions.policy import VersionPolicy

log = logging.getLogger("segue.acp")


class PermissionRequests:
    """The open permission requests of one session, as sent to one client."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        connection: Connection,
        policy: VersionPolicy,
        session_id: str,
        client_session_id: str,
    ) -> None:
        """Create an empty set. `client_session_id` is the session id that the client uses."""
        self._hub = hub
        self._principal = principal
        self._connection = connection
        self._policy = policy
        self._session_id = session_id
        self._client_session_id = client_session_id
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def send(self, body: PermissionAsked, call: ToolCall | None, *, own_turn: bool) -> None:
        """Send a permission request, and store the client's answer when it arrives.

        A client that may not answer it does not get it. If the client dismisses a request of its
        own turn, the request is withdrawn. Any other request stays open for other clients.
        """
        if body.local and not self._principal.local:
            return
        request = self._request_and_answer(body, call, own_turn=own_turn)
        self._tasks[body.ask_id] = asyncio.get_running_loop().create_task(request)

    def withdraw(self, ask_id: str) -> None:
        """Withdraw a permission request that was answered or whose turn has ended."""
        if task := self._tasks.pop(ask_id, None):
            task.cancel()

    async def stop(self) -> None:
        """Withdraw all permission requests."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send_stored(self, session: Session) -> None:
        """Send the permission requests that were open before the client attached the session."""
        for request, call in await self._hub.history.open_requests(self._principal, session):
            self.send(request, call, own_turn=False)

    async def _request_and_answer(
        self, body: PermissionAsked, call: ToolCall | None, *, own_turn: bool
    ) -> None:
        option_id: str | None = None
        extra: dict[str, Any] = {}
        try:
            response = await self._connection.request(
                "session/request_permission",
                self._policy.permission_request(self._client_session_id, body, call),
            )
            option_id = _selected_option(response, body)
            if option_id is not None and _has_meta(response):
                extra = {DIALECT: {"response": response}}
        except RpcError as error:
            log.info(
                "session %s: the client did not answer a permission request: %s",
                self._session_id,
                error.message,
            )
        except Disconnected:
            return
        self._tasks.pop(body.ask_id, None)
        if option_id is None and not own_turn:
            return
        try:
            await self._hub.turns.answer(
                self._principal, self._session_id, body.ask_id, option_id, extra=extra
            )
        except NotFound:
            return  # answered by another client, or the turn has ended
        except SegueError as error:
            log.warning(
                "session %s: the answer to a permission request was not stored: %s",
                self._session_id,
                error.message,
            )


def _has_meta(response: dict[str, Any]) -> bool:
    """Return whether an answer has fields that only its agent understands."""
    return "_meta" in response or "_meta" in response["outcome"]


def _selected_option(response: Any, body: PermissionAsked) -> str | None:
    """Return the id of the option that the client selected.

    Returns None, which is not an approval, for any answer that does not select a known option.
    """
    outcome = response.get("outcome") if isinstance(response, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    option_id = outcome.get("optionId")
    return next((option.id for option in body.options if option.id == option_id), None)

"""Permission questions: put to the client, and taken back when somebody else answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import UNSET

from segue.acp import v1, v2, wire
from segue.acp.rpc import Connection, Disconnected, RpcError
from segue.hub import Hub
from segue.model.errors import NotFound, SegueError
from segue.model.event import PermissionAsked, ToolCall
from segue.model.principal import Principal

from .versions import encode_v1, encode_v2

log = logging.getLogger("segue.acp")


class Questions:
    """The open questions of one session, as one client is asked them."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        connection: Connection,
        id: str,
        version: int,
        name: str,
    ) -> None:
        """`name` is the session's id as the client spells it."""
        self._hub = hub
        self._principal = principal
        self._connection = connection
        self._id = id
        self._version = version
        self._name = name
        self._asking: dict[str, asyncio.Task[None]] = {}

    def ask(self, body: PermissionAsked, call: ToolCall | None) -> None:
        work = self._ask(body, call)
        self._asking[body.ask_id] = asyncio.get_running_loop().create_task(work)

    def take_back(self, ask_id: str) -> None:
        """It was answered, here or elsewhere, or its turn is over."""
        if task := self._asking.pop(ask_id, None):
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask_again(self, ask_id: str) -> None:
        """Put a question that was asked before this client came."""
        seq = await self._hub.history.locate(self._principal, self._id, ask_id)
        found = await self._hub.history.events(self._principal, self._id, after=seq - 1, limit=1)
        for event in found:
            if isinstance(event.body, PermissionAsked):
                self.ask(event.body, await self._call(event.body.call_id, seq))

    async def _call(self, call_id: str | None, before: int) -> ToolCall | None:
        if call_id is None:
            return None
        calls = await self._hub.history.events(
            self._principal, self._id, before=before, types=["tool_call"], limit=50, backward=True
        )
        for event in calls:
            if isinstance(event.body, ToolCall) and event.body.call_id == call_id:
                return event.body
        return None

    async def _ask(self, body: PermissionAsked, call: ToolCall | None) -> None:
        chosen: str | None = None
        try:
            answer = await self._connection.request(
                "session/request_permission", self._request(body, call)
            )
            outcome = answer.get("outcome") if isinstance(answer, dict) else None
            if isinstance(outcome, dict) and outcome.get("outcome") == "selected":
                option = outcome.get("optionId")
                # Whatever is not one of the options is no approval.
                if any(option == known.id for known in body.options):
                    chosen = option
        except RpcError as error:
            log.info("session %s: the client could not be asked: %s", self._id, error.message)
        except Disconnected:
            return
        self._asking.pop(body.ask_id, None)
        try:
            await self._hub.turns.answer(self._principal, self._id, body.ask_id, chosen)
        except NotFound:
            return  # answered elsewhere, or over
        except SegueError as error:
            log.warning("session %s: the answer was not kept: %s", self._id, error.message)

    def _request(self, body: PermissionAsked, call: ToolCall | None) -> Any:
        choices = [
            wire.PermissionOption(option_id=option.id, name=option.name, kind=option.kind)
            for option in body.options
        ]
        call_id = body.call_id or body.ask_id
        if self._version == 1:
            fields = v1.ToolCallFields(tool_call_id=call_id, title=body.title)
            if call is not None:
                fields = v1.ToolCallFields(
                    tool_call_id=call_id,
                    title=body.title,
                    kind=call.kind,
                    status="pending",
                    content=encode_v1.tool_content(call.content) or UNSET,
                    raw_input=UNSET if call.input is None else call.input,
                )
            return v1.PermissionRequest(session_id=self._name, tool_call=fields, options=choices)
        if call is None:
            return v2.PermissionRequest(session_id=self._name, title=body.title, options=choices)
        subject = v2.ToolCallSubject(
            tool_call=v2.ToolCallFields(
                tool_call_id=call_id,
                title=call.title or call.name,
                kind=call.kind,
                content=encode_v2.tool_content(call.content) or UNSET,
                raw_input=UNSET if call.input is None else call.input,
            )
        )
        return v2.PermissionRequest(
            session_id=self._name, title=body.title, options=choices, subject=subject
        )

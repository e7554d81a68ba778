"""Read the texts before and after the changes of files, to which tool calls refer."""

from __future__ import annotations

from typing import Any

from segue.acp.rpc import RpcError
from segue.hub import Hub
from segue.interfaces.ahp.chat.edits import diffs_of_call, diffs_of_result, text_of_edit
from segue.interfaces.ahp.protocol import NOT_FOUND, parse_channel
from segue.model.event import ToolCall, ToolResult
from segue.model.principal import Principal


class Resources:
    """Answer `resourceRead`."""

    def __init__(self, hub: Hub, principal: Principal) -> None:
        self._hub = hub
        self._principal = principal

    async def read(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return one side of a file's change that a tool call refers to."""
        uri = str(params["uri"])
        text = await self._text_of(uri)
        if text is None:
            raise RpcError(NOT_FOUND, f"there is no resource {uri!r}")
        return {"data": text, "encoding": "utf-8", "contentType": "text/plain"}

    async def _text_of(self, uri: str) -> str | None:
        head, _, tail = uri.partition("/content/")
        kind = "content"
        if not tail:
            head, _, tail = uri.partition("/proposed/")
            kind = "proposed"
        name, _, rest = tail.partition("/")
        number, _, side = rest.partition("/")
        if not number.isdigit() or side not in ("before", "after"):
            return None
        session_id = parse_channel(head).session_id
        if kind == "proposed":
            call = await self._find_call(session_id, name, None)
            return None if call is None else text_of_edit(diffs_of_call(call), int(number), side)
        events = await self._hub.history.events(
            self._principal, session_id, after=int(name) - 1, limit=1
        )
        for event in events:
            if isinstance(event.body, ToolResult):
                call = await self._find_call(session_id, event.body.call_id, event.seq)
                if call is not None:
                    diffs = diffs_of_result(call, event.body)
                    return text_of_edit(diffs, int(number), side)
        return None

    async def _find_call(
        self, session_id: str, call_id: str, before: int | None
    ) -> ToolCall | None:
        events = await self._hub.history.events(
            self._principal, session_id, before=before, types=("tool_call",), backward=True
        )
        for event in reversed(events):
            if isinstance(event.body, ToolCall) and event.body.call_id == call_id:
                return event.body
        return None

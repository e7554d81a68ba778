"""Code that the Python clients share. It runs in its own environment with an official SDK."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

COMMAND, CWD, TASK, *SESSIONS = sys.argv[1:]
SCRIPT = "Hello there\n/think hm\n/say hi\n/tool ls a b\n/plan one; x two\n/ask May I?"

# The agent is a command, or the address of a server with its key.
_AGENT = json.loads(COMMAND)
REMOTE = isinstance(_AGENT, dict)
# A client with a key cannot choose the directory of its sessions, so it does not filter by it.
LIST_CWD = {} if REMOTE else {"cwd": CWD}

Report = dict[str, Any]


async def remote_transport() -> Any:
    """Connect over HTTP or WebSocket."""
    url, headers = _AGENT["url"], {"x-api-key": _AGENT["key"]}
    if url.startswith("ws"):
        from acp.ws import create_websocket_stream

        return await create_websocket_stream(url, headers=headers)
    from acp.http import create_http_stream

    return create_http_stream(url, headers=headers)


def main(work: Callable[[], Awaitable[Report]]) -> None:
    """Do it, and print what it returns."""
    print(json.dumps(asyncio.run(_bounded(work))))


async def _bounded(work: Callable[[], Awaitable[Report]]) -> Report:
    async with asyncio.timeout(60):
        return await work()


async def refusal(asking: Awaitable[Any]) -> int | None:
    """The code of the error that a request ends with."""
    try:
        await asking
    except Exception as error:
        return int(error.code)  # type: ignore[attr-defined]  # the SDKs' own error has one
    return None


class Conversation:
    """The conversation, from updates of either version."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], list[Any]] = {}

    def add(self, update: dict[str, Any]) -> None:
        kind = update["sessionUpdate"]
        if "messageId" in update:
            name = kind.removesuffix("_chunk")
            entry = self._entries.setdefault((name, update["messageId"]), [name, ""])
            if kind.endswith("_chunk"):
                entry[1] += update["content"]["text"]
            else:
                entry[1] = "".join(block["text"] for block in update["content"])
        elif kind.startswith("tool_call"):
            key = ("tool", update["toolCallId"])
            entry = self._entries.setdefault(key, ["tool", update.get("title"), None])
            entry[2] = update["status"]

    def all(self) -> list[list[Any]]:
        return list(self._entries.values())


def dumped(model: Any) -> dict[str, Any]:
    """A pydantic model as the wire had it."""
    fields: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return fields

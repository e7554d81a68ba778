"""Run a hub that does what the test requests.

holder.py DIRECTORY URL LEASE_MICROSECONDS
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import WORKSPACE, open_location, read_requests, report

from segue.agents.base import McpTool
from segue.hub import Hub
from segue.hub.turns import engine
from segue.hub.turns.opened import OpenSession
from segue.model.errors import SegueError
from segue.model.event import ToolResult
from segue.model.principal import LOCAL

assert LOCAL.workspace == WORKSPACE
engine.RECOVER_SECONDS = 0.2  # looks for abandoned turns sooner than it would
OPENED: dict[str, OpenSession] = {}


class Hanging:
    """An MCP server whose tools never answer."""

    def servers(self) -> Sequence[str]:
        return ("stuck",)

    async def offered(self) -> Sequence[McpTool]:
        return ()

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError


class LogReporter(logging.Handler):
    """Sends the hub's log messages to the test."""

    def emit(self, record: logging.LogRecord) -> None:
        report("log", level=record.levelname, message=record.getMessage())


async def for_ever(*_: Any) -> None:
    await asyncio.Event().wait()


async def obey(hub: Hub, order: dict[str, Any]) -> dict[str, Any]:
    session = order.get("session", "")
    match order["do"]:
        case "create":
            created = await hub.editor.create(LOCAL, cwd="/work")
            return {"session": created.id}
        case "hold":
            OPENED[session] = await hub.turns.open(LOCAL, session, tools=Hanging())
        case "prompt":
            opened = None if order.get("plain") else OPENED.get(session)
            return {"turn": await hub.turns.submit(LOCAL, session, order["text"], opened=opened)}
        case "close":
            await OPENED.pop(session).close()
        case "quit":
            for opened in OPENED.values():
                await opened.close()
            await hub.close()
        case "answer":
            await hub.turns.answer(LOCAL, session, order["ask"], "allow")
        case "drain":
            await hub.turns.engine.drain(20.0, "the server stops")
            await hub.close()
        case "wait":
            return {"reason": await hub.turns.wait(LOCAL, session, order["turn"])}
        case "run":
            return {"reason": await hub.turns.run(LOCAL, session, order["text"])}
        case "deafen":
            # From now on it finds out that a lease is lost only when it writes.
            hub.store.renew = for_ever
    return {}


async def main() -> None:
    directory, url, lease = sys.argv[1:]
    logging.getLogger("segue").addHandler(LogReporter())
    logging.getLogger("segue").setLevel(logging.INFO)
    store = await open_location(directory, url)
    hub = Hub(store, Path(directory), lease=int(lease))
    report("ready", holder=hub.turns.engine.holder)
    async for order in read_requests():
        try:
            report("done", **await obey(hub, order))
        except SegueError as error:
            report("done", error=type(error).__name__, message=error.message)


if __name__ == "__main__":
    asyncio.run(main())

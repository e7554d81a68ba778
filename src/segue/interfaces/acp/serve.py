"""Serving one client: over any two ends, over this process's own streams, for any agent."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal

from segue.acp.rpc import Connection, Reader, Writer
from segue.acp.stdio import open_stdio, reserve_stdio
from segue.model.principal import Principal, check_workspace

from .capabilities import MARKERS, Offers
from .server import Door, Program

if TYPE_CHECKING:
    from pathlib import Path

    from segue.agents.base import Agent
    from segue.hub import Hub

    from .server import OpenHub

# What an agent that keeps nothing cannot do.
_FORGETFUL = frozenset({"load", "resume", "delete", "fork", "title", "archive", "status"})


async def serve(
    open_hub: OpenHub, principal: Principal, reader: Reader, writer: Writer, **options: Any
) -> None:
    """Answer one client until it goes away; then its turns are cancelled and its sessions free.

    The hub is opened when it is first needed, and closed at the end. `options` are Door's own.
    """
    async with AsyncExitStack() as stack:

        async def opened() -> Hub:
            return await stack.enter_async_context(await open_hub())

        door = Door(opened, principal, **options)
        door.connection = Connection(reader, writer, door)
        try:
            await door.connection.serve()
        finally:
            await door.close()


def serve_stdio(open_hub: OpenHub, principal: Principal, **options: Any) -> None:
    """The same over this process's own standard streams, until they end or we are told to."""
    reserve_stdio()
    asyncio.run(_serve_stdio(open_hub, principal, options))


async def _serve_stdio(open_hub: OpenHub, principal: Principal, options: dict[str, Any]) -> None:
    lines = await open_stdio()
    serving = asyncio.ensure_future(serve(open_hub, principal, lines, lines, **options))
    if sys.platform != "win32":
        # An editor that is in a hurry ends us so; what we began must come to rest all the same.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await asyncio.wait([serving])
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await lines.close()
    if not serving.cancelled():
        serving.result()


def serve_acp(
    agent: Agent,
    *,
    name: str | None = None,
    title: str | None = None,
    version: str = "0",
    persist: Literal["store", "memory"] | None = "store",
    data_dir: str | Path | None = None,
    workspace: str = "local",
    without: Iterable[str] = (),
    keep_days: int | None = None,
) -> None:
    """Be an ACP agent on standard input and output, until the client goes away.

        class Echo:
            async def run(self, turn: segue.Turn) -> segue.StopReason:
                await turn.say(f"You said: {turn.text}")
                return "end_turn"

        segue.serve_acp(Echo())

    Sessions are kept in segue's store (in `data_dir`, by default where `segue` keeps its own), so
    that every session method of the protocol works and `segue` sees them too; `persist="memory"`
    keeps them for as long as the process lives (`keep_days` forgets those that were idle for so
    long), `persist=None` for as long as they are open, and says so to clients. `without` names
    markers that are not to be offered: `{"load", "resume"}` makes an archive that can be listed
    only.
    """
    left_out = frozenset(without)
    if strange := left_out - MARKERS:
        raise ValueError(f"no such markers: {', '.join(sorted(strange))}")
    if keep_days is not None and persist != "memory":
        raise ValueError("keep_days is for sessions in memory; the store has its own retention")
    own = name or type(agent).__name__.lower()
    offers = Offers(
        name=own,
        title=title or own,
        version=version,
        without=left_out | (frozenset() if persist else _FORGETFUL),
        auth=False,
        remembers=persist is not None,
        keep_days=keep_days,
    )
    principal = Principal(workspace=check_workspace(workspace), local=True)

    kind = f"program:{own}"

    async def opened() -> Hub:
        from segue.factory import memory_hub, open_hub

        hub = await open_hub(data_dir, sources="none") if persist == "store" else memory_hub()
        hub.agent_registry.register(kind, lambda spec: agent)
        return hub

    program = Program(own, {"kind": kind}, agent)
    serve_stdio(opened, principal, program=program, offers=offers)

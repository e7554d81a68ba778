"""Serve one ACP client over any transport, over standard streams, or with one Python agent."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal

from segue.acp.rpc import Connection, LineSender, Reader, Writer
from segue.acp.stdio import open_stdio, reserve_stdio
from segue.model.principal import Principal, check_workspace

from .capabilities import OPTIONAL_CAPABILITIES, AgentProfile
from .served_agent import ServedAgent
from .server import AcpServer

if TYPE_CHECKING:
    from pathlib import Path

    from segue.acp.wire import LoginMethod
    from segue.agents.base import Agent, Select, Switch
    from segue.agents.base.declaration import Choices, Commands
    from segue.hub import Hub

    from .server import OpenHub

# The capabilities that need stored sessions.
_NEEDS_STORAGE = frozenset({"load", "resume", "delete", "fork", "title", "archive", "status"})


async def serve(
    open_hub: OpenHub,
    principal: Principal,
    reader: Reader,
    writer: Writer,
    *,
    finish_turns: bool = False,
    **options: Any,
) -> None:
    """Answer one client until it disconnects, then cancel its turns and release its sessions.

    With `finish_turns`, wait for its turns first. A turn that waits for an answer then is stored,
    if its agent can resume it. The hub is opened when it is first needed, and closed at the end.
    AcpServer gets `options`.
    """
    async with AsyncExitStack() as stack:

        async def open_until_exit() -> Hub:
            return await stack.enter_async_context(await open_hub())

        server = AcpServer(open_until_exit, principal, **options)
        server.connection = Connection(LineSender(writer), server)
        try:
            await server.connection.serve(reader)
            if finish_turns:
                await server.finish_turns()
        finally:
            await server.close()


def serve_stdio(open_hub: OpenHub, principal: Principal, **options: Any) -> None:
    """Answer one client over standard input and output, until they end or SIGTERM arrives."""
    reserve_stdio()
    asyncio.run(_serve_stdio(open_hub, principal, options))


async def _serve_stdio(open_hub: OpenHub, principal: Principal, options: dict[str, Any]) -> None:
    stdio = await open_stdio()
    serving = asyncio.ensure_future(serve(open_hub, principal, stdio, stdio, **options))
    if sys.platform != "win32":
        # Some editors stop their agents with SIGTERM. Turns must be cancelled in that case too.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await asyncio.wait([serving])
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await stdio.close()
    if not serving.cancelled():
        serving.result()


def serve_acp(
    agent: Agent,
    *,
    name: str | None = None,
    title: str | None = None,
    version: str = "0",
    modes: Choices = (),
    models: Choices = (),
    options: Iterable[Select | Switch] = (),
    commands: Commands = (),
    prompt: Iterable[str] = (),
    logins: Iterable[LoginMethod] = (),
    meta: Mapping[str, Any] | None = None,
    persist: Literal["store", "memory"] | None = "store",
    data_dir: str | Path | None = None,
    workspace: str = "local",
    without: Iterable[str] = (),
    keep_days: int | None = None,
    only_own_sessions: bool = False,
) -> None:
    """Serve an agent over ACP on standard input and output, until the client disconnects.

        class Echo:
            async def run(self, turn: segue.Turn) -> segue.StopReason:
                await turn.send_message(f"You said: {turn.text}")
                return "end_turn"

        segue.serve_acp(Echo())

    The agent offers what it declares, and nothing else. `modes`, `models` and `commands` map ids to
    names (of commands: to descriptions), or are lists of Choice and Command. Turn has the values
    that the user chose. `prompt` has the content that prompts may have besides text and links:
    image, audio, embeddedContext. `logins` are login methods; for those without `args` the agent
    has the methods `log_in` and `log_out`. `meta` is the `_meta` of the agent's capabilities.

    An agent may also have the methods `session_opened`, `session_configured`, `session_closed`,
    `extension` and `notify`.

    `persist="store"` stores sessions in segue's data directory, or in `data_dir`: every session
    method of the protocol works, and `segue list` shows the sessions. `persist="memory"` keeps
    them until the process ends; those that were idle for `keep_days` are deleted earlier.
    `persist=None` keeps each session until it is closed, and announces no method that needs more.

    `without` names capabilities that the agent does not announce. An agent without
    `{"load", "resume"}` can list sessions, but not open them again.

    With `only_own_sessions`, clients list and open only the sessions that this agent has begun,
    which it recognizes by its name. Otherwise they get every session of the workspace.
    """
    from segue.agents.base import HandlesLogin
    from segue.agents.base.declaration import declare

    omitted = frozenset(without)
    _check_serve_options(omitted, persist, keep_days)
    declaration = declare(
        modes=modes,
        models=models,
        options=options,
        commands=commands,
        prompt=prompt,
        logins=logins,
    )
    run_by_agent = [method.id for method in declaration.logins if method.args is None]
    if run_by_agent and not isinstance(agent, HandlesLogin):
        raise ValueError(f"the login method {run_by_agent[0]!r} needs an agent with `log_in`")
    agent_name = name or type(agent).__name__.lower()
    profile = AgentProfile(
        name=agent_name,
        title=title or agent_name,
        version=version,
        without=omitted | (frozenset() if persist else _NEEDS_STORAGE),
        auth=bool(declaration.logins),
        declaration=declaration,
        declared_meta=meta or {},
        persistent=persist is not None,
        keep_days=keep_days,
    )
    principal = Principal(workspace=check_workspace(workspace), local=True)
    kind = f"program:{agent_name}"

    async def open_own_hub() -> Hub:
        from segue.factory import open_hub

        hub = await open_hub(data_dir, sources="none", in_memory=persist != "store")
        hub.agent_registry.register(kind, lambda spec: agent)
        return hub

    served_agent = ServedAgent(
        agent_name, {"kind": kind}, agent, declaration, only_own_sessions=only_own_sessions
    )
    serve_stdio(open_own_hub, principal, served_agent=served_agent, profile=profile)


def _check_serve_options(
    omitted: frozenset[str], persist: str | None, keep_days: int | None
) -> None:
    """Raise ValueError for options that serve_acp does not have, or that exclude each other."""
    if unknown := omitted - OPTIONAL_CAPABILITIES:
        raise ValueError(
            f"unknown capabilities in `without`: {', '.join(sorted(unknown))}; "
            f"use {', '.join(sorted(OPTIONAL_CAPABILITIES))}"
        )
    if keep_days is not None and persist != "memory":
        raise ValueError(
            'keep_days needs persist="memory"; `segue prune` deletes sessions from the store'
        )

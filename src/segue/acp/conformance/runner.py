"""Run the checks against an agent."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, NamedTuple

from segue.acp.process import AgentProcess

from . import connection_checks, session_checks, turn_checks
from .connection_checks import initialize_params
from .peer import AgentError, CheckFailed, CheckSkipped, Peer, Transport
from .report import Report, Result
from .session import CHECKS, Check, Prompts, Steps, delete_params

# Importing these modules registers their checks.
CHECK_MODULES = (connection_checks, session_checks, turn_checks)
VERSIONS = (1, 2)
EXIT_SECONDS = 10.0  # in which an agent has to exit when its input ends
# The checks of everything that was sent during the other checks.
MESSAGES = {
    "STREAM-001": "every line is one JSON-RPC message in UTF-8",
    "STREAM-002": "every message has the fields and types of the protocol",
    "STREAM-003": "the agent sends no request that the client did not offer",
    "STREAM-004": "the agent exits when its input ends",
}


class Connected(NamedTuple):
    """A connection to a new agent.

    `hang_up` ends the input and returns if the agent exits. `exit_reason` returns how it ended.
    """

    transport: Transport
    hang_up: Callable[[], Any]
    exit_reason: Callable[[], Awaitable[str]] | None = None


Connect = Callable[[], AbstractAsyncContextManager[Connected]]


def start_command(
    command: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
) -> Connect:
    """Return a function that starts an agent as a child process."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Connected]:
        process = await AgentProcess.start(command, cwd=cwd, env=env)

        async def hang_up() -> bool:
            await process.stream.close()
            return await process.exits(EXIT_SECONDS)

        try:
            yield Connected(process.stream, hang_up, process.exit_reason)
        finally:
            await process.end()

    return connect


async def check_agent(
    connect: Connect,
    *,
    versions: Sequence[int] = VERSIONS,
    timeout: float = 60.0,
    prompts: Prompts | None = None,
    only: Sequence[str] = (),
    on_result: Callable[[Result], None] | None = None,
) -> Report:
    """Run the checks of each version that the agent supports, and return the results.

    `only` has the ids of checks, or the beginnings of ids. Raises CheckFailed if the agent cannot
    be initialized at all, and ValueError if no check has an id of `only`.
    """
    ids = [*(check.id for check in CHECKS), *MESSAGES]
    for name in only:
        if not any(id.startswith(name) for id in ids):
            groups = dict.fromkeys(id.partition("-")[0] for id in ids)
            raise ValueError(f"there is no check {name!r}; there are those of {', '.join(groups)}")
    runner = _Runner(connect, timeout, prompts or Prompts(), only, on_result)
    supported: list[int] = []
    for version in versions:
        if await runner.supports(version):
            supported.append(version)
            await runner.check(version)
    return Report(
        agent=runner.agent,
        versions=supported,
        results=runner.results,
        sessions_left=runner.sessions_left,
    )


class _Runner:
    """Runs checks, and collects their results."""

    def __init__(
        self,
        connect: Connect,
        timeout: float,
        prompts: Prompts,
        only: Sequence[str],
        on_result: Callable[[Result], None] | None,
    ) -> None:
        self._connect = connect
        self._timeout = timeout
        self._prompts = prompts
        self._only = tuple(only)
        self._on_result = on_result
        self._problems: dict[str, list[str]] = {}  # of everything that was sent, by check
        self.agent: dict[str, Any] = {}
        self.results: list[Result] = []
        self.sessions_left = 0  # made by the checks, and not deleted
        self._sessions: set[str] = set()  # made by the checks of a version

    def _peer(self, connected: Connected, version: int) -> Peer:
        return Peer(connected.transport, version, self._timeout, connected.exit_reason)

    async def supports(self, version: int) -> bool:
        """Return whether the agent speaks a version; note its name."""
        async with self._connect() as connected:
            peer = self._peer(connected, version)
            try:
                result = await peer.request("initialize", initialize_params(version))
            except AgentError as error:
                if version == VERSIONS[0]:
                    raise CheckFailed(f"initialize failed: {error}") from None
                return False
            finally:
                await peer.close()
        greeting = result if isinstance(result, dict) else {}
        info = greeting.get("info" if version == 2 else "agentInfo")
        self.agent = info if isinstance(info, dict) else self.agent
        # Some agents answer 2 in the shape of version 1.
        return version == 1 or (greeting.get("protocolVersion") == 2 and "info" in greeting)

    async def check(self, version: int) -> None:
        """Run all checks of a version: those that share a connection, then the others."""
        checks = [
            check for check in CHECKS if version in check.versions and self._is_selected(check.id)
        ]
        self._problems = {id: [] for id in MESSAGES}
        shared = [check for check in checks if not check.fresh]
        while shared:
            shared = await self._run_shared(version, shared)
        for check in checks:
            if check.fresh:
                await self._run_fresh(version, check)
        await self._delete_sessions(version)
        for id, rule in MESSAGES.items():
            if self._is_selected(id):
                problems = self._problems[id]
                detail = "; ".join(problems[:3])
                outcome: Any = "failed" if problems else "passed"
                self._add(Result(check=id, version=version, level="must", rule=rule,
                                 outcome=outcome, detail=detail))  # fmt: skip

    def _is_selected(self, id: str) -> bool:
        return not self._only or id.startswith(self._only)

    async def _run_shared(self, version: int, checks: Sequence[Check]) -> list[Check]:
        """Run checks on one connection; return those that did not run because the agent ended."""
        with tempfile.TemporaryDirectory(prefix="acp-check-") as cwd:
            async with self._connect() as connected:
                peer = self._peer(connected, version)
                try:
                    greeting = await peer.request("initialize", initialize_params(version))
                    steps = Steps(peer, greeting, cwd, self._prompts)
                    for index, check in enumerate(checks):
                        await self._run(check, steps)
                        if peer.ended:
                            return list(checks[index + 1 :])
                    if not await self._hang_up(connected):
                        message = f"it still runs {EXIT_SECONDS:g} s later"
                        self._problems["STREAM-004"].append(message)
                finally:
                    await self._close(peer)
        return []

    async def _hang_up(self, connected: Connected) -> bool:
        try:
            async with asyncio.timeout(EXIT_SECONDS + 1):
                return bool(await connected.hang_up())
        except TimeoutError:
            return False

    async def _run_fresh(self, version: int, check: Check) -> None:
        with tempfile.TemporaryDirectory(prefix="acp-check-") as cwd:
            async with self._connect() as connected:
                peer = self._peer(connected, version)
                try:
                    await self._run(check, Steps(peer, {}, cwd, self._prompts))
                finally:
                    await self._close(peer)

    async def _delete_sessions(self, version: int) -> None:
        """Delete the sessions that the checks have made, if the agent can delete sessions."""
        sessions, self._sessions = self._sessions, set()
        if not sessions:
            return
        async with self._connect() as connected:
            peer = self._peer(connected, version)
            try:
                greeting = await peer.request("initialize", initialize_params(version))
                if Steps(peer, greeting, "", self._prompts).has("delete"):
                    for id in list(sessions):
                        with suppress(AgentError):
                            await peer.request("session/delete", delete_params(id))
                            sessions.remove(id)
            except (AgentError, CheckFailed):
                pass  # the report says how many are left
            finally:
                await peer.close()
        self.sessions_left += len(sessions)

    async def _close(self, peer: Peer) -> None:
        await peer.close()
        self._sessions |= peer.sessions
        self._problems["STREAM-001"] += peer.line_problems
        self._problems["STREAM-002"] += peer.shape_problems
        self._problems["STREAM-003"] += [
            method
            for method in dict.fromkeys(peer.agent_requests)
            if method != "session/request_permission" and not method.startswith("_")
        ]

    async def _run(self, check: Check, steps: Steps) -> None:
        outcome: Any = "passed"
        detail = ""
        try:
            await check.run(steps)
        except CheckSkipped as skipped:
            outcome, detail = "skipped", str(skipped)
        except (CheckFailed, AgentError) as failure:
            outcome, detail = "failed" if check.level == "must" else "warning", str(failure)
        self._add(
            Result(
                check=check.id,
                version=steps.version,
                level=check.level,
                rule=check.rule,
                outcome=outcome,
                detail=detail,
            )
        )

    def _add(self, result: Result) -> None:
        self.results.append(result)
        if self._on_result is not None:
            self._on_result(result)

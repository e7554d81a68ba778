"""Run an ACP agent as a child process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .stdio import LineStream, from_streams

log = logging.getLogger("segue.acp")

EXIT_SECONDS = 5.0  # between closing the agent's input and killing it
_EXIT_REASON_SECONDS = 1.0
_STDERR_LINES = 20  # kept to explain why the agent exited
_EXIT_REASON_CHARACTERS = 500


class AgentProcess:
    """An agent that speaks ACP on its standard streams; `end` also ends its own children."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_task = asyncio.ensure_future(self._read_stderr())
        self.stream: LineStream = from_streams(process.stdout, process.stdin)

    @classmethod
    async def start(
        cls, command: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> AgentProcess:
        """Start an agent. Raises OSError if the program does not exist or cannot be run."""
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=cwd,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,  # a process group, so that its children end with it
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode(errors="replace").rstrip()
            log.debug("%s: %s", self.pid, text)
            self._stderr.append(text)

    async def exit_reason(self) -> str:
        """Return the exit code and the last lines of standard error."""
        exited = asyncio.ensure_future(self._process.wait())
        tasks: list[asyncio.Future[Any]] = [self._stderr_task, exited]
        await asyncio.wait(tasks, timeout=_EXIT_REASON_SECONDS)
        exited.cancel()
        code = self._process.returncode
        ended = "it ended" if code is None else f"it ended with exit code {code}"
        stderr = " ".join(line for line in self._stderr if line)[-_EXIT_REASON_CHARACTERS:]
        return f"{ended}: {stderr}" if stderr else ended

    async def exits(self, timeout: float) -> bool:
        """Return whether the agent exits within `timeout` seconds."""
        try:
            await asyncio.wait_for(self._process.wait(), timeout)
        except TimeoutError:
            return False
        return True

    async def end(self, timeout: float = EXIT_SECONDS) -> None:
        """Close the agent's input, which asks it to exit, and kill it after `timeout` seconds."""
        await self.stream.close()
        try:
            await asyncio.wait_for(self._process.wait(), timeout)
        except TimeoutError:
            log.info("agent process %s did not exit in %g s; killing it", self.pid, timeout)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # and the children that it left running
            await self._process.wait()
            self._stderr_task.cancel()
            await asyncio.gather(self._stderr_task, return_exceptions=True)

"""Another agent as a child process: its pipes, its last words, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .stdio import Lines, streams

log = logging.getLogger("segue.acp")

ENDING_SECONDS = 5.0
_LAST_SECONDS = 1.0
_WORDS = 20  # lines of standard error that are kept, to say why it ended


class AgentProcess:
    """A program that speaks the protocol on its standard streams. `end` leaves nothing of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._said: deque[str] = deque(maxlen=_WORDS)
        self._listening = asyncio.ensure_future(self._listen())
        self.lines: Lines = streams(process.stdout, process.stdin)

    @classmethod
    async def start(
        cls, command: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> AgentProcess:
        """OSError if there is no such program."""
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=cwd,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,  # so that its own children can be ended with it
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode(errors="replace").rstrip()
            log.debug("%s: %s", self.pid, text)
            self._said.append(text)

    async def last_words(self) -> str:
        """Why it ended, as far as it said so."""
        exited = asyncio.ensure_future(self._process.wait())
        both: list[asyncio.Future[Any]] = [self._listening, exited]
        await asyncio.wait(both, timeout=_LAST_SECONDS)
        exited.cancel()
        code = self._process.returncode
        ended = "it ended" if code is None else f"it ended with exit code {code}"
        said = " ".join(line for line in self._said if line)[-500:]
        return f"{ended}: {said}" if said else ended

    async def end(self, patience: float = ENDING_SECONDS) -> None:
        """Close its input, which an agent takes as the end; kill what does not."""
        await self.lines.close()
        try:
            await asyncio.wait_for(self._process.wait(), patience)
        except TimeoutError:
            log.info("%s does not end, and is killed", self.pid)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # with whatever it has left running
            await self._process.wait()
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

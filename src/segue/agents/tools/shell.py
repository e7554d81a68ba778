"""A shell that lives from one command to the next, and the shells of all sessions.

Commands are evaluated in one bash, so directories, variables and functions stay. Each has its own
standard input (none), and says that it is over on a pipe that it cannot reach itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import signal
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from .base import MAX_OUTPUT

IDLE_SECONDS = 1800.0
_CHUNK = 65536


class Ran(NamedTuple):
    """What a command came to. Without a code it was killed, or took the shell with it."""

    output: str
    code: int | None


class Shell:
    """One bash. Cancelling a command, or its running out of time, kills the shell.

    `variables` are told to the bash itself: no name among them means anything to what starts it.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: str,
        env: dict[str, str],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.variables = variables or {}
        self._command = command
        self._cwd = cwd
        self._env = env
        self._process: asyncio.subprocess.Process | None = None
        self._pipes: list[int] = []
        self._output = _Output()
        self._over: asyncio.Future[int | None] | None = None
        self._token, self._told = "", b""
        self._turn = asyncio.Lock()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def run(self, command: str, seconds: float) -> Ran:
        """Run a command; TimeoutError with what it had said when its time is over."""
        async with self._turn:
            if not self.alive:
                await self._start()
            assert self._process is not None and self._process.stdin is not None
            self._output = _Output()
            self._token, self._told = secrets.token_hex(8), b""
            self._over = asyncio.get_running_loop().create_future()
            tell = self._tell
            line = (
                f"eval {shlex.quote(command)} {tell}>&- </dev/null\n"
                f"printf '%s %d\\n' {self._token} $? >&{tell}\n"
            )
            try:
                async with asyncio.timeout(seconds):
                    with suppress(ConnectionError):
                        self._process.stdin.write(line.encode("utf-8", "surrogateescape"))
                        await self._process.stdin.drain()
                    code = await self._over
            except TimeoutError:
                self._drain()
                await self.close()
                raise TimeoutError(self._output.text()) from None
            except BaseException:
                await asyncio.shield(self.close())
                raise
            self._drain()
            if code is None:
                await self.close()
            return Ran(self._output.text(), code)

    async def close(self) -> None:
        """Kill the shell and what it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
        loop = asyncio.get_running_loop()
        for pipe in self._pipes:
            loop.remove_reader(pipe)
            os.close(pipe)
        self._pipes = []

    async def _start(self) -> None:
        await self.close()
        said, says = os.pipe()
        told, tells = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=says,
                stderr=says,
                pass_fds=(tells,),
                cwd=self._cwd,
                env=self._env,
                start_new_session=True,
            )
        except BaseException:
            os.close(said)
            os.close(told)
            raise
        finally:
            os.close(says)
            os.close(tells)
        self._tell = tells  # the number that it has in the shell
        self._pipes = [said, told]
        loop = asyncio.get_running_loop()
        for pipe, heard in ((said, self._hear), (told, self._ended)):
            os.set_blocking(pipe, False)
            loop.add_reader(pipe, heard)
        assert self._process.stdin is not None
        for name, value in self.variables.items():
            line = f"export {name}={shlex.quote(value)} 2>/dev/null\n"
            self._process.stdin.write(line.encode("utf-8", "surrogatepass"))

    def _hear(self) -> bool:
        """Take in some output; whether there was any."""
        try:
            data = os.read(self._pipes[0], _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipes[0])
            return False
        self._output.add(data)
        return True

    def _drain(self) -> None:
        """What was written before the command ended is in the pipe by now."""
        for _ in range(64):
            if not self._pipes or not self._hear():
                return

    def _ended(self) -> None:
        try:
            data = os.read(self._pipes[1], _CHUNK)
        except BlockingIOError:
            return
        code: int | None = None
        if data:
            # A command can find this pipe after all; it cannot know the token.
            self._told = (self._told + data)[-_CHUNK:]
            said = re.search(rb"%s (\d+)\n" % self._token.encode(), self._told)
            if said is None:
                return
            code = int(said[1])
        else:
            asyncio.get_running_loop().remove_reader(self._pipes[1])
        if self._over is not None and not self._over.done():
            self._over.set_result(code)


class _Output:
    """The beginning and the end of what a command says."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self._lost = 0

    def add(self, data: bytes) -> None:
        room = MAX_OUTPUT // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._kept += len(data)
        while self._kept - len(self._tail[0]) > MAX_OUTPUT // 2 if self._tail else False:
            gone = len(self._tail.popleft())
            self._kept -= gone
            self._lost += gone

    def text(self) -> str:
        head = self._head.decode("utf-8", "replace")
        tail = b"".join(self._tail)
        lost = self._lost
        if len(tail) > MAX_OUTPUT // 2:
            lost += len(tail) - MAX_OUTPUT // 2
            tail = tail[-MAX_OUTPUT // 2 :]
        gap = f"\n\n[… {lost} bytes left out …]\n\n" if lost else ""
        return head + gap + tail.decode("utf-8", "replace")


class ShellPool:
    """The shells of this process's sessions; one that is left alone long enough is closed."""

    def __init__(self, idle: float = IDLE_SECONDS) -> None:
        self._idle = idle
        self._shells: dict[Hashable, tuple[Shell, asyncio.TimerHandle]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, key: Hashable, make: Callable[[], Shell]) -> Shell:
        shell, timer = self._shells.get(key, (None, None))
        if timer is not None:
            timer.cancel()
        shell = shell or make()
        later = asyncio.get_running_loop().call_later(self._idle, self._retire, key)
        self._shells[key] = (shell, later)
        return shell

    async def drop(self, key: Hashable) -> None:
        shell, timer = self._shells.pop(key, (None, None))
        if timer is not None:
            timer.cancel()
        if shell is not None:
            await shell.close()

    async def close(self) -> None:
        await asyncio.gather(*(self.drop(key) for key in list(self._shells)), *self._closing)

    def _retire(self, key: Hashable) -> None:
        task = asyncio.get_running_loop().create_task(self.drop(key))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

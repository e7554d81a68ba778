"""A shell that stays open between commands, and the pool of all sessions' shells.

One bash evaluates all commands, so its directory, variables and functions stay. Each command runs
with an empty standard input. The shell reports the exit code on a pipe that is closed in commands.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from segue.agents.sandbox import launch

from .base import MAX_OUTPUT_CHARACTERS

IDLE_SECONDS = 1800.0
_CHUNK_BYTES = 65536
_HALF_OUTPUT_BYTES = MAX_OUTPUT_CHARACTERS // 2


class CommandResult(NamedTuple):
    """A command's output and exit code, and whether it ended the shell."""

    output: str
    code: int
    shell_ended: bool = False


class Shell:
    """One bash process. Cancelling a command, or a timeout, kills it; the next command restarts it.

    `variables` are exported inside bash rather than passed in its environment, so that they cannot
    change how the sandbox or bash starts.
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
        self._exit_code: asyncio.Future[int | None] | None = None
        self._status_fd = -1  # the number of the status pipe in the shell
        self._token, self._status_data = "", b""
        self._lock = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.returncode is None

    async def run(self, command: str, seconds: float) -> CommandResult:
        """Run a command. Raises TimeoutError, with the output so far, when the time is over."""
        async with self._lock:
            if not self.alive:
                await self._start()
            assert self._process is not None and self._process.stdin is not None
            self._output = _Output()
            self._token, self._status_data = secrets.token_hex(8), b""
            self._exit_code = asyncio.get_running_loop().create_future()
            line = (
                f"eval {shlex.quote(command)} {self._status_fd}>&- </dev/null\n"
                f"printf '%s %d\\n' {self._token} $? >&{self._status_fd}\n"
            )
            try:
                async with asyncio.timeout(seconds):
                    with suppress(ConnectionError):
                        self._process.stdin.write(line.encode("utf-8", "surrogateescape"))
                        await self._process.stdin.drain()
                    code = await self._exit_code
                    shell_ended = code is None
                    if code is None:
                        code = await self._process.wait()
            except TimeoutError:
                self._drain()
                await self.close()
                raise TimeoutError(self._output.text()) from None
            except BaseException:
                await asyncio.shield(self.close())
                raise
            self._drain()
            if shell_ended:
                await self.close()
            code = code if code >= 0 else 128 - code  # negative after a signal
            return CommandResult(self._output.text(), code, shell_ended)

    async def close(self) -> None:
        """Kill the shell and everything that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        await launch.end(process)
        loop = asyncio.get_running_loop()
        for pipe in self._pipes:
            loop.remove_reader(pipe)
            os.close(pipe)
        self._pipes = []

    async def _start(self) -> None:
        await self.close()
        output_reader, output_writer = os.pipe()
        status_reader, status_writer = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output_writer,
                stderr=output_writer,
                pass_fds=(status_writer,),
                cwd=self._cwd,
                env=self._env,
                start_new_session=True,
            )
        except BaseException:
            os.close(output_reader)
            os.close(status_reader)
            raise
        finally:
            os.close(output_writer)
            os.close(status_writer)
        self._status_fd = status_writer
        self._pipes = [output_reader, status_reader]
        loop = asyncio.get_running_loop()
        for pipe, callback in (
            (output_reader, self._read_output),
            (status_reader, self._read_status),
        ):
            os.set_blocking(pipe, False)
            loop.add_reader(pipe, callback)
        assert self._process.stdin is not None
        for name, value in self.variables.items():
            line = f"export {name}={shlex.quote(value)} 2>/dev/null\n"
            self._process.stdin.write(line.encode("utf-8", "surrogatepass"))

    def _read_output(self) -> bool:
        """Read some output; return False if there is none."""
        try:
            data = os.read(self._pipes[0], _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipes[0])
            return False
        self._output.add(data)
        return True

    def _drain(self) -> None:
        """Read the rest of the output; all of it is in the pipe when the command has ended."""
        for _ in range(64):
            if not self._pipes or not self._read_output():
                return

    def _read_status(self) -> None:
        try:
            data = os.read(self._pipes[1], _CHUNK_BYTES)
        except BlockingIOError:
            return
        code: int | None = None
        if data:
            # A command may find a way to write to this pipe, but it does not know the token.
            self._status_data = (self._status_data + data)[-_CHUNK_BYTES:]
            status = re.search(rb"%s (\d+)\n" % self._token.encode(), self._status_data)
            if status is None:
                return
            code = int(status[1])
        else:
            asyncio.get_running_loop().remove_reader(self._pipes[1])
        if self._exit_code is not None and not self._exit_code.done():
            self._exit_code.set_result(code)


class _Output:
    """The beginning and the end of a command's output."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._omitted_bytes = 0

    def add(self, data: bytes) -> None:
        """Append output, and drop the middle if there is too much."""
        head_space = _HALF_OUTPUT_BYTES - len(self._head)
        if head_space > 0:
            self._head += data[:head_space]
            data = data[head_space:]
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
        while self._tail and self._tail_bytes - len(self._tail[0]) > _HALF_OUTPUT_BYTES:
            dropped = len(self._tail.popleft())
            self._tail_bytes -= dropped
            self._omitted_bytes += dropped

    def text(self) -> str:
        """Return the output, with a note in place of the omitted middle."""
        head = self._head.decode("utf-8", "replace")
        tail = b"".join(self._tail)
        omitted = self._omitted_bytes
        if len(tail) > _HALF_OUTPUT_BYTES:
            omitted += len(tail) - _HALF_OUTPUT_BYTES
            tail = tail[-_HALF_OUTPUT_BYTES:]
        note = f"\n\n[… {omitted} bytes left out …]\n\n" if omitted else ""
        return head + note + tail.decode("utf-8", "replace")


ShellKey = tuple[Hashable, ...]


class ShellPool:
    """The shells of this process's sessions. A shell closes after it has been idle for long.

    A key begins with the id of the shell's session.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._shells: dict[ShellKey, tuple[Shell, asyncio.TimerHandle]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, key: ShellKey, make: Callable[[], Shell]) -> Shell:
        """Return the shell for a key, made if necessary, and restart its idle timer."""
        shell, timer = self._shells.get(key, (None, None))
        if timer is not None:
            timer.cancel()
        shell = shell or make()
        timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._close_idle, key)
        self._shells[key] = (shell, timer)
        return shell

    async def drop(self, key: ShellKey) -> None:
        """Close the shell for a key, if there is one."""
        shell, timer = self._shells.pop(key, (None, None))
        if timer is not None:
            timer.cancel()
        if shell is not None:
            # Even if this call is cancelled, `close` waits for the end of the shell.
            await asyncio.shield(self._track(shell.close()))

    async def drop_session(self, session: str) -> None:
        """Close the shells of a session."""
        keys = [key for key in self._shells if key[0] == session]
        await asyncio.gather(*(self.drop(key) for key in keys))

    async def close(self) -> None:
        """Close all shells."""
        await asyncio.gather(*(self.drop(key) for key in list(self._shells)), *self._closing)

    def _close_idle(self, key: ShellKey) -> None:
        self._track(self.drop(key))

    def _track(self, closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

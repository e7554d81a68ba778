"""Run the command in a pseudo-terminal with a terminal emulator."""

import os
import pty
import select
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pexpect
import ptyprocess
import pyte

from tests.command_server import CommandServer, ForkedCommand
from tests.interfaces.cli.child import COMMAND

TIMEOUT_SECONDS = 120.0


class ForkedTerminal(pexpect.spawn):
    """`segue` in a pseudo-terminal, as `pexpect.spawn` runs it, but in a fork."""

    def __init__(
        self, server: CommandServer, *words: str, env: dict[str, str], **options: Any
    ) -> None:
        self._server = server
        super().__init__(COMMAND, list(words), env=env, timeout=TIMEOUT_SECONDS, **options)
        self.delaybeforesend = None  # no test types a password

    def _spawnpty(
        self,
        args: list[str],
        *,
        env: dict[str, str],
        cwd: str | None,
        dimensions: tuple[int, int] = (24, 80),
        **_: object,
    ) -> ptyprocess.PtyProcess:
        controller, terminal = pty.openpty()
        try:
            termios.tcsetwinsize(terminal, dimensions)
            forked = self._server.start(
                args, env=env, cwd=Path(cwd or os.getcwd()), streams=[terminal] * 3, terminal=True
            )
        finally:
            os.close(terminal)
        return _ForkedPty(forked, controller)


class _ForkedPty(ptyprocess.PtyProcess):  # type: ignore[misc]  # it has no types
    """The controlling end of the terminal of a command that another process waits for."""

    def __init__(self, forked: ForkedCommand, controller: int) -> None:
        super().__init__(forked.pid, controller)
        self._forked = forked

    def isalive(self) -> bool:
        if self.terminated:
            return False
        # A command that has closed its terminal is about to end.
        code = self._forked.wait(TIMEOUT_SECONDS) if self.flag_eof else self._forked.poll()
        if code is None or self._has_output():
            return True
        self.terminated = True
        self.exitstatus, self.signalstatus = (code, None) if code >= 0 else (None, -code)
        return False

    def _has_output(self) -> bool:
        """Return whether some of the command's output is unread, so that it has not ended yet."""
        return not (self.closed or self.flag_eof) and bool(select.select([self.fd], [], [], 0)[0])

    def close(self, force: bool = True) -> None:
        if not self.closed:
            self.isalive()
            self.fileobj.close()
            self.fd, self.closed = -1, True
            with self._forked:  # ends it, if it has not ended
                pass
            self.isalive()


class Screen:
    """`segue` with some arguments, on a screen of a given size."""

    def __init__(
        self,
        server: CommandServer,
        *words: str,
        env: dict[str, str],
        cwd: str,
        columns: int = 100,
        lines: int = 14,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self.child = ForkedTerminal(
            server,
            *words,
            env={**env, "TERM": "xterm-256color"},
            cwd=cwd,
            dimensions=(lines, columns),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.child.close(force=True)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def press(self, keys: str) -> None:
        self.child.send(keys)

    def until(self, test: Callable[[str], bool] | str) -> str:
        """Return the screen's text once it contains a text or passes a test."""
        matches = (lambda shown: test in shown) if isinstance(test, str) else test
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not matches(self.text):
            assert time.monotonic() < deadline, f"waited for {test!r}, saw:\n{self.text}"
            try:
                data = self.child.read_nonblocking(65536, timeout=0.1)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                assert matches(self.text), f"it ended; waited for {test!r}, saw:\n{self.text}"
                break
            self.raw += data
            # The emulator has no alternate screen, so clear the screen when it is left.
            self._stream.feed(data.replace(b"\x1b[?1049l", b"\x1b[2J\x1b[H"))
        return self.text

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    def ended(self) -> int:
        """Wait for the end of the command and return its exit code."""
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus or 0)


OpenScreen = Callable[..., Screen]
OpenTerminal = Callable[..., ForkedTerminal]

"""Run the command in a pseudo-terminal with a terminal emulator."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pexpect
import pyte

from tests.interfaces.cli.child import COMMAND

TIMEOUT_SECONDS = 120.0


class Screen:
    """`segue` with some arguments, on a screen of a given size."""

    def __init__(
        self,
        *words: str,
        env: dict[str, str],
        cwd: str,
        columns: int = 100,
        lines: int = 14,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self.child = pexpect.spawn(
            COMMAND,
            list(words),
            env={**env, "TERM": "xterm-256color"},
            cwd=cwd,
            dimensions=(lines, columns),
            timeout=TIMEOUT_SECONDS,
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

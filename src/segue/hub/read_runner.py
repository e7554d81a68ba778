"""Run reads on one hub from synchronous code, without an event loop where possible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from segue.event_loop import NeedsEventLoop, run_without_loop

if TYPE_CHECKING:
    import asyncio

    from .hub import Hub

T = TypeVar("T")


class ReadRunner:
    """Runs reads without an event loop, until a read needs one.

    The embedded store's reads never wait, and importing asyncio takes longer than `segue list`.
    The hub is opened with the first read. A read must not write or print: it may run twice.
    """

    def __init__(self, open_hub: Callable[[], Awaitable[Hub]], *, use_loop: bool = False) -> None:
        """Prepare to open a hub; with `use_loop` every read runs under an event loop."""
        self._open_hub = open_hub
        self._hub: Hub | None = None
        self._runner: asyncio.Runner | None = None
        if use_loop:
            self._start_loop()

    def run(self, read: Callable[[Hub], Awaitable[T]]) -> T:
        """Return the result of a read."""
        if self._runner is None:
            try:
                return run_without_loop(self._read(read))
            except NeedsEventLoop:
                self.close()
                self._start_loop()
        assert self._runner is not None
        return self._runner.run(self._read(read))

    def close(self) -> None:
        """Close the hub, and the event loop if there is one."""
        hub, self._hub = self._hub, None
        if self._runner is not None:
            if hub is not None:
                self._runner.run(hub.close())
            self._runner.close()
        elif hub is not None:
            try:
                run_without_loop(hub.close())
            except NeedsEventLoop:
                import asyncio

                asyncio.run(hub.close())

    def _start_loop(self) -> None:
        import asyncio

        self._runner = asyncio.Runner()

    async def _read(self, read: Callable[[Hub], Awaitable[T]]) -> T:
        if self._hub is None:
            self._hub = await self._open_hub()
        return await read(self._hub)

"""Code that all children share: open the store and exchange lines with the test."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from segue.store import open_store
from segue.store.base import Store

WORKSPACE = "local"


async def open_location(directory: str, url: str) -> Store:
    return await open_store(Path(directory), url or None)


def report(word: str, **fields: Any) -> None:
    """Write one report as a line of JSON; the line is complete when this returns."""
    os.write(1, json.dumps({"says": word, **fields}).encode() + b"\n")


async def read_requests() -> AsyncIterator[dict[str, Any]]:
    """Yield the test's requests until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run until the end of `main` or of the test, so that no process remains."""

    async def run_main() -> None:
        async def exit_with_the_test() -> None:
            async for _ in read_requests():
                pass
            os._exit(3)

        exit_task = asyncio.ensure_future(exit_with_the_test())
        await main()
        exit_task.cancel()

    asyncio.run(run_main())

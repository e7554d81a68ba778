"""What all children share: the store they are told of, and how they speak with the tests."""

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


async def open_place(directory: str, url: str) -> Store:
    return await open_store(Path(directory), url or None)


def say(word: str, **fields: Any) -> None:
    """One line, handed to the system whole before this returns."""
    os.write(1, json.dumps({"says": word, **fields}).encode() + b"\n")


async def orders() -> AsyncIterator[dict[str, Any]]:
    """What the test tells us, until it is gone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run to the end, or to the end of the test that started us: nobody is left behind."""

    async def accompanied() -> None:
        async def leave_with_the_test() -> None:
            async for _ in orders():
                pass
            os._exit(3)

        companion = asyncio.ensure_future(leave_with_the_test())
        await main()
        companion.cancel()

    asyncio.run(accompanied())

"""Open the stores that the test names, read and write each, and print the result.

opener.py [--as UID]
"""

import asyncio
import os
import sys
import time

from common import WORKSPACE, open_location, read_requests, report

import segue.store.sqlite  # noqa: F401  # while we may still read everything
from segue.model import ids
from segue.model.errors import SegueError
from segue.model.event import Created
from segue.model.query import Query


async def main() -> None:
    if sys.argv[1:2] == ["--as"]:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    report("ready")
    async for order in read_requests():
        # Processes with the same time begin together.
        time.sleep(max(0.0, order.get("at", 0) - time.time()))
        session_ids: list[str] = []
        try:
            store = await open_location(order["directory"], order["url"])
            try:
                session_ids = [session.id for session in await store.page(WORKSPACE, Query())]
                id = ids.new_id()
                await store.create(WORKSPACE, id, [Created(cwd="/work")])
            finally:
                await store.close()
            report("done", session=id)
        except SegueError as error:
            report("done", error=type(error).__name__, message=error.message, found=session_ids)


if __name__ == "__main__":
    asyncio.run(main())

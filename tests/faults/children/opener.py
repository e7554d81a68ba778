"""Opens the stores it is told of, reads and writes each, and says how that went.

opener.py [--as UID]
"""

import asyncio
import os
import sys
import time

from common import WORKSPACE, open_place, orders, say

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
    say("ready")
    async for order in orders():
        # Several that are given one time begin together, whoever heard of it first.
        time.sleep(max(0.0, order.get("at", 0) - time.time()))
        found: list[str] = []
        try:
            store = await open_place(order["directory"], order["url"])
            try:
                found = [each.id for each in await store.page(WORKSPACE, Query())]
                id = ids.new_id()
                await store.create(WORKSPACE, id, [Created(cwd="/work")])
            finally:
                await store.close()
            say("done", session=id)
        except SegueError as error:
            say("done", error=type(error).__name__, message=error.message, found=found)


if __name__ == "__main__":
    asyncio.run(main())

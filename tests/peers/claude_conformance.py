"""Holds SegueSessionStore to the contracts of claude-agent-sdk, which must be on the path.

`python claude_conformance.py DATABASE_URL`, or with an empty one for the embedded store.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from claude_agent_sdk.testing import run_session_store_conformance

from segue.claude import SegueSessionStore


async def main(url: str | None) -> None:
    stores: list[SegueSessionStore] = []
    workspace = count()

    def make() -> SegueSessionStore:
        stores.append(SegueSessionStore(database_url=url, workspace=f"w{next(workspace)}"))
        return stores[-1]

    await run_session_store_conformance(make)
    for store in stores:
        await store.close()
    print(f"{len(stores)} stores conform")


asyncio.run(main(sys.argv[1] or None))

"""Workers that serve, as `segue serve` starts them, with leases that run out soon."""

import asyncio
import sys
from pathlib import Path

from segue.factory import open_hub
from segue.model import clock
from segue.server.serve import Serving, address, first_key, listen
from segue.server.workers import supervise


async def key(serving: Serving) -> str:
    async with await open_hub(serving.directory, serving.database_url) as hub:
        path, _ = await first_key(hub, "local")
        return path.read_text().strip()


if __name__ == "__main__":
    directory, url, count, grace = sys.argv[1:]
    serving = Serving(
        directory=Path(directory),
        database_url=url or None,
        grace=float(grace),
        lease=clock.SECOND,
    )
    secret = asyncio.run(key(serving))
    sock = listen("127.0.0.1", 0)
    supervise(serving, sock, int(count), ready=lambda: print(address(sock), secret, flush=True))

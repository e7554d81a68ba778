"""Run the workers of a server, as `segue serve` does, with leases that expire soon."""

import asyncio
import sys
from pathlib import Path

from segue.factory import open_hub
from segue.model import clock
from segue.server.key_file import ensure_key
from segue.server.settings import ServerSettings
from segue.server.sockets import base_url, listen
from segue.server.workers import supervise


async def local_key(settings: ServerSettings) -> str:
    async with await open_hub(settings.directory, settings.database_url) as hub:
        path, _ = await ensure_key(hub, "local")
        return path.read_text().strip()


if __name__ == "__main__":
    directory, url, count, grace = sys.argv[1:]
    settings = ServerSettings(
        directory=Path(directory),
        database_url=url or None,
        grace_seconds=float(grace),
        lease=clock.SECOND,
    )
    key = asyncio.run(local_key(settings))
    sock = listen("127.0.0.1", 0)
    supervise(settings, sock, int(count), ready=lambda: print(base_url(sock), key, flush=True))

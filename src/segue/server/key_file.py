"""The API key that the first start of a server creates for a workspace."""

from __future__ import annotations

import os
from pathlib import Path

from segue.hub import Hub
from segue.model.errors import Unauthorized


async def ensure_key(hub: Hub, workspace: str) -> tuple[Path, str | None]:
    """Return the file of a workspace's key, and the key itself if it was created just now."""
    path = hub.data_dir / ("key" if workspace == "local" else f"key-{workspace}")
    try:
        await hub.keys.authenticate(path.read_text().strip())
        return path, None
    except (FileNotFoundError, Unauthorized):
        path.unlink(missing_ok=True)  # the key is another store's, or was revoked
    _, key = await hub.keys.create(workspace, "made at the first start")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(key + "\n")
    return path, key

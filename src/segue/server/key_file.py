"""The API key that the first start of a server creates for a workspace."""

from __future__ import annotations

import os
from pathlib import Path

from segue.hub import Hub
from segue.model.errors import Unauthorized

from .start_lock import start_lock


async def ensure_key(hub: Hub, workspace: str) -> tuple[Path, str | None]:
    """Return the file of a workspace's key, and the key itself if it was created just now.

    Of several processes that start at once, one creates the key and the others use it.
    """
    path = hub.data_dir / ("key" if workspace == "local" else f"key-{workspace}")
    async with start_lock(hub.data_dir):
        try:
            await hub.keys.authenticate(path.read_text().strip())
            return path, None
        except (FileNotFoundError, Unauthorized):  # no key, another store's, or a revoked one
            _, key = await hub.keys.create(workspace, "made at the first start")
            _replace(path, key + "\n")
            return path, key


def _replace(path: Path, text: str) -> None:
    """Write a file that only its owner can read; other processes see all of it or none."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)

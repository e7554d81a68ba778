"""The API key that the first start of a server creates for a workspace."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from segue.hub import Hub
from segue.model.errors import Unauthorized

from .start_lock import start_lock


async def ensure_key(hub: Hub, workspace: str) -> tuple[Path, str | None]:
    """Return the file of a workspace's key, and the key itself if it was created just now.

    Each store has files of its own: that of the data directory `key` or `key-WORKSPACE`, a database
    the same names with `@` and a hash. Of several processes that start at once, one creates the key
    and the others use it.
    """
    name = "key" if workspace == "local" else f"key-{workspace}"
    path = embedded_path = hub.data_dir / name
    if hub.database_url is not None:
        path = hub.data_dir / f"{name}@{await _database_hash(hub)}"
    async with start_lock(hub.data_dir):
        if await _valid_key(hub, path) is not None:
            return path, None
        # Earlier versions stored the keys of databases in the file of the embedded store.
        key = None if path == embedded_path else await _valid_key(hub, embedded_path)
        is_new = key is None
        if key is None:
            _, key = await hub.keys.create(workspace, "made at the first start")
        _replace(path, key + "\n")
        return path, key if is_new else None


async def _database_hash(hub: Hub) -> str:
    """Return a short hash that identifies a database, whatever its URL is."""
    return hmac.digest(await hub.store.cursor_key(), b"segue key file", "sha256").hex()[:8]


async def _valid_key(hub: Hub, path: Path) -> str | None:
    """Return the key in a file; None if there is none, or it is revoked or another store's."""
    try:
        key = path.read_text().strip()
        await hub.keys.authenticate(key)
    except (FileNotFoundError, Unauthorized):
        return None
    return key


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

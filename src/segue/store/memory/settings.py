"""API keys, overlays and settings of the store in memory."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from segue.model import codec
from segue.model.principal import ApiKey

_decode_any: codec.Decoder[Any] = codec.Decoder(Any)


class MemorySettings:
    """Keys by id, overlays by source and session, settings by name."""

    def __init__(self) -> None:
        self._keys: dict[str, ApiKey] = {}
        self._overlays: dict[tuple[str, str], dict[str, bytes]] = {}
        self._settings: dict[str, dict[str, bytes]] = {}

    async def put_key(self, key: ApiKey) -> None:
        self._keys[key.id] = key

    async def find_key(self, digest: bytes) -> ApiKey | None:
        return next((key for key in self._keys.values() if key.digest == digest), None)

    async def keys(self, workspace: str | None = None) -> list[ApiKey]:
        keys = [key for key in self._keys.values() if workspace in (None, key.workspace)]
        return sorted(keys, key=lambda key: key.id)

    async def revoke_key(self, workspace: str, id: str, at: int) -> bool:
        key = self._keys.get(id)
        if key is None or key.workspace != workspace or key.revoked_at is not None:
            return False
        self._keys[id] = replace(key, revoked_at=at)
        return True

    async def set_overlay(
        self, workspace: str, source: str, id: str, patch: dict[str, Any]
    ) -> None:
        self._overlays.setdefault((workspace, source), {})[id] = codec.encode(patch)

    async def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]:
        values = self._overlays.get((workspace, source), {})
        return {id: _decode_any(patch) for id, patch in values.items()}

    async def set_setting(self, workspace: str, name: str, value: Any) -> None:
        self._settings.setdefault(workspace, {})[name] = codec.encode(value)

    async def settings(self, workspace: str) -> dict[str, Any]:
        values = self._settings.get(workspace, {})
        return {name: _decode_any(value) for name, value in values.items()}

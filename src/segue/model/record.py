"""Versioned records that sessions refer to: agents, environments, files and other resources."""

from __future__ import annotations

from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A named thing that sessions refer to: an agent, an environment … Each version is kept."""

    workspace: str
    kind: str
    id: str
    version: int
    created_at: int
    updated_at: int
    archived_at: int | None = None
    body: dict[str, Any] = {}

"""Versioned records that sessions refer to: agents, environments, files and other resources."""

from __future__ import annotations

from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a resource that sessions refer to: an agent, an environment …

    The store keeps every version.
    """

    workspace: str
    kind: str
    id: str
    version: int
    created_at: int
    updated_at: int
    archived_at: int | None = None
    body: dict[str, Any] = {}

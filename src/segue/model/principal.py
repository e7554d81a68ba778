"""The caller: every hub call takes a Principal, and every query is scoped by its workspace."""

from __future__ import annotations

import re

import msgspec

from .errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A caller in one workspace: the local user or an API key.

    Only the local user may run tools without a sandbox.
    """

    workspace: str = "local"
    local: bool = False
    key_id: str | None = None


LOCAL = Principal(workspace="local", local=True)


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key as it is stored: its digest, never the key itself."""

    id: str
    workspace: str
    name: str
    digest: bytes
    hint: str
    created_at: int
    revoked_at: int | None = None
    expires_at: int | None = None

    def is_valid(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def check_workspace(name: str) -> str:
    """Return the name. Raises InvalidInput if a workspace cannot have it."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} is not a valid workspace name; use 1 to 64 letters, digits, dots, dashes,"
            " underscores"
        )
    return name

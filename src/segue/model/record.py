"""Versioned records that sessions refer to: agents, environments, files and other resources."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from . import codec


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


_decode: codec.Decoder[dict[str, Any]] = codec.Decoder(dict[str, Any])


class RecordBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of one kind of record. A field that has its default is not stored."""

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the body of a record of this kind."""
        return msgspec.convert(record.body, cls)

    def encode(self) -> dict[str, Any]:
        """Return the body as a store returns it, so that equal bodies are equal."""
        return _decode(codec.encode(self))

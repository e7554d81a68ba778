"""A delivery: one notice for one webhook, and the attempts to send it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from segue.model import codec

DeliveryStatus = Literal["pending", "delivered", "failed"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request to a webhook's URL. It has a status or, without an answer, an error."""

    at: int
    ms: int = 0
    status: int | None = None
    error: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of the queue, which is the log as well.

    `object_ids` are those of what changed, by field: `id` and perhaps that of its parent. `due_at`
    is the time of the next attempt; a finished delivery has None.
    """

    event: str
    type: str
    at: int
    object_ids: dict[str, str]
    number: int = 0
    workspace: str = ""
    webhook: str = ""
    due_at: int | None = None
    status: DeliveryStatus = "pending"
    attempts: tuple[Attempt, ...] = ()
    test: bool = False


_decode: codec.Decoder[Delivery] = codec.Decoder(Delivery)


def encode_delivery(delivery: Delivery) -> bytes:
    """Return the JSON of a delivery without the fields for which stores have columns."""
    return codec.encode(replace(delivery, number=0, workspace="", webhook="", due_at=None))


def decode_delivery(
    number: int, workspace: str, webhook: str, due_at: int | None, row: bytes | str
) -> Delivery:
    """Return the delivery of a row."""
    stored = _decode(row if isinstance(row, bytes) else row.encode())
    return replace(stored, number=number, workspace=workspace, webhook=webhook, due_at=due_at)

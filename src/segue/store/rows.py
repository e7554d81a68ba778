"""Decode the rows that the SQL stores have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from segue.model import codec
from segue.model.event import Delta
from segue.model.principal import ApiKey
from segue.model.record import Record
from segue.model.session import Checkpoint

from .base import InboxItem, Lease

Row = Sequence[Any]

LEASES = (
    "SELECT s.workspace, s.id, l.holder, l.epoch, l.renewals"
    " FROM leases l JOIN sessions s ON s.pk = l.session WHERE l.holder <> ''"
)
CHECKPOINTS = 'SELECT source, path, inode, "offset", tail_hash, extra FROM imports'
# How many turns of a workspace run or wait to run.
TURNS = """
SELECT (SELECT count(*) FROM sessions WHERE workspace = {0} AND in_turn = 1)
  + (SELECT count(*) FROM inbox WHERE workspace = {0} AND kind = 'prompt')"""
INBOX_ITEMS = "SELECT number, kind, id, at, body, holder FROM inbox"
# Sessions without a lease that have inbox items for a process to act on. A turn that waits for an
# answer and needs no process in particular is not among them.
WAITING = """
SELECT DISTINCT s.workspace, s.id FROM inbox i JOIN sessions s ON s.pk = i.session
LEFT JOIN leases l ON l.session = i.session
WHERE (i.kind <> 'turn' OR i.holder <> '') AND coalesce(l.holder, '') = ''"""
DELIVERIES = "SELECT number, workspace, webhook, due_at, row FROM deliveries"
DELTAS = 'SELECT number, message, kind, "offset", text FROM deltas'

decode_any: codec.Decoder[Any] = codec.Decoder(Any)
decode_key: codec.Decoder[ApiKey] = codec.Decoder(ApiKey)
decode_record: codec.Decoder[Record] = codec.Decoder(Record)


def decode_lease(row: Row) -> Lease:
    """Return the lease of a row of LEASES."""
    workspace, session, holder, epoch, renewals = row
    return Lease(
        workspace=workspace, session=session, holder=holder, epoch=epoch, renewals=renewals
    )


def decode_checkpoint(row: Row) -> Checkpoint:
    """Return the checkpoint of a row of CHECKPOINTS."""
    source, path, inode, offset, tail_hash, extra = row
    return Checkpoint(
        source=source,
        path=path.decode("utf-8", "surrogatepass"),
        inode=int(inode),
        offset=offset,
        tail_hash=tail_hash,
        extra=decode_any(extra),
    )


def encode_checkpoint(checkpoint: Checkpoint) -> Row:
    """Return the row of a checkpoint, in the order of CHECKPOINTS."""
    return (
        checkpoint.source,
        checkpoint.path.encode("utf-8", "surrogatepass"),
        str(checkpoint.inode),
        checkpoint.offset,
        checkpoint.tail_hash,
        codec.encode(checkpoint.extra),
    )


def decode_inbox_item(session: str, row: Row) -> InboxItem:
    """Return the inbox item of a row of INBOX_ITEMS."""
    number, kind, id, at, body, holder = row
    return InboxItem(
        number=number,
        session=session,
        kind=kind,
        id=id,
        at=at,
        body=decode_any(body),
        holder=holder,
    )


def decode_delta(session: str, row: Row) -> Delta:
    """Return the delta of a row of DELTAS."""
    _, message, kind, offset, text = row
    return Delta(
        session=session,
        message=message,
        kind=kind,
        offset=offset,
        text=text.decode("utf-8", "surrogatepass"),
    )

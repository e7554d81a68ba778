"""One session in the in-memory store."""

from __future__ import annotations

from dataclasses import dataclass, field

from segue.model.event import Delta, Event
from segue.model.session import Session
from segue.store.base import InboxItem, Lease, lease_lost


@dataclass(slots=True)
class Entry:
    """A session and everything that belongs to it."""

    session: Session
    events: list[Event]
    change: int
    born: int
    epoch: int = 0
    lease: Lease | None = None
    inbox: list[InboxItem] = field(default_factory=list)
    deltas: list[tuple[int, Delta]] = field(default_factory=list)  # with their numbers
    acked_seq: int = 0
    checkpoint: bytes | None = None


def check_lease(entry: Entry, lease: Lease) -> None:
    """Raise LeaseLost unless a session still has this lease."""
    if not same_lease(entry.lease, lease):
        raise lease_lost(lease)


def same_lease(current: Lease | None, lease: Lease) -> bool:
    """Return whether two leases have the same holder and epoch."""
    return current is not None and (current.holder, current.epoch) == (lease.holder, lease.epoch)

"""Decide which leases and inbox items a process acts on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from segue.model.errors import NoAgent
from segue.store.base import InboxItem, Lease

from .holder import StillnessWatch, is_comparable, is_dead

# A prompt that its process does not begin for so long does not delay those of other processes.
OVERTAKE_SECONDS = 1.0


class ItemClaims:
    """What one process acts on: its own items, and those of processes that are gone."""

    def __init__(self, holder: str, lease_seconds: float) -> None:
        self.holder = holder
        self._lease_seconds = lease_seconds
        self._unable: dict[int, NoAgent] = {}  # by the number of an item left to other processes
        self._watch = StillnessWatch()

    def is_abandoned(self, lease: Lease) -> bool:
        """Return whether the process that has a lease is dead, or has not renewed it in time."""
        key = ("lease", lease.workspace, lease.session)
        value = (lease.holder, lease.epoch, lease.renewals)
        unchanged = self._watch.seconds(key, value) >= self._lease_seconds
        return unchanged or is_dead(lease.holder)

    def is_for_this_process(self, item: InboxItem) -> bool:
        """Return whether this process received an item, or the process that did is gone."""
        if item.number in self._unable:
            return False
        if item.holder in ("", self.holder):
            return True
        if is_comparable(item.holder):
            return is_dead(item.holder)
        return self._watch.seconds(("item", item.number), item.holder) >= self._lease_seconds

    def is_received_here(self, item: InboxItem) -> bool:
        """Return whether this process received an item."""
        return item.holder == self.holder

    def note_unable(self, item: InboxItem, error: NoAgent) -> None:
        """Note that this process leaves a prompt or answer to others, and why."""
        self._unable[item.number] = error

    def why_left(self, items: Iterable[InboxItem]) -> NoAgent | None:
        """Return why this process left one of these items to others; None if none is left."""
        return next((self._unable[i.number] for i in items if i.number in self._unable), None)

    def next_prompt(self, items: Iterable[InboxItem]) -> InboxItem | None:
        """Return the prompt that this process begins next, or None.

        That is the oldest one, if it is for this process. One of a live process that does not begin
        it in time is left to that process, and the next one is begun here.
        """
        prompts = [item for item in items if item.kind == "prompt"]
        if not prompts:
            return None
        if self.is_for_this_process(prompts[0]):
            return prompts[0]
        key = ("next", prompts[0].session)
        if self._watch.seconds(key, prompts[0].number) < OVERTAKE_SECONDS:
            return None
        return next(filter(self.is_for_this_process, prompts), None)

    def has_work(self, items: Sequence[InboxItem]) -> bool:
        """Return whether this process has something to do in a session whose lease is free."""
        turns = [item for item in items if item.kind == "turn"]
        others = [item for item in items if item.kind not in ("turn", "prompt")]
        # A turn of this process that waits for an answer has a holder too: this one.
        left = [item for item in turns if item.holder not in ("", self.holder)]
        if any(map(self.is_for_this_process, [*others, *left])):
            return True
        return not turns and self.next_prompt(items) is not None

    def forget_old(self) -> None:
        """Drop what was not compared for longer than a lease lasts."""
        self._watch.forget(60.0 + self._lease_seconds)

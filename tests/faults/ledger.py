"""The writes that a killed child reported, and the check that the store has all of them."""

import os
from typing import Any

from segue.store.base import Store, fork_event

WORKSPACE = "local"


class Ledger:
    """Everything acknowledged so far, by any child."""

    def __init__(self) -> None:
        self.sessions: dict[str, dict[str, int]] = {}  # session → event id → seq
        self.forks: dict[str, tuple[str, int]] = {}  # fork → its parent and how much of it
        self.items: dict[str, set[str]] = {}  # session → ids in its inbox
        self.doubtful: set[str] = set()  # a purge was begun and not acknowledged
        self.gone: set[str] = set()  # the purges since the last check
        self.acknowledged = 0

    def enter(self, report: dict[str, Any]) -> None:
        session = report.get("session", "")
        match report["says"]:
            case "create":
                self.sessions.setdefault(session, {})
            case "append":
                # Of a session that was purged before this was said, nothing is expected.
                self.sessions.setdefault(session, {}).update({id: s for s, id in report["events"]})
            case "fork":
                self.sessions.setdefault(session, {})
                self.forks[session] = (report["of"], report["upto"])
            case "put":
                self.items.setdefault(session, set()).add(report["item"])
            case "purging":
                self.doubtful.add(session)
                return
            case "purge":
                self.gone.add(session)
            case _:
                return
        self.acknowledged += 1

    async def check(self, store: Store) -> None:
        """Everything acknowledged is there. Settles what was in doubt."""
        lost = self.gone & await store.existing_ids(WORKSPACE, sorted(self.gone))
        assert not lost, f"purged, and there again: {lost}"
        for id in self.doubtful - self.gone:
            if await store.get(WORKSPACE, id) is None:
                self.gone.add(id)
        self.doubtful.clear()
        for id in self.gone:
            self.sessions.pop(id, None)
            self.items.pop(id, None)
            self.forks.pop(id, None)
        self.gone.clear()
        for id, expected in self.sessions.items():
            assert await store.get(WORKSPACE, id) is not None, f"session {id} is lost"
            events = await store.events(WORKSPACE, id, limit=1_000_000)
            stored = {event.id: event.seq for event in events}
            missing = {event: seq for event, seq in expected.items() if stored.get(event) != seq}
            assert not missing, f"session {id} lost {missing}"
            parent, upto = self.forks.get(id, ("", 0))
            if parent in self.sessions:
                inherited = await store.events(
                    WORKSPACE, parent, after=1, before=upto + 1, limit=10**6
                )
                copies = [fork_event(event, id) for event in inherited]
                assert events[1:upto] == copies, f"fork {id} differs from its parent {parent}"
        for id, items in self.items.items():
            stored_ids = {item.id for item in await store.inbox(WORKSPACE, id)}
            assert items <= stored_ids, f"the inbox of {id} lost {items - stored_ids}"


def seed() -> int:
    """Another one every time, and a way to choose it."""
    return int(os.environ.get("SEGUE_FAULT_SEED", int.from_bytes(os.urandom(4))))

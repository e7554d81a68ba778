"""Find where a session's history has secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from segue.hub.history.reader import HistoryReader
from segue.model.event import Event
from segue.model.principal import Principal


class StoredSecret(NamedTuple):
    """A secret in an event: the event's number and time, the kind and the mask of the secret.

    `thread` is the subagent whose history has the event; None for the session's own.
    """

    seq: int
    at: int
    kind: str
    mask: str
    thread: str | None = None


async def find_secrets(history: HistoryReader, principal: Principal, id: str) -> list[StoredSecret]:
    """Return the secrets in a session's history and in the threads that it started."""
    secrets = await _search(history.read(principal, id))
    for thread in await history.threads(principal, id):
        secrets += await _search(history.thread_events(principal, id, thread.id), thread.id)
    return secrets


async def _search(events: AsyncIterator[Event], thread: str | None = None) -> list[StoredSecret]:
    from segue.secrets.events import message_groups

    secrets: list[StoredSecret] = []
    async for group in message_groups(events):
        secrets += _secrets_of(group, thread)
    return secrets


def _secrets_of(events: list[Event], thread: str | None = None) -> list[StoredSecret]:
    from segue.secrets.events import SecretCounter, mask_events

    if not events:
        return []
    counter = SecretCounter()
    mask_events(events, counter)
    if not counter.secrets:
        return []
    if len(events) > 1:
        single: list[StoredSecret] = []
        for event in events:
            single += _secrets_of([event], thread)
        if len(single) >= counter.secrets:
            return single
    first = events[0]
    return [StoredSecret(first.seq, first.at, kind, mask, thread) for kind, mask in counter.log]

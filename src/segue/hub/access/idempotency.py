"""Idempotency keys: a request that is sent again with the same key takes effect once.

A key is reserved before the request has any effect, and the answer is stored with it afterwards.
If the process ends in between, it is unknown whether the request took effect. Then the key stays
reserved, and a repeated request is refused: it is never carried out a second time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

import msgspec

from segue.encryption import SecretBox
from segue.hub.resources.records import Records, new
from segue.hub.turns.holder import close_holder, is_comparable, is_dead, new_holder
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, Overloaded
from segue.model.query import Position
from segue.model.record import Record, RecordBody
from segue.store.base import Store

KEY_SECONDS = 24 * 3600
# A repeated request waits so long for the first one to end.
WAIT_SECONDS = 30.0
# Without an answer by then, a request in a process that cannot be observed counts as interrupted.
MAX_REQUEST_SECONDS = 900
MAX_KEY_CHARACTERS = 255
_KIND = "idempotency_key"
_POLL_SECONDS = 0.05
_MAX_CLEANED_KEYS = 20


class IdempotencyBody(RecordBody, frozen=True, kw_only=True):
    """A reserved key. It has a status as soon as its request was answered.

    An answer that contains a secret is encrypted.
    """

    holder: str
    fingerprint: str = ""
    status: int | None = None
    answer: str = ""
    encrypted: bool = False
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class Answer(NamedTuple):
    """The answer to the first request with a key."""

    status: int
    body: bytes
    headers: dict[str, str]


class Reservation(NamedTuple):
    """A key that the current request has reserved."""

    record: Record


class IdempotencyKeys:
    """Reserve keys, and store and return the answers to their requests."""

    def __init__(self, store: Store, records: Records, secrets: SecretBox) -> None:
        self._store = store
        self._records = records
        self._secrets = secrets
        self._holder = new_holder()

    def close(self) -> None:
        """Let other processes know that requests of this one have ended."""
        close_holder(self._holder)

    async def reserve(self, workspace: str, key: str) -> Reservation | None:
        """Reserve a key, or return None if an earlier request has it.

        Raises InvalidInput if the key is empty, too long or not printable.
        """
        if not 1 <= len(key) <= MAX_KEY_CHARACTERS or not key.isprintable():
            raise InvalidInput(
                f"idempotency-key: must have 1 to {MAX_KEY_CHARACTERS} printable characters"
            )
        await self._delete_expired(workspace)
        body = IdempotencyBody(holder=self._holder).encode()
        record = new(workspace, _KIND, body, ids.derived_id(_KIND, key))
        try:
            return Reservation(await self._store.put_record(record))
        except Conflict:
            return None

    async def answer(self, workspace: str, key: str, fingerprint: str) -> Answer | None:
        """Return the answer to the first request with a key; None if the key is free again.

        Waits while the first request is being answered. Raises InvalidInput if the first request
        was a different one, Conflict if its process ended before the answer, and Overloaded if the
        wait takes too long.
        """
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while True:
            record = await self._records.find(workspace, _KIND, ids.derived_id(_KIND, key))
            if record is None:
                return None
            if record.created_at < _oldest_valid():
                await self._records.delete(record)
                return None
            body = IdempotencyBody.of(record)
            if body.status is not None:
                if body.fingerprint != fingerprint:
                    raise InvalidInput(
                        "idempotency-key: was used for another request; use a new key for each"
                        " request",
                        headers=[(b"x-should-retry", b"false")],
                    )
                text = body.answer
                if body.encrypted:
                    text = self._secrets.open(text, workspace, _KIND, record.id)
                return Answer(body.status, text.encode(), body.headers)
            if _was_interrupted(record, body.holder):
                raise Conflict(
                    "idempotency-key: the server ended while it processed the first request with"
                    " this key, so the request may have taken effect; check that, then use a new"
                    " key",
                )
            if asyncio.get_running_loop().time() > deadline:
                raise Overloaded("idempotency-key: the first request is still being processed")
            await asyncio.sleep(_POLL_SECONDS)

    async def store_answer(
        self, reservation: Reservation, fingerprint: str, answer: Answer, *, encrypt: bool
    ) -> None:
        """Store the answer to the request that reserved a key."""
        record, text = reservation.record, answer.body.decode()
        if encrypt:
            text = self._secrets.seal(text, record.workspace, _KIND, record.id)
        body = IdempotencyBody(
            holder=self._holder,
            fingerprint=fingerprint,
            status=answer.status,
            answer=text,
            encrypted=encrypt,
            headers=answer.headers,
        )
        await self._records.update(record, body.encode(), drop_earlier=True)

    async def release(self, reservation: Reservation) -> None:
        """Free a key whose request had no effect."""
        await self._records.delete(reservation.record)

    async def _delete_expired(self, workspace: str) -> None:
        expired = await self._store.records(
            workspace, _KIND, after=Position(_oldest_valid(), ""), limit=_MAX_CLEANED_KEYS
        )
        for record in expired:
            await self._records.delete(record)


async def mask_answers(records: Records, workspace: str) -> None:
    """Mask the secrets in the stored answers of a workspace, which repeat what was sent."""
    from segue.secrets import mask_text

    async for record in records.all(workspace, _KIND):
        body = IdempotencyBody.of(record)
        answer = body.answer if body.encrypted else mask_text(body.answer)
        if answer != body.answer:
            masked = msgspec.structs.replace(body, answer=answer)
            with suppress(Conflict):  # the record was deleted meanwhile: the key has expired
                await records.update(record, masked.encode(), drop_earlier=True)


def _oldest_valid() -> int:
    return clock.now() - KEY_SECONDS * 1_000_000


def _was_interrupted(record: Record, holder: str) -> bool:
    if is_comparable(holder):
        return is_dead(holder)
    return clock.now() - record.created_at > MAX_REQUEST_SECONDS * 1_000_000

"""Taking the codes that drive terminals out of the index of an older store.

That is done beside the work, by those who have the store open, one at a time. Each step is a
transaction that notes how far it came: it may be cut off at any moment, or done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from segue.model import errors, event, search_text
from segue.model.ansi import ESCAPE

from .connection import Database
from .tsquery import vectors

log = logging.getLogger("segue.store")

STEP = 200  # events
HELD = 2 << 20  # bytes of those that change
_FETCHED = 8  # bodies at a time; some are long
PAUSE = 5.0  # seconds between looks at what another process does
_LOCK = 0x5E90F  # any number that no other program locks in this database

_ESCAPED = rb"\u001b"  # what begins every code, as JSON has it

_NEXT = """
    SELECT session, seq, version, CASE WHEN position($4::bytea IN body) > 0 THEN body END
    FROM events WHERE (session, seq) > ($1, $2) ORDER BY session, seq LIMIT $3
"""


async def reindex(database: Database, closing: asyncio.Event) -> None:
    """Go over all that has not been gone over, or as far as one comes before the store closes."""
    try:
        while not closing.is_set() and (more := await database.transact(_step)) is not False:
            if more is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(closing.wait(), PAUSE)
    except errors.SegueError as error:
        log.warning(
            "the words of older events are gone over when the store is next opened: %s", error
        )


async def _step(connection: Any) -> bool | None:
    """Go over the next events; whether there are more, or None if another process is at it."""
    if not await connection.fetchval(f"SELECT pg_try_advisory_xact_lock({_LOCK})"):
        return None
    if (reached := await connection.fetchrow("SELECT session, seq FROM bared")) is None:
        return False
    place, count, held = tuple(reached), 0, 0
    coloured: list[tuple[int, int, list[str]]] = []
    rows = connection.cursor(_NEXT, *place, STEP, _ESCAPED, prefetch=_FETCHED)
    async for session, seq, version, body in rows:
        place, count = (session, seq), count + 1
        if body is not None and (said := _said(body, version)):
            coloured.append(
                (session, seq, list(vectors(search_text.tokens(search_text.searchable_text(said)))))
            )
            held += len(body)
            if held > HELD:
                break
    if coloured:
        await _replace(connection, coloured)
    if count < STEP and held <= HELD:
        await connection.execute("DELETE FROM bared")
        return False
    await connection.execute("UPDATE bared SET session = $1, seq = $2", *place)
    return True


def _said(body: bytes, version: int) -> event.AnyBody | None:
    """An event whose words have codes among them."""
    try:
        said = event.decode_body(body, version)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None  # damaged
    return said if ESCAPE in search_text.searchable_text(said, codes=True) else None


async def _replace(connection: Any, events: Sequence[tuple[int, int, Sequence[str]]]) -> None:
    """Index these by other words."""
    # Whoever purges one of the sessions waits for this, and takes out what is here then.
    sql = "SELECT pk FROM sessions WHERE pk = ANY ($1) ORDER BY pk FOR KEY SHARE"
    rows = await connection.fetch(sql, list({session for session, _, _ in events}))
    there = {pk for (pk,) in rows}
    events = [each for each in events if each[0] in there]
    sql = "DELETE FROM search w USING unnest($1::bigint[], $2::int[]) AS e (session, seq)"
    sql += " WHERE w.session = e.session AND w.seq = e.seq"
    await connection.execute(sql, [each[0] for each in events], [each[1] for each in events])
    parts = [
        (session, seq, part, words)
        for session, seq, found in events
        for part, words in enumerate(found)
    ]
    sql = (
        "INSERT INTO search (session, seq, part, words) SELECT session, seq, part, words::tsvector"
    )
    sql += " FROM unnest($1::bigint[], $2::int[], $3::int[], $4::text[])"
    sql += " AS w (session, seq, part, words)"
    await connection.execute(sql, *([part[nth] for part in parts] for nth in range(4)))

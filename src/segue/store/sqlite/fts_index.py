"""Which words an event has in the full-text index.

To take them out they are given again, so it must be known for ever what they were. Programs of old
left the codes in that drive terminals. `meta` has the key up to which the index has been gone over:
events up to there are indexed without codes, all beyond it with them, new ones too, until a step
comes to them. A step is a transaction that moves the key as well: it may be cut off at any moment,
and any number of processes may take steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from segue.model import event, search_text
from segue.model.ansi import ESCAPE

STEP = 500  # events
LOOKED = 4 << 20  # bytes of them
_END = (1 << 63) - 1
_ESCAPED = rb"\u001b"  # what begins every code, as JSON has it

Execute = Callable[..., Any]


def add(execute: Execute, key: int, body: event.AnyBody) -> None:
    """Have an event found by its words."""
    _add(execute, key, _words(execute, key, body))


def remove(execute: Execute, key: int, body: event.AnyBody) -> None:
    """Have it found no more."""
    _remove(execute, key, _words(execute, key, body))


def is_whole(execute: Execute) -> bool:
    """Whether all of the index has been gone over."""
    return _reached(execute) == _END


def step(execute: Execute) -> bool:
    """Go over the next events; whether there are more."""
    reached = _reached(execute)
    sql = "SELECT key, version, length(body), CASE WHEN instr(body, ?) THEN body END FROM events"
    sql += " WHERE key > ? ORDER BY key LIMIT ?"
    count = looked = 0
    for key, version, size, body in execute(sql, (_ESCAPED, reached, STEP)):
        count, looked, reached = count + 1, looked + size, key
        if body is not None:
            _bare(execute, key, version, body)
        if looked > LOOKED:
            break
    more = count == STEP or looked > LOOKED
    sql = "UPDATE meta SET value = ? WHERE name = 'bared'"
    execute(sql, (reached if more else _END,))
    return more


def _bare(execute: Execute, key: int, version: int, body: bytes) -> None:
    try:
        said = event.decode_body(body, version)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return  # damaged, and by what it is found nobody knows
    before, after = (
        _tokens(search_text.searchable_text(said, codes=codes)) for codes in (True, False)
    )
    if before != after:
        _remove(execute, key, before)
        _add(execute, key, after)


def _reached(execute: Execute) -> int:
    (key,) = execute("SELECT value FROM meta WHERE name = 'bared'").fetchone()
    return int(key)


def _words(execute: Execute, key: int, body: event.AnyBody) -> str:
    found = search_text.searchable_text(body, codes=True)
    if ESCAPE in found and key <= _reached(execute):
        found = search_text.searchable_text(body)
    return _tokens(found)


def _tokens(found: str) -> str:
    if found.isascii() and max(map(len, found.split()), default=0) <= search_text.MAX_TOKEN_CHARS:
        return found  # in ASCII the index finds the very same words, and sooner
    return " ".join(search_text.tokens(found))


def _add(execute: Execute, key: int, words: str) -> None:
    if words:
        execute("INSERT INTO search (rowid, tokens) VALUES (?, ?)", (key, words))


def _remove(execute: Execute, key: int, words: str) -> None:
    if words:
        sql = "INSERT INTO search (search, rowid, tokens) VALUES ('delete', ?, ?)"
        execute(sql, (key, words))

"""The store's writes, each run in a transaction of the writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import codec, errors, event, projection
from segue.model.event import Delta, Draft, Drafts, Event
from segue.model.principal import ApiKey
from segue.model.record import Record
from segue.model.session import Checkpoint, Session, decode_session
from segue.store.base import (
    ENDED_HOLDER,
    MAX_SEQ,
    SCHEDULE_KIND,
    SHARE_KIND,
    WEBHOOK_KIND,
    EventDecider,
    InboxItem,
    InboxKind,
    Lease,
    Signal,
    append_drafts,
    check_fork_point,
    check_record_version,
    finished_messages,
    fork_event,
    is_counted_file,
    lease_lost,
    not_found,
    share_record_id,
    start_session,
)
from segue.store.query_sql import columns
from segue.store.rows import decode_record, encode_checkpoint

from .search_index import tokens
from .text_search import EVENTS, ROW, as_event
from .writer import Transaction, UsageChange

_MAX_TOMBSTONES = 100_000


def create(
    tx: Transaction,
    workspace: str,
    id: str,
    drafts: Drafts,
    *,
    checkpoint: Checkpoint | None = None,
) -> Session:
    session, events = start_session(workspace, id, drafts, tx.at)
    pk = insert(tx, session, events)
    _notify(tx, None, session, events)
    _put_checkpoint(tx, pk, session, checkpoint)
    return session


def load(
    tx: Transaction,
    workspace: str,
    id: str,
    events: Iterable[Event],
    *,
    checkpoint: Checkpoint | None = None,
) -> Session:
    session = projection.project(workspace, id, events)
    pk = insert(tx, session, events, new=False)
    _put_checkpoint(tx, pk, session, checkpoint)
    return session


def insert(tx: Transaction, session: Session, events: Iterable[Event], *, new: bool = True) -> int:
    """Write a session and its events, and return its primary key."""
    sql = "SELECT 1 FROM sessions WHERE workspace = ? AND id = ?"
    if tx.execute(sql, (session.workspace, session.id)).fetchone():
        raise errors.Conflict(f"session {session.id} exists already", session=session.id)
    change = tx.touch()
    values = {
        "workspace": session.workspace,
        "id": session.id,
        **columns(session),
        "change": change,
        "born": change if new else 0,
        "row": as_text(codec.encode(session)),
    }
    marks = ", ".join("?" * len(values))
    sql = f"INSERT INTO sessions ({', '.join(values)}) VALUES ({marks})"
    pk = tx.execute(sql, tuple(values.values())).lastrowid
    assert pk is not None
    event_bytes = _add_events(tx, pk, events)
    tx.usage_changes.append(UsageChange(session.workspace, sessions=1, bytes=event_bytes))
    for store in session.memory_store_ids:
        tx.execute(
            "INSERT OR IGNORE INTO links VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                pk,
                store,
                session.workspace,
                values["state"],
                session.created_at,
                session.active_at,
                session.id,
            ),
        )
    tx.signals.append(Signal("events", session.workspace, session.id))
    return pk


def change(
    tx: Transaction,
    workspace: str,
    id: str,
    decide: EventDecider,
    *,
    lease: Lease | None = None,
    consume: Sequence[int] = (),
    begin: Sequence[InboxItem] = (),
    checkpoint: Checkpoint | None = None,
) -> tuple[Session, list[Event]]:
    pk, session = find(tx, workspace, id)
    if lease is not None:
        _check_lease(tx, pk, lease)
    if consume:
        sql = "DELETE FROM inbox WHERE session = ? AND number = ?"
        if not all(tx.execute(sql, (pk, number)).rowcount for number in consume):
            raise errors.Conflict("another process has already handled that request")
    _begin_items(tx, pk, begin)
    drafts = [draft for draft in decide(session) if not _is_stored(tx, pk, draft)]
    if not drafts:
        _put_checkpoint(tx, pk, session, checkpoint)
        return session, []
    after, events = append_drafts(session, drafts, tx.at)
    tx.usage_changes.append(UsageChange(workspace, bytes=_add_events(tx, pk, events)))
    _update(tx, pk, session, after)
    _notify(tx, session, after, events)
    _put_checkpoint(tx, pk, after, checkpoint)
    if lease is not None:
        for message in finished_messages(events):
            tx.execute("DELETE FROM deltas WHERE session = ? AND message = ?", (pk, message))
    tx.signals.append(Signal("events", workspace, id))
    return after, events


def _notify(
    tx: Transaction, before: Session | None, after: Session | None, events: Sequence[Event] = ()
) -> None:
    """Queue the notices of a changed session; `after` is None if it is purged."""
    # Imported late: a process that only reads does not need them.
    from segue.model.webhooks.notices import purge_notices, session_notices

    from . import deliveries

    if after is not None:
        deliveries.notify(tx, after.workspace, session_notices(before, after, events))
    elif before is not None:
        deliveries.notify(tx, before.workspace, purge_notices(before))


def _put_checkpoint(
    tx: Transaction, pk: int, session: Session, checkpoint: Checkpoint | None
) -> None:
    if checkpoint is None:
        return
    tx.execute(
        "INSERT OR REPLACE INTO imports VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (pk, session.workspace, *encode_checkpoint(checkpoint)),
    )


def find(tx: Transaction, workspace: str, id: str) -> tuple[int, Session]:
    sql = f"SELECT pk, {ROW} FROM sessions s WHERE workspace = ? AND id = ?"
    row = tx.execute(sql, (workspace, id)).fetchone()
    if row is None:
        raise not_found(id)
    return row[0], decode_session(row[1])


def fork(
    tx: Transaction,
    workspace: str,
    id: str,
    new_id: str,
    upto: int,
    created: Draft,
    tail: EventDecider,
) -> Session:
    pk, parent = find(tx, workspace, id)
    check_fork_point(parent, upto)
    session, events = start_session(workspace, new_id, [created], tx.at)
    sql = f"{EVENTS} WHERE key > ? AND key <= ? ORDER BY key"
    for row in tx.execute(sql, (pk << 24 | 1, pk << 24 | upto)):
        copied = as_event(row)
        session = projection.apply(session, copied)
        events.append(fork_event(copied, new_id))
    session, added = append_drafts(session, tail(session), tx.at)
    insert(tx, session, events + added)
    _notify(tx, None, session, added)
    return session


def purge(
    tx: Transaction,
    workspace: str,
    id: str,
    guard: Callable[[Session], None],
    *,
    replacement: Iterable[Event] | None = None,
) -> None:
    pk, session = find(tx, workspace, id)
    guard(session)
    number = tx.touch()
    bounds = (pk << 24, pk << 24 | MAX_SEQ)
    sql = "SELECT key, version, CAST(body AS BLOB) FROM events WHERE key BETWEEN ? AND ?"
    texts = []
    event_bytes = 0
    for key, version, body in tx.execute(sql, bounds):
        texts.append((key, tokens(event.decode_body(body, version))))
        event_bytes += len(body)
    tx.index.remove(pk, texts, number)
    tx.execute("DELETE FROM events WHERE key BETWEEN ? AND ?", bounds)
    for table in ("links", "leases", "inbox", "deltas", "imports"):
        tx.execute(f"DELETE FROM {table} WHERE session = ?", (pk,))
    tx.execute("DELETE FROM sessions WHERE pk = ?", (pk,))
    tx.usage_changes.append(UsageChange(workspace, sessions=-1, bytes=-event_bytes))
    _delete_records(tx, (workspace, SHARE_KIND, share_record_id(id)))
    tx.execute("INSERT OR REPLACE INTO meta VALUES ('last_purge', ?)", (number,))
    if replacement is not None:
        insert(tx, projection.project(workspace, id, replacement), replacement, new=False)
        return
    _notify(tx, session, None)
    tx.execute("INSERT INTO purged VALUES (?, ?, ?)", (number, workspace, id))
    tx.execute("DELETE FROM purged WHERE change < ?", (number - _MAX_TOMBSTONES,))
    tx.signals.append(Signal("purged", workspace, id))


def _update(tx: Transaction, pk: int, before: Session, after: Session) -> None:
    old, new = columns(before), columns(after)
    # Only the changed columns, so that SQLite leaves the indexes of all others alone.
    values = {name: value for name, value in new.items() if value != old[name]}
    if values and after.memory_store_ids:
        sql = "UPDATE links SET state = ?, active_at = ? WHERE session = ?"
        tx.execute(sql, (new["state"], after.active_at, pk))
    values["change"] = tx.touch()
    values["row"] = as_text(codec.encode(after))
    sets = ", ".join(f"{name} = ?" for name in values)
    tx.execute(f"UPDATE sessions SET {sets} WHERE pk = ?", (*values.values(), pk))


def _add_events(tx: Transaction, pk: int, events: Iterable[Event]) -> int:
    """Write events and return the number of their bytes."""
    event_bytes = 0
    for added in events:
        key = pk << 24 | added.seq
        body = codec.encode(added.body)
        tx.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            (key, added.id, added.at, added.type, event.BODY_VERSION, as_text(body)),
        )
        event_bytes += len(body)
    return event_bytes


def as_text(data: bytes) -> str | bytes:
    """Return JSON as text, which other programs can read; as bytes if it is not valid UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _is_stored(tx: Transaction, pk: int, draft: event.AnyBody | Draft) -> bool:
    if not isinstance(draft, Draft) or draft.id is None:
        return False
    sql = "SELECT 1 FROM events WHERE key >> 24 = ? AND id = ?"
    return tx.execute(sql, (pk, draft.id)).fetchone() is not None


# Turns.


def _check_lease(tx: Transaction, pk: int, lease: Lease) -> None:
    sql = "SELECT holder, epoch FROM leases WHERE session = ?"
    if tx.execute(sql, (pk,)).fetchone() != (lease.holder, lease.epoch):
        raise lease_lost(lease)


def acquire(
    tx: Transaction, workspace: str, id: str, holder: str, *, over: Lease | None = None
) -> Lease | None:
    pk, _ = find(tx, workspace, id)
    sql = "SELECT holder, epoch, renewals FROM leases WHERE session = ?"
    owner, epoch, renewals = tx.execute(sql, (pk,)).fetchone() or ("", 0, 0)
    lease = Lease(workspace=workspace, session=id, holder=holder, epoch=epoch + 1)
    if owner == holder:
        return replace(lease, epoch=epoch, renewals=renewals)
    current = Lease(workspace=workspace, session=id, holder=owner, epoch=epoch, renewals=renewals)
    if owner and current != over:
        return None
    sql = """
        INSERT INTO leases (session, holder, epoch, renewals, released) VALUES (?, ?, ?, 0, 0)
        ON CONFLICT (session) DO UPDATE SET
          holder = excluded.holder, epoch = excluded.epoch, renewals = 0
    """
    tx.execute(sql, (pk, holder, lease.epoch))
    return lease


def renew(tx: Transaction, holder: str) -> set[tuple[str, str]]:
    sql = "UPDATE leases SET renewals = renewals + 1 WHERE holder = ? AND holder <> ''"
    rows = tx.execute(f"{sql} RETURNING session", (holder,)).fetchall()
    sql = "SELECT workspace, id FROM sessions WHERE pk = ?"
    return {tx.execute(sql, row).fetchone() for row in rows}


def release(tx: Transaction, lease: Lease) -> None:
    try:
        pk, _ = find(tx, lease.workspace, lease.session)
    except errors.NotFound:
        return  # the session was purged, with its lease
    sql = "UPDATE leases SET holder = '', released = ?"
    sql += " WHERE session = ? AND holder = ? AND epoch = ?"
    if not tx.execute(sql, (tx.change + 1, pk, lease.holder, lease.epoch)).rowcount:
        return
    tx.touch()
    tx.execute("DELETE FROM deltas WHERE session = ?", (pk,))
    tx.signals.append(Signal("inbox", lease.workspace, lease.session))


def put_inbox(
    tx: Transaction,
    workspace: str,
    id: str,
    kind: InboxKind,
    item_id: str,
    body: dict[str, Any],
    holder: str = "",
) -> InboxItem:
    pk, _ = find(tx, workspace, id)
    sql = "INSERT INTO inbox (session, workspace, kind, id, at, body, holder)"
    sql += " VALUES (?, ?, ?, ?, ?, ?, ?)"
    values = (pk, workspace, kind, item_id, tx.at, codec.encode(body), holder)
    number = tx.execute(sql, values).lastrowid
    assert number is not None
    tx.signals.append(Signal("inbox", workspace, id))
    return InboxItem(
        number=number, session=id, kind=kind, id=item_id, at=tx.at, body=body, holder=holder
    )


def drop_inbox(tx: Transaction, workspace: str, id: str, numbers: Sequence[int]) -> set[int]:
    pk, _ = find(tx, workspace, id)
    sql = "DELETE FROM inbox WHERE session = ? AND number = ? AND kind <> 'turn' RETURNING number"
    return {number for item in numbers for (number,) in tx.execute(sql, (pk, item)).fetchall()}


def _begin_items(tx: Transaction, pk: int, items: Sequence[InboxItem]) -> None:
    sql = "UPDATE inbox SET kind = 'turn', holder = ?, body = ?"
    sql += " WHERE session = ? AND number = ? AND kind = 'prompt'"
    for item in items:
        if not tx.execute(sql, (item.holder, codec.encode(item.body), pk, item.number)).rowcount:
            raise errors.Conflict("another process has already handled that request")


def disown_inbox(tx: Transaction, holder: str) -> None:
    sql = "UPDATE inbox SET holder = CASE kind WHEN 'turn' THEN ? ELSE '' END"
    sql += " WHERE holder = ? AND holder <> '' RETURNING session"
    for row in set(tx.execute(sql, (ENDED_HOLDER, holder)).fetchall()):
        name = tx.execute("SELECT workspace, id FROM sessions WHERE pk = ?", row).fetchone()
        tx.signals.append(Signal("inbox", *name))


def put_deltas(tx: Transaction, lease: Lease, deltas: Sequence[Delta]) -> None:
    pk, _ = find(tx, lease.workspace, lease.session)
    _check_lease(tx, pk, lease)
    sql = 'INSERT INTO deltas (session, message, kind, "offset", text) VALUES (?, ?, ?, ?, ?)'
    for delta in deltas:
        data = delta.text.encode("utf-8", "surrogatepass")
        tx.execute(sql, (pk, delta.message, delta.kind, delta.offset, data))
    tx.signals.append(Signal("deltas", lease.workspace, lease.session))


def ack(tx: Transaction, workspace: str, id: str, seq: int) -> None:
    sql = "UPDATE sessions SET acked_seq = max(acked_seq, ?) WHERE workspace = ? AND id = ?"
    if not tx.execute(sql, (seq, workspace, id)).rowcount:
        raise not_found(id)


# Rows that belong to no session.


def put_key(tx: Transaction, key: ApiKey) -> None:
    sql = "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)"
    tx.execute(sql, (key.id, key.workspace, key.digest, as_text(codec.encode(key))))


_NAMED = "workspace = ? AND kind = ? AND id = ?"


def put_record(
    tx: Transaction, record: Record, *, amend: bool = False, drop_earlier: bool = False
) -> Record:
    name = (record.workspace, record.kind, record.id)
    newest = _newest(tx, record, record.version - (not amend))
    if not amend and record.archived_at is None:
        sql = f"SELECT archived FROM records WHERE {_NAMED} AND version = ?"
        if (tx.execute(sql, (*name, newest)).fetchone() or (0,))[0]:
            raise errors.Conflict(f"the {record.kind} is archived now; read it again")
    _announce(tx, name, record)
    replaced = 0
    if amend:
        _delete_records(tx, name, "version = ?", newest)
    else:
        sql = f"UPDATE records SET newest = 0 WHERE {_NAMED} AND version = ?"
        replaced = tx.execute(sql, (*name, newest)).rowcount
    row = codec.encode(record)
    archived = record.archived_at is not None
    values = (record.version, 1, archived, record.created_at, as_text(row))
    tx.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*name, *values))
    _count_records(tx, name, 1 - replaced, len(row))
    if drop_earlier:
        _delete_records(tx, name, "version < ?", record.version)
    if record.kind == WEBHOOK_KIND:
        from . import deliveries

        deliveries.subscribe(tx, record)
    return record


def put_records(tx: Transaction, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
    for record in records:
        put_record(tx, record)
    for record in drop:
        _newest(tx, record, record.version)
        name = (record.workspace, record.kind, record.id)
        _announce(tx, name, None)
        _delete_records(tx, name)
        if record.kind == WEBHOOK_KIND:
            from . import deliveries

            deliveries.drop(tx, record.workspace, record.id)


def _announce(tx: Transaction, name: tuple[str, str, str], after: Record | None) -> None:
    """Queue the notices of a record that is about to become `after`; None if it is deleted."""
    from segue.model.webhooks.notices import is_announced, record_notices

    from . import deliveries

    if not is_announced(name[1]):
        return
    sql = f"SELECT CAST(row AS BLOB) FROM records WHERE {_NAMED} AND newest = 1"
    row = tx.execute(sql, name).fetchone()
    before = None if row is None else decode_record(row[0])
    if before is not None or after is not None:
        deliveries.notify(tx, name[0], record_notices(before, after))


def _delete_records(
    tx: Transaction, name: tuple[str, str, str], condition: str = "true", *args: int
) -> None:
    """Delete the versions of a record that meet a condition."""
    sql = f"DELETE FROM records WHERE {_NAMED} AND {condition}"
    sql += " RETURNING newest, length(CAST(row AS BLOB))"
    for newest, row_bytes in tx.execute(sql, (*name, *args)).fetchall():
        _count_records(tx, name, -newest, -row_bytes)


def _count_records(
    tx: Transaction, name: tuple[str, str, str], records: int, row_bytes: int
) -> None:
    """Count records that were added, or deleted if negative, and the bytes of their versions."""
    workspace, kind, _ = name
    files = records * is_counted_file(kind)
    schedules = records * (kind == SCHEDULE_KIND)
    tx.usage_changes.append(UsageChange(workspace, 0, files, row_bytes, schedules))


def _newest(tx: Transaction, record: Record, expected: int) -> int:
    """Return the newest version of a record. Raises Conflict unless it is the expected one."""
    sql = f"SELECT coalesce(max(version), 0) FROM records WHERE {_NAMED}"
    (newest,) = tx.execute(sql, (record.workspace, record.kind, record.id)).fetchone()
    check_record_version(record, newest, expected)
    return expected


def put_part(tx: Transaction, workspace: str, file: str, number: int, data: bytes) -> None:
    sql = "SELECT length(data) FROM parts WHERE workspace = ? AND file = ? AND number = ?"
    (replaced_bytes,) = tx.execute(sql, (workspace, file, number)).fetchone() or (0,)
    sql = "INSERT INTO parts VALUES (?, ?, ?, ?, ?)"
    sql += " ON CONFLICT (workspace, file, number) DO UPDATE SET data = excluded.data"
    tx.execute(sql, (workspace, file, number, tx.at, data))
    tx.usage_changes.append(UsageChange(workspace, bytes=len(data) - replaced_bytes))


def drop_parts(tx: Transaction, workspace: str, file: str) -> None:
    sql = "DELETE FROM parts WHERE workspace = ? AND file = ? RETURNING length(data)"
    for (part_bytes,) in tx.execute(sql, (workspace, file)).fetchall():
        tx.usage_changes.append(UsageChange(workspace, bytes=-part_bytes))


def drop_unfinished_uploads(tx: Transaction, before: int) -> None:
    sql = """
        SELECT workspace, file FROM parts INDEXED BY parts_begun WHERE number = 0 AND at < ?
        AND NOT EXISTS (SELECT 1 FROM records AS r WHERE r.kind IN ('file', 'archive')
                        AND r.workspace = parts.workspace AND r.id = parts.file)
    """
    for workspace, file in tx.execute(sql, (before,)).fetchall():
        drop_parts(tx, workspace, file)


def set_overlay(
    tx: Transaction, workspace: str, source: str, id: str, patch: dict[str, Any]
) -> None:
    sql = "INSERT OR REPLACE INTO overlays VALUES (?, ?, ?, ?)"
    tx.execute(sql, (workspace, source, id, as_text(codec.encode(patch))))


def set_setting(tx: Transaction, workspace: str, name: str, value: Any) -> None:
    sql = "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)"
    tx.execute(sql, (workspace, name, as_text(codec.encode(value))))


def probe_write(tx: Transaction) -> None:
    # The time differs from the last one: SQLite does not write a page that stays the same.
    tx.execute("INSERT OR REPLACE INTO meta VALUES ('probed_at', ?)", (tx.at,))

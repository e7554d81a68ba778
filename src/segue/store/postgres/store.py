"""PostgresStore: the store interface, answered by the parts that this package has."""

from __future__ import annotations

from typing import Self

from segue.model import clock

from .connection import Database
from .deliveries import Deliveries
from .lists import SessionLists
from .records import Records
from .sessions import SessionHistory
from .turns import TurnState
from .watch import Watcher


class PostgresStore:
    """The store in a PostgreSQL database, for any number of processes and machines.

    It belongs to the event loop that it was opened in. Each method of `Store` is one of the part
    that implements it.
    """

    def __init__(self, database: Database, watcher: Watcher, *, read_only: bool) -> None:
        self._database = database
        self._watcher = watcher
        self.read_only = read_only
        self._cursor_key: bytes | None = None
        self.watch = watcher.listen

        sessions = SessionHistory(database, watcher)
        self.create = sessions.create
        self.load = sessions.load
        self.get = sessions.get
        self.existing_ids = sessions.existing_ids
        self.in_id_range = sessions.in_id_range
        self.directories = sessions.directories
        self.change = sessions.change
        self.fork = sessions.fork
        self.checkpoint = sessions.checkpoint
        self.purge = sessions.purge
        self.events = sessions.events
        self.locate = sessions.locate

        lists = SessionLists(database)
        self.page = lists.page
        self.change_point = lists.change_point
        self.sweep = lists.sweep
        self.stale = lists.stale
        self.ranked = lists.ranked
        self.newest_matches = lists.newest_matches
        self.known_words = lists.known_words
        self.occurrences = lists.occurrences

        turns = TurnState(database, watcher)
        self.acquire = turns.acquire
        self.renew = turns.renew
        self.release = turns.release
        self.lease_of = turns.lease_of
        self.leases = turns.leases
        self.put_inbox = turns.put_inbox
        self.inbox = turns.inbox
        self.drop_inbox = turns.drop_inbox
        self.ack = turns.ack
        self.acked_seq = turns.acked_seq
        self.disown_inbox = turns.disown_inbox
        self.waiting = turns.waiting
        self.put_deltas = turns.put_deltas
        self.deltas = turns.deltas
        self.new_deltas = turns.new_deltas

        records = Records(database)
        self.put_key = records.put_key
        self.find_key = records.find_key
        self.keys = records.keys
        self.revoke_key = records.revoke_key
        self.put_record = records.put_record
        self.put_records = records.put_records
        self.get_record = records.get_record
        self.records = records.records
        self.put_part = records.put_part
        self.part = records.part
        self.drop_parts = records.drop_parts
        self.drop_unfinished_uploads = records.drop_unfinished_uploads
        self.usage = records.usage
        self.set_overlay = records.set_overlay
        self.overlays = records.overlays
        self.set_setting = records.set_setting
        self.settings = records.settings

        deliveries = Deliveries(database)
        self.notify = deliveries.notify
        self.put_delivery = deliveries.put_delivery
        self.next_delivery = deliveries.next_delivery
        self.claim_deliveries = deliveries.claim_deliveries
        self.save_deliveries = deliveries.save_deliveries
        self.deliveries = deliveries.deliveries
        self.trim_deliveries = deliveries.trim_deliveries

    @classmethod
    async def open(cls, url: str) -> Self:
        """Return the store in a database, whose tables are created or migrated first."""
        database = await Database.open(url)
        try:
            sql = "SELECT current_setting('transaction_read_only') = 'on'"
            ((read_only,),) = await database.fetch(sql)
            return cls(database, await Watcher.open(url), read_only=read_only)
        except BaseException:
            await database.close()
            raise

    async def close(self) -> None:
        await self._watcher.close()
        await self._database.close()

    def vitals(self) -> dict[str, int]:
        return {"commits": self._database.commits, "queue": self._database.queued}

    async def cursor_key(self) -> bytes:
        if self._cursor_key is None:  # it never changes, and every page needs it
            rows = await self._database.fetch("SELECT value FROM meta WHERE name = 'cursor_key'")
            self._cursor_key = bytes(rows[0][0])
        return self._cursor_key

    async def erase_deleted(self) -> str | None:
        return (
            "rows of PostgreSQL that are deleted but not overwritten, until `VACUUM FULL` is run"
            " in the database, and its write-ahead log"
        )

    async def probe_write(self) -> None:
        sql = "INSERT INTO meta (name, value) VALUES ('probed_at', $1)"
        sql += " ON CONFLICT (name) DO UPDATE SET value = $1"
        await self._database.write(sql, str(clock.now()).encode())

    async def check(self) -> list[str]:
        sql = "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class t ON t.oid = indrelid"
        sql += " WHERE NOT indisvalid AND t.relnamespace = current_schema()::regnamespace"
        rows = await self._database.fetch(sql)
        return [f"the index {name} is not valid; REINDEX INDEX {name} mends it" for (name,) in rows]

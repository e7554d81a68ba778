"""A store that fails the test when it is written to."""

from __future__ import annotations

from typing import Any

from segue.store.base import Store

# The methods of a store that change it.
STORE_WRITES = {
    "ack",
    "acquire",
    "change",
    "create",
    "drop_inbox",
    "drop_parts",
    "drop_unfinished_uploads",
    "fork",
    "load",
    "probe_write",
    "purge",
    "put_deltas",
    "put_inbox",
    "put_key",
    "put_part",
    "put_record",
    "put_records",
    "release",
    "renew",
    "revoke_key",
    "set_overlay",
    "set_setting",
}


class ReadOnlyStore:
    """A store that fails the test when it is written to."""

    read_only = True

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        assert name not in STORE_WRITES, f"a read called store.{name}"
        return getattr(self._store, name)

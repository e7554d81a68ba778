"""The embedded store: one SQLite file in WAL mode, one writer thread, reads inline."""

from .store import SQLiteStore

__all__ = ["SQLiteStore"]

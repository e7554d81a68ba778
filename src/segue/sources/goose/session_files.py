"""Read the files in which Goose kept its sessions before it had a database.

sessions/ID.jsonl: a line with the facts of the session, then a line for each message. A later Goose
imports them into its database once, under the same ids.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from segue.sources import safe_io
from segue.sources.kit import bodies, files
from segue.sources.kit.reader import End, Items, SessionFacts, SessionRef, Unreadable

from . import tables
from .translator import GooseState, Row, Translator

_SUFFIX = ".jsonl"


class SessionFiles:
    """The files of one directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def exist(self) -> bool:
        """Return whether there is a file."""
        return next(self.refs(), None) is not None

    def refs(self) -> Iterator[SessionRef]:
        """Return all sessions."""
        for entry in files.walk_files(self._directory, _SUFFIX, 0):
            if ref := self.ref(entry.path):
                yield ref

    def ref(self, path: str) -> SessionRef | None:
        """Return a session as it is now; None if it is gone."""
        directory, name = os.path.split(path)
        status = safe_io.nonempty_file_status(path)
        if directory != self._directory or not name.endswith(_SUFFIX) or status is None:
            return None
        return SessionRef(path, name.removesuffix(_SUFFIX), files.fingerprint(status))

    def read(self, ref: SessionRef) -> Items:
        """Yield the events of a session. Goose rewrites the first line, so all lines are read."""
        records = files.Records(ref.key)
        state, header = GooseState(), dict[str, Any]()
        written_at = ref.fingerprint.mtime_ns // 1000
        translator = Translator(state, 0, None)
        first_at = None
        for number, line in enumerate(records):
            if "role" not in line.record:
                if number:
                    records.problems.append(f"the record at byte {line.offset} is no message")
                else:
                    header = line.record
                continue
            row = _row(line.offset, line.record)
            first_at = first_at or bodies.time_of(row["created_timestamp"])
            yield from translator.message(row, None)
        if not state.rows and "description" not in header:
            raise Unreadable("it does not begin as a session of Goose does")
        total = tables.usage_of(
            header.get("accumulated_input_tokens"),
            header.get("accumulated_output_tokens"),
            None,
            None,
            None,
        )
        yield from translator.rest_of_usage(total, state.last_at or written_at)
        if not state.rows:
            return End(None)
        if state.damaged == state.rows:
            raise Unreadable(translator.problems[0])
        return End(
            SessionFacts(
                created_at=first_at or written_at,
                cwd=bodies.text(header.get("working_dir")) or "/",
                title=bodies.text(header.get("description")) or None,
                title_by="agent",
                model=state.model,
                open_since=state.open_since,
                problems=(*records.problems, *translator.problems),
            )
        )


def _row(number: int, record: dict[str, Any]) -> Row:
    """Return a message of a file as a row of the database has it."""
    return {
        "id": number,
        "message_id": record.get("id"),
        "role": record.get("role"),
        "content_json": msgspec.json.encode(record.get("content")),
        "created_timestamp": record.get("created"),
        "metadata_json": msgspec.json.encode(record.get("metadata")),
    }

"""The rows of the session picker, recent sessions or search matches, and the selected row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from segue.hub.sessions.pagination import MAX_PAGE_SIZE
from segue.hub.sessions.resolve import MIN_PREFIX_LENGTH
from segue.interfaces.cli.output.text import event_text
from segue.interfaces.cli.target import HubReader
from segue.model import ids, search_text
from segue.model.errors import NotFound
from segue.model.event import Event
from segue.model.query import Query, WindowOptions
from segue.model.session import Session

SESSIONS_PER_PAGE = 50
MATCHES_PER_PAGE = 20  # fewer, since each needs a snippet
PREVIEW_EVENTS = 40
PREVIEW_EVENTS_BEFORE_MATCH = 4
MAX_CACHED_PREVIEWS = 200


class PickerRow(NamedTuple):
    """A session, with its snippet and event if it is a search match; or a heading.

    Rows below the heading of a directory do not show their project.
    """

    session: Session | None
    text: str = ""
    seq: int | None = None
    shows_project: bool = True


class PickerState:
    """The rows for the text that has been typed so far."""

    def __init__(self, reader: HubReader, cwd: str, source: str | None = None) -> None:
        self._reader = reader
        self._cwd_query = Query(cwd=cwd, worktrees=True, source=source, limit=SESSIONS_PER_PAGE)
        self._query = Query(source=source, limit=SESSIONS_PER_PAGE)
        self.typed = ""
        self.archived = False
        self.rows: list[PickerRow] = []
        self.index = 0
        self._cursor: str | None = None
        self._search_words = ""
        self._corrected_words: str | None = None  # searched for instead of the misspelt ones
        self._session_ids: set[str] = set()
        self._previews: dict[tuple[str, int, int | None], list[Event]] = {}
        # How many sessions there are and match, as far as they are counted.
        self.total: int | None = None
        self.matching: int | None = None
        self.has_more_total = self.has_more_matching = False
        self.reload()

    @property
    def selected(self) -> PickerRow | None:
        row = self.rows[self.index] if self.index < len(self.rows) else None
        return row if row is not None and row.session is not None else None

    def set_typed(self, typed: str) -> None:
        """Change the typed text; reload if it searches for other words."""
        self.typed = typed
        if not self._search_words or _searchable(typed) != self._search_words:
            self.reload()

    def toggle_archived(self) -> None:
        """Switch between active and archived sessions."""
        self.archived = not self.archived
        archived: Literal["only", "exclude"] = "only" if self.archived else "exclude"
        self._cwd_query = replace(self._cwd_query, archived=archived)
        self._query = replace(self._query, archived=archived)
        self.total = None
        self.reload()

    def load_more(self, height: int, *, preview: bool) -> bool:
        """Load the preview if it is shown, or the next page if the screen has empty lines.

        Return False if nothing is missing.
        """
        row = self.selected
        if preview and row is not None and self.preview(row) is None:
            self._load_preview(row)
            return True
        if len(self.rows) < height and self._cursor is not None:
            self._load_page()
            return True
        return self._load_counts()

    def _load_counts(self) -> bool:
        """Count the sessions, or those that match; return False if both are counted."""
        if self.total is None:
            self.total, self.has_more_total = self._count(self._query)
            return True
        if self._search_words and self.matching is None:
            words = self._corrected_words or self._search_words
            query = replace(self._query, text=words)
            self.matching, self.has_more_matching = self._count(query)
            return True
        return False

    def _count(self, query: Query) -> tuple[int, bool]:
        """Return how many sessions match, and whether there are more than can be counted."""
        count = self._reader(lambda hub, principal: hub.sessions.count(principal, query))
        return (MAX_PAGE_SIZE, True) if count is None else (count, False)

    def reload(self, *, keep_position: bool = False) -> None:
        """Load the rows again and select the same session, if it is still listed.

        If it is not, select the first session, or with `keep_position` the one nearest to the old
        row. A search selects its first match unless `keep_position` is set.
        """
        before, index = self.selected, self.index
        self.rows, self._session_ids, self._cursor = [], set(), None
        self.matching = None
        self._search_words, self._corrected_words = _searchable(self.typed), None
        if self._search_words:
            self._load_matches()
        else:
            self._load_recent()
        self.index = self._first_session_index()
        if before is None or before.session is None:
            return
        if keep_position:
            self.total = None
            self._load_until(index)
            self.index = self._nearest_session_index(index)
        if keep_position or not self._search_words:
            self.select(before.session.id)

    def select(self, session_id: str) -> None:
        """Select a session if it is among the loaded rows."""
        for index, row in enumerate(self.rows):
            if row.session is not None and row.session.id == session_id:
                self.index = index
                return

    def move(self, steps: int) -> None:
        """Select the session that is `steps` rows away, skipping headings."""
        index = max(0, self.index + steps)
        self._load_until(index)
        index = min(index, len(self.rows) - 1)
        step = 1 if steps > 0 else -1
        while 0 <= index < len(self.rows) and self.rows[index].session is None:
            index += step
        self.index = index if 0 <= index < len(self.rows) else self._first_session_index()

    def preview(self, row: PickerRow) -> list[Event] | None:
        """Return the events around a match, or the last ones; None if they are not loaded."""
        return self._previews.get(_preview_key(row))

    def _load_preview(self, row: PickerRow) -> None:
        session = row.session
        assert session is not None
        if len(self._previews) > MAX_CACHED_PREVIEWS:
            self._previews.clear()
        window: WindowOptions = {"backward": True, "limit": PREVIEW_EVENTS}
        if row.seq is not None:
            first = max(0, row.seq - PREVIEW_EVENTS_BEFORE_MATCH)
            window = {"after": first, "limit": PREVIEW_EVENTS}
        try:
            events = self._reader(
                lambda hub, principal: hub.history.events(principal, session.id, **window)
            )
        except NotFound:
            events = []  # the session has been deleted since it was listed
        own = [event for event in events if event.body.thread is None]
        self._previews[_preview_key(row)] = own

    def _load_until(self, index: int) -> None:
        while index >= len(self.rows) and self._cursor is not None:
            self._load_page()

    def _nearest_session_index(self, index: int) -> int:
        """Return the index of a session at or below `index`, else above it."""
        below = range(index, len(self.rows))
        above = range(min(index, len(self.rows)) - 1, -1, -1)
        return next((i for i in (*below, *above) if self.rows[i].session is not None), 0)

    def _first_session_index(self) -> int:
        return next((i for i, row in enumerate(self.rows) if row.session is not None), 0)

    def _load_recent(self) -> None:
        here = self._reader(
            lambda hub, principal: hub.sessions.list(principal, self._cwd_query)
        ).sessions
        if here:
            heading = f"In {os.path.basename(self._cwd_query.cwd or '') or '/'}"
            self._add(heading, here, shows_project=False)
        self._load_page("Everywhere" if here else "")

    def _load_matches(self) -> None:
        id_range = ids.prefix_range(self.typed.strip(), "sesn")
        if id_range is not None and len(self.typed) >= MIN_PREFIX_LENGTH:
            sessions = self._reader(
                lambda hub, principal: hub.sessions.in_id_range(
                    principal, *id_range, limit=SESSIONS_PER_PAGE
                )
            )
            shown_state = "archived" if self.archived else "active"
            self._add("", [session for session in sessions if session.state == shown_state])
        self._load_page()

    def _load_page(self, heading: str = "") -> None:
        if not self._search_words:
            page = self._reader(
                lambda hub, principal: hub.sessions.list(principal, self._query, self._cursor)
            )
            self._cursor = page.next
            self._add(heading, page.sessions)
            return
        words = self._corrected_words or self._search_words
        query = replace(self._query, text=words, limit=MATCHES_PER_PAGE)
        results = self._reader(
            lambda hub, principal: hub.sessions.search(principal, query, self._cursor)
        )
        self._cursor = results.next
        if results.corrected is not None:
            self._corrected_words = results.corrected
            self.rows.append(
                PickerRow(None, f"No matches. Instead, matches of {results.corrected}")
            )
        for match in results.matches:
            if match.session.id not in self._session_ids:
                self._session_ids.add(match.session.id)
                # A match in the title has no place in the conversation: its end is shown.
                is_in_conversation = match.event is not None and event_text(match.event) is not None
                seq = match.event.seq if match.event is not None and is_in_conversation else None
                self.rows.append(PickerRow(match.session, match.snippet, seq))
                self._add("", match.copies)
        for copies in results.copies.values():  # of originals that are on another page
            self._add("", copies)

    def _add(
        self, heading: str, sessions: Sequence[Session], *, shows_project: bool = True
    ) -> None:
        new = [session for session in sessions if session.id not in self._session_ids]
        self._session_ids.update(session.id for session in new)
        if heading and new:
            self.rows.append(PickerRow(None, heading))
        self.rows += [PickerRow(session, shows_project=shows_project) for session in new]


def _preview_key(row: PickerRow) -> tuple[str, int, int | None]:
    """Return the cache key of a preview; `last_seq` makes a session that grew load again."""
    assert row.session is not None
    return (row.session.id, row.session.last_seq, row.seq)


def _searchable(typed: str) -> str:
    """Return the words to search for, without a last word of one letter, which matches too much."""
    rest, _, last = typed.rpartition(" ")
    words = rest if len(last) < search_text.MIN_PREFIX_CHARS and last.isascii() else typed
    return words if search_text.terms(words) else ""

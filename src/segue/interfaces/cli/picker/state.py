"""What the picker shows: recent sessions or what a search found, and which one is selected."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from segue.hub.sessions.resolve import MIN_PREFIX_LENGTH
from segue.interfaces.cli.main import Ask
from segue.interfaces.cli.output.text import event_text
from segue.model import ids, search_text
from segue.model.errors import NotFound
from segue.model.query import Query
from segue.model.session import Session

PAGE = 50
FOUND = 20  # at a time: each comes with a snippet
PREVIEW = 40  # events


class Row(NamedTuple):
    """A session, with a snippet where a search found it; or a heading, without one."""

    session: Session | None
    text: str = ""
    seq: int | None = None


class Choices:
    """The rows for what has been typed so far."""

    def __init__(self, ask: Ask, here: str) -> None:
        self._ask = ask
        self._here = Query(cwd=here, worktrees=True, limit=PAGE)
        self._everywhere = Query(limit=PAGE)
        self.typed = ""
        self.archived = False
        self.rows: list[Row] = []
        self.at = 0
        self._cursor: str | None = None
        self._words = ""
        self._seen: set[str] = set()
        self._previews: dict[tuple[str, int, int | None], list[Any]] = {}
        self.reload()

    @property
    def selected(self) -> Row | None:
        row = self.rows[self.at] if self.at < len(self.rows) else None
        return row if row is not None and row.session is not None else None

    def type(self, typed: str) -> None:
        """Other words are being looked for."""
        self.typed = typed
        if not self._words or _words(typed) != self._words:
            self.reload()

    def switch(self) -> None:
        """From the sessions in use to the archived ones, or back."""
        self.archived = not self.archived
        shelf: Literal["only", "exclude"] = "only" if self.archived else "exclude"
        self._here = replace(self._here, archived=shelf)
        self._everywhere = replace(self._everywhere, archived=shelf)
        self.reload()

    def finish(self, height: int, previewed: bool) -> bool:
        """A piece of what need not be there at once; False when nothing is left of it.

        That is the preview, if it is shown, and as many rows as fit the screen.
        """
        row = self.selected
        if previewed and row is not None and self.preview(row) is None:
            self._read(row)
            return True
        if len(self.rows) < height and self._cursor is not None:
            self._more()
            return True
        return False

    def reload(self, *, stay: bool = False) -> None:
        """The rows anew; the selected session stays selected if it is still there.

        If not, the first of them is; to `stay`, the one that is now in its place.
        """
        before, place = self.selected, self.at
        self.rows, self._seen, self._cursor = [], set(), None
        self._words = _words(self.typed)
        if self._words:
            self._search()
        else:
            self._recent()
        self.at = self._first()
        if before is not None and before.session is not None and (stay or not self._words):
            if stay:
                self._reach(place)
                self.at = self._near(place)
            kept = before.session.id
            found = (i for i, row in enumerate(self.rows) if row.session and row.session.id == kept)
            self.at = next(found, self.at)

    def move(self, steps: int) -> None:
        """Select another session, so many rows away; headings are passed over."""
        wanted = max(0, self.at + steps)
        self._reach(wanted)
        wanted = min(wanted, len(self.rows) - 1)
        step = 1 if steps > 0 else -1
        while 0 <= wanted < len(self.rows) and self.rows[wanted].session is None:
            wanted += step
        self.at = wanted if 0 <= wanted < len(self.rows) else self._first()

    def preview(self, row: Row) -> list[Any] | None:
        """The end of the conversation, or the part that a search found; None if not read yet."""
        return self._previews.get(_place(row))

    def _read(self, row: Row) -> None:
        session = row.session
        assert session is not None
        if len(self._previews) > 200:
            self._previews.clear()
        where: dict[str, Any] = {"backward": True, "limit": PREVIEW}
        if row.seq is not None:
            where = {"after": max(0, row.seq - 4), "limit": PREVIEW}
        try:
            events = self._ask(lambda hub, who: hub.history.events(who, session.id, **where))
        except NotFound:
            events = []  # it was deleted meanwhile
        self._previews[_place(row)] = list(events)

    def _reach(self, place: int) -> None:
        """Have so many rows, if there are as many."""
        while place >= len(self.rows) and self._cursor is not None:
            self._more()

    def _near(self, place: int) -> int:
        """The place of a session: there, or below, or above."""
        below = range(place, len(self.rows))
        above = range(min(place, len(self.rows)) - 1, -1, -1)
        sessions = (at for at in (*below, *above) if self.rows[at].session is not None)
        return next(sessions, 0)

    def _first(self) -> int:
        return next((i for i, row in enumerate(self.rows) if row.session is not None), 0)

    def _recent(self) -> None:
        mine = self._ask(lambda hub, who: hub.sessions.list(who, self._here)).sessions
        if mine:
            self._add(f"In {os.path.basename(self._here.cwd or '') or '/'}", mine)
        self._more("Everywhere" if mine else "")

    def _search(self) -> None:
        bounds = ids.prefix_range(self.typed.strip(), "sesn")
        if bounds is not None and len(self.typed) >= MIN_PREFIX_LENGTH:
            named = self._ask(lambda hub, who: hub.sessions.in_id_range(who, *bounds, limit=PAGE))
            state = "archived" if self.archived else "active"
            self._add("", [session for session in named if session.state == state])
        self._more()

    def _more(self, heading: str = "") -> None:
        """The next page."""
        if not self._words:
            page = self._ask(
                lambda hub, who: hub.sessions.list(who, self._everywhere, self._cursor)
            )
            self._cursor = page.next
            self._add(heading, page.sessions)
            return
        query = replace(self._everywhere, text=self._words, limit=FOUND)
        results = self._ask(lambda hub, who: hub.sessions.search(who, query, self._cursor))
        self._cursor = results.next
        for found in results.matches:
            if found.session.id not in self._seen:
                self._seen.add(found.session.id)
                seq = None
                # A title is no part of the conversation: where it was found, the end is shown.
                if found.event is not None and event_text(found.event) is not None:
                    seq = found.event.seq
                self.rows.append(Row(found.session, found.snippet, seq))

    def _add(self, heading: str, sessions: Sequence[Session]) -> None:
        new = [session for session in sessions if session.id not in self._seen]
        self._seen.update(session.id for session in new)
        if heading and new:
            self.rows.append(Row(None, heading))
        self.rows += [Row(session) for session in new]


def _place(row: Row) -> tuple[str, int, int | None]:
    """What a preview is kept by: with the session's length, so that one that goes on is reread."""
    assert row.session is not None
    return (row.session.id, row.session.last_seq, row.seq)


def _words(typed: str) -> str:
    """What to search for: not for the last word while it is one letter, which begins too many."""
    rest, _, last = typed.rpartition(" ")
    words = rest if len(last) < search_text.MIN_PREFIX_CHARS and last.isascii() else typed
    return words if search_text.terms(words) else ""

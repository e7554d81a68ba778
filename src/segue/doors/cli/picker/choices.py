"""What the picker shows: recent sessions or what a search found, and which one is selected."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....hub.naming import MIN_PREFIX
from ....model import ids, text
from ....model.query import Query
from ....model.session import Session
from ..main import Ask

PAGE = 50
FOUND = 30  # at a time: each comes with a snippet
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
        self.typed = ""
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

    def reload(self) -> None:
        """The rows anew; the selected session stays selected if it is still there."""
        before = self.selected
        self.rows, self._seen, self._cursor = [], set(), None
        self._words = _words(self.typed)
        if self._words:
            self._search()
        else:
            self._recent()
        self.at = self._first()
        if before is not None and before.session is not None and not self._words:
            kept = before.session.id
            found = (i for i, row in enumerate(self.rows) if row.session and row.session.id == kept)
            self.at = next(found, self.at)

    def move(self, steps: int) -> None:
        """Select another session, so many rows away; headings are passed over."""
        wanted = max(0, self.at + steps)
        while wanted >= len(self.rows) and self._cursor is not None:
            self._more()
        wanted = min(wanted, len(self.rows) - 1)
        step = 1 if steps > 0 else -1
        while 0 <= wanted < len(self.rows) and self.rows[wanted].session is None:
            wanted += step
        self.at = wanted if 0 <= wanted < len(self.rows) else self._first()

    def preview(self, row: Row) -> list[Any]:
        """The end of the conversation, or the part that a search found."""
        session = row.session
        assert session is not None
        # By its length, too: a session that goes on is read again.
        name = (session.id, session.last_seq, row.seq)
        if name not in self._previews:
            if len(self._previews) > 200:
                self._previews.clear()
            where: dict[str, Any] = {"backward": True, "limit": PREVIEW}
            if row.seq is not None:
                where = {"after": max(0, row.seq - 4), "limit": PREVIEW}
            self._previews[name] = list(
                self._ask(lambda hub, who: hub.events(who, session.id, **where))
            )
        return self._previews[name]

    def _first(self) -> int:
        return next((i for i, row in enumerate(self.rows) if row.session is not None), 0)

    def _recent(self) -> None:
        mine = self._ask(lambda hub, who: hub.list(who, self._here)).sessions
        if mine:
            self._add(f"In {os.path.basename(self._here.cwd or '') or '/'}", mine)
        self._more("Everywhere" if mine else "")

    def _search(self) -> None:
        bounds = ids.bounds(self.typed.strip(), "sesn")
        if bounds is not None and len(self.typed) >= MIN_PREFIX:
            named = self._ask(lambda hub, who: hub.between(who, *bounds, limit=PAGE))
            self._add("", [session for session in named if session.shelf != "trash"])
        self._more()

    def _more(self, heading: str = "") -> None:
        """The next page."""
        if not self._words:
            page = self._ask(lambda hub, who: hub.list(who, Query(limit=PAGE), self._cursor))
            self._cursor = page.next
            self._add(heading, page.sessions)
            return
        query = Query(text=self._words, limit=FOUND)
        results = self._ask(lambda hub, who: hub.search(who, query, self._cursor))
        self._cursor = results.next
        for found in results.found:
            if found.session.id not in self._seen:
                self._seen.add(found.session.id)
                seq = None if found.event is None else found.event.seq
                self.rows.append(Row(found.session, found.snippet, seq))

    def _add(self, heading: str, sessions: Sequence[Session]) -> None:
        new = [session for session in sessions if session.id not in self._seen]
        self._seen.update(session.id for session in new)
        if heading and new:
            self.rows.append(Row(None, heading))
        self.rows += [Row(session) for session in new]


def _words(typed: str) -> str:
    """What to search for: not for the last word while it is one letter, which begins too many."""
    rest, _, last = typed.rpartition(" ")
    words = rest if len(last) < text.MIN_PREFIX and last.isascii() else typed
    return words if text.terms(words) else ""

"""Read a history without what its reader may not see, such as the readers of a share link.

Every read passes through one function, so a page cannot show what that function removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack

from msgspec.structs import replace

from segue.model import search_text
from segue.model.content import Diff, FileChange
from segue.model.event import Delta, Event, ToolCall, ToolCallChanged, ToolResult
from segue.model.principal import Principal
from segue.model.query import SearchHit, WindowOptions
from segue.model.session import Session, Thread

from .reader import EndedHistory, HistoryReader

_CHANGES = (Diff, FileChange)
MAX_SEARCHED = 1000  # matches of a search, of which those that are left out are removed


class Redaction(NamedTuple):
    """What readers do not see: what tools returned, and what looks like a secret."""

    hide_tool_output: bool = False
    mask_secrets: bool = False

    def events(self, events: Iterable[Event]) -> list[Event]:
        """Return consecutive events without the parts that the link hides."""
        visible = [self._without_output(event) for event in events]
        if not self.mask_secrets:
            return visible
        from segue.secrets.events import mask_events

        return mask_events(visible)

    def session(self, session: Session) -> Session:
        """Return a session whose title and other texts have no secrets."""
        if not self.mask_secrets:
            return session
        from segue.secrets.events import mask_session

        return mask_session(session)

    def thread(self, thread: Thread) -> Thread:
        """Return a thread whose title has no secrets."""
        if not self.mask_secrets:
            return thread
        from segue.secrets.events import mask_thread

        return mask_thread(thread)

    def _without_output(self, event: Event) -> Event:
        body = event.body
        if self.hide_tool_output:
            if isinstance(body, ToolResult):
                return replace(event, body=replace(body, content=(), output=None))
            # Agents may report output while a call runs. What a call changes is no output.
            if isinstance(body, ToolCall | ToolCallChanged) and body.content:
                changes = tuple(part for part in body.content if isinstance(part, _CHANGES))
                return replace(event, body=replace(body, content=changes))
        return event


NOTHING_HIDDEN = Redaction()


class RedactedHistory:
    """A history as `Redaction` leaves it. It has the reads that pages need."""

    def __init__(self, history: HistoryReader | EndedHistory, redaction: Redaction) -> None:
        self._history = history
        self._redaction = redaction

    async def events(
        self, principal: Principal, id: str, /, **window: Unpack[WindowOptions]
    ) -> Sequence[Event]:
        """Return the events of an EventWindow, in order."""
        events = await self._history.events(principal, id, **window)
        return await self._redacted(principal, id, events)

    async def _redacted(
        self, principal: Principal, id: str, events: Sequence[Event]
    ) -> Sequence[Event]:
        earlier: list[Event] = []
        later: list[Event] = []
        if self._redaction.mask_secrets:
            from segue.secrets.events import adjacent_messages

            read = partial(self._history.events, principal, id)
            earlier, later = await adjacent_messages(events, read)
        # Searching long texts for secrets takes a while.
        shown = await asyncio.to_thread(self._redaction.events, [*earlier, *events, *later])
        return shown[len(earlier) : len(earlier) + len(events)]

    async def threads(self, principal: Principal, id: str, /) -> Sequence[Thread]:
        """Return the threads that a session started."""
        threads = await self._history.threads(principal, id)
        return [self._redaction.thread(thread) for thread in threads]

    async def thread_events(
        self, principal: Principal, id: str, thread_id: str, /
    ) -> AsyncIterator[Event]:
        """Yield the events of one thread."""
        from segue.secrets.events import message_groups

        async for group in message_groups(self._history.thread_events(principal, id, thread_id)):
            for shown in await asyncio.to_thread(self._redaction.events, group):
                yield shown

    async def find(
        self,
        principal: Principal,
        id: str,
        words: str,
        *,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Any]:
        """Return the events whose redacted text contains all words, the newest first."""
        assert isinstance(self._history, HistoryReader)
        matches = await self._history.find(principal, id, words, before=before, limit=limit)
        return await asyncio.to_thread(self._matches, matches, words)

    async def find_in_threads(
        self, principal: Principal, id: str, words: str, *, limit: int = 100
    ) -> list[tuple[Thread, Any]]:
        """Return the events of threads whose redacted text contains all words."""
        assert isinstance(self._history, HistoryReader)
        matches = await self._history.find_in_threads(principal, id, words, limit=MAX_SEARCHED)

        def redact() -> list[tuple[Thread, Any]]:
            return [
                (self._redaction.thread(thread), redacted)
                for thread, match in matches
                if (redacted := self._match(match, words)) is not None
            ]

        return (await asyncio.to_thread(redact))[:limit]

    async def follow(
        self, principal: Principal, id: str, after: int = 0, **options: Any
    ) -> AsyncGenerator[Event | Delta, None]:
        """Yield events as they come. There are no deltas: a part of a text cannot be checked."""
        assert isinstance(self._history, HistoryReader)
        async for event in self._history.follow(principal, id, after):
            if isinstance(event, Event):
                yield (await self._redacted(principal, id, [event]))[0]

    def _matches(self, matches: Iterable[Any], words: str) -> list[Any]:
        return [
            redacted for match in matches if (redacted := self._match(match, words)) is not None
        ]

    def _match(self, match: Any, words: str) -> Any:
        """Return a match with a redacted snippet; None if the link hides the words."""
        from segue.hub.sessions.search import search_match

        if match.event is None:
            return None
        [event] = self._redaction.events([match.event])
        text = search_text.searchable_text(event.body)
        terms = search_text.terms(words)
        if not text or not all(search_text.text_has_term(term, text) for term in terms):
            return None
        return search_match(SearchHit(self._redaction.session(match.session), event), terms)

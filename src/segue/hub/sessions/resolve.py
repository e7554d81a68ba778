"""Resolve what a person typed (an id, an id prefix, a tool's own id or a title) to one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from segue.model import ids, search_text
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

from .pagination import Page

MIN_PREFIX_LENGTH = 4
MAX_LISTED_MATCHES = 10
MAX_TITLE_CANDIDATES = 1_000
PAGE_SIZE = 100


class AmbiguousName(InvalidInput):
    """Several sessions match a name.

    `matches` holds the first MAX_LISTED_MATCHES of them, `omitted` how many more there are.
    """

    def __init__(self, name: str, matches: list[Session]) -> None:
        count = f"{len(matches)}{' or more' * (len(matches) >= PAGE_SIZE)}"
        titles = {_normalised(session.title or "") for session in matches}
        # More of a title does not distinguish sessions of the same title.
        only_ids_differ = len(titles) == 1 and _normalised(name) in titles.pop()
        advice = "an id" if only_ids_differ else "a longer prefix or an id"
        super().__init__(f"{name!r} matches {count} sessions; use {advice}")
        self.matches = matches[:MAX_LISTED_MATCHES]
        self.omitted = len(matches) - len(self.matches)


class Sessions(Protocol):
    """The reads that a resolver needs."""

    async def get(self, principal: Principal, id: str) -> Session: ...
    async def list(
        self, principal: Principal, query: Query | None = None, cursor: str | None = None
    ) -> Page: ...
    async def in_id_range(
        self, principal: Principal, low: str, high: str, *, limit: int = 50
    ) -> Sequence[Session]: ...
    async def with_native_id(self, principal: Principal, native_id: str) -> Sequence[Session]: ...


class SessionResolver:
    """Find one session by id, id prefix, a tool's id, title or part of a title, in this order."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def resolve(
        self, principal: Principal, name: str, *, trashed: bool = False, titles: bool = True
    ) -> Session:
        """Return the session that `name` identifies.

        Raises NotFound if no session matches, AmbiguousName if several do. With `trashed`, only
        sessions in the trash match; without it, those match by their full id only. Without
        `titles`, only ids are compared.
        """
        if id := ids.parse(name, "sesn"):
            return await self._sessions.get(principal, id)
        matches = await self._matches(principal, name, trashed=trashed, titles=titles)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise AmbiguousName(name, matches)
        if not trashed:
            in_trash = await self._matches(principal, name, trashed=True, titles=titles)
            if len(in_trash) == 1:
                id = in_trash[0].id
                raise NotFound(f"{name!r} is in the trash; run `segue restore {id}` to restore it")
        raise NotFound(_no_match_message(name, trashed=trashed))

    async def _matches(
        self, principal: Principal, name: str, *, trashed: bool, titles: bool
    ) -> list[Session]:
        matches = await self._by_id_prefix(principal, name, trashed=trashed)
        if not matches and _may_be_native_id(name):
            sessions = await self._sessions.with_native_id(principal, name)
            matches = [session for session in sessions if (session.state == "trashed") == trashed]
        if not matches and titles:
            matches = await self._by_title(principal, name, trashed=trashed)
        return matches

    async def _by_id_prefix(
        self, principal: Principal, name: str, *, trashed: bool
    ) -> list[Session]:
        bounds = ids.prefix_range(name, "sesn") if not _is_short(name) else None
        if bounds is None:
            return []
        sessions = await self._sessions.in_id_range(principal, *bounds, limit=PAGE_SIZE)
        return [session for session in sessions if (session.state == "trashed") == trashed]

    async def _by_title(self, principal: Principal, name: str, *, trashed: bool) -> list[Session]:
        """Return the sessions with this title, or else those whose title contains the name.

        Titles are searchable, so only sessions that contain the words are compared.
        """
        # Tokens joined without a space form a phrase whose last word may be incomplete.
        phrase = "-".join(search_text.tokens(name))
        if not phrase:
            return []
        normalised_name = _normalised(name)
        query = Query(text=phrase, archived="include", trash=trashed, limit=PAGE_SIZE)
        exact: dict[str, Session] = {}
        partial: dict[str, Session] = {}
        cursor: str | None = None
        for _ in range(MAX_TITLE_CANDIDATES // PAGE_SIZE):
            page = await self._sessions.list(principal, query, cursor)
            for session in page.sessions:
                title = _normalised(session.title or "")
                if title == normalised_name:
                    exact[session.id] = session
                elif normalised_name in title:
                    partial[session.id] = session
            cursor = page.next
            if cursor is None:
                break
        return list((exact or partial).values())


def _is_short(name: str) -> bool:
    return len(name.removeprefix("sesn_01")) < MIN_PREFIX_LENGTH


def _may_be_native_id(name: str) -> bool:
    """Return whether a tool may have given this id: it is one word with digits in it."""
    has_digits = any(character.isdigit() for character in name)
    return not _is_short(name) and has_digits and not any(map(str.isspace, name))


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())


def _no_match_message(name: str, *, trashed: bool) -> str:
    where = " in the trash" if trashed else ""
    hint = ""
    if _is_short(name) and ids.prefix_range(name, "sesn") is not None:
        hint = f" (an id prefix needs at least {MIN_PREFIX_LENGTH} characters)"
    advice = "`segue list` to see your sessions"
    if trashed:
        advice = "`segue trash list` to see the trash"
    elif not _may_be_native_id(name) and not hint:
        advice += ", or `segue search WORDS`, which also corrects misspelt words"
    return f"no session matches {name!r}{where}{hint}; run {advice}"

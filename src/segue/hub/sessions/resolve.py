"""Which session somebody means: an id in any spelling, the beginning of one, or a title."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segue.model import ids, search_text
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

if TYPE_CHECKING:
    from .catalog import Reading

MIN_PREFIX = 4  # letters of an id that are worth trying
MOST = 20  # that an ambiguous name is shown to mean
_PAGE = 100
_TRIED = 1_000  # sessions that have a title's words, tried before giving up


class Ambiguous(InvalidInput):
    """A name that means several sessions; `meant` are the first of them."""

    def __init__(self, name: str, meant: list[Session]) -> None:
        many = f"more than {MOST}" if len(meant) > MOST else str(len(meant))
        super().__init__(f"{name!r} means {many} sessions; give more of it")
        self.meant = meant[:MOST]


async def named(
    hub: Reading, principal: Principal, name: str, *, trash: bool = False, titles: bool = True
) -> Session:
    """The one session of a name. NotFound if there is none, Ambiguous if there are several.

    A whole id comes first, then the beginning of one, then a whole title, then a part of one.
    `trash` means sessions in the trash alone; otherwise only a whole id finds those. Without
    `titles`, only ids are tried.
    """
    if id := ids.parse(name, "sesn"):
        return await hub.get(principal, id)
    for find in (_begun, _titled) if titles else (_begun,):
        meant = await find(hub, principal, name, trash)
        if len(meant) == 1:
            return await hub.get(principal, meant[0].id)
        if meant:
            raise Ambiguous(name, meant)
    place = " in the trash" if trash else ""
    if len(_digits(name)) < MIN_PREFIX and ids.prefix_range(name, "sesn") is not None:
        place += f" (of an id, at least {MIN_PREFIX} characters are needed)"
    lists = "segue trash list" if trash else "segue list"
    raise NotFound(f"no session {name!r}{place}; `{lists}` shows what there is")


async def _begun(hub: Reading, principal: Principal, name: str, trash: bool) -> list[Session]:
    bounds = ids.prefix_range(name, "sesn") if len(_digits(name)) >= MIN_PREFIX else None
    if bounds is None:
        return []
    found = await hub.in_id_range(principal, *bounds, limit=_PAGE)
    return [session for session in found if (session.state == "trashed") == trash]


def _digits(name: str) -> str:
    return name.removeprefix("sesn_01")


async def _titled(hub: Reading, principal: Principal, name: str, trash: bool) -> list[Session]:
    """By the search, which knows titles: only sessions that have the words are looked at."""
    # What no space divides is a phrase whose last word may be only begun.
    phrase = "-".join(search_text.tokens(name))
    if not phrase:
        return []
    wanted = _folded(name)
    query = Query(text=phrase, archived="include", trash=trash, limit=_PAGE)
    whole: dict[str, Session] = {}
    part: dict[str, Session] = {}
    cursor: str | None = None
    for _ in range(_TRIED // _PAGE):
        page = await hub.list(principal, query, cursor)
        for session in page.sessions:
            title = _folded(session.title or "")
            if title == wanted:
                whole[session.id] = session
            elif wanted in title:
                part[session.id] = session
        cursor = page.next
        if cursor is None:
            break
    return list((whole or part).values())


def _folded(words: str) -> str:
    return " ".join(words.casefold().split())

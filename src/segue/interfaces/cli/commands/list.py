"""Lists: `segue list`, `search`, `sources`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from segue.interfaces.cli.arguments import cwd_option
from segue.interfaces.cli.durations import When
from segue.interfaces.cli.main import Where, located
from segue.interfaces.cli.output.formats import formatted, write_rows
from segue.interfaces.cli.output.pager import paged, show_text
from segue.interfaces.cli.output.progress import reading
from segue.model.lifecycle import STATUSES, Status
from segue.model.query import Order, Query

if TYPE_CHECKING:
    from segue.hub import Hub, SearchMatch
    from segue.hub.sessions.pagination import Page
    from segue.model.principal import Principal
    from segue.model.session import Session

F = TypeVar("F", bound=Callable[..., Any])
MOST = 1000  # in one page


def filtered(command: F) -> F:
    """Give a command the filters of lists, as one argument `query`."""

    @wraps(command)
    def wrapped(
        *args: Any,
        cwd: str | None,
        worktrees: bool,
        tag: str | None,
        statuses: tuple[Status, ...],
        source: str | None,
        since: int | None,
        archived: bool,
        only_archived: bool,
        **kwargs: Any,
    ) -> Any:
        if worktrees and cwd is None:
            raise click.UsageError("--worktrees goes with --cwd, as in --cwd . --worktrees")
        query = Query(
            cwd=None if cwd is None else os.path.abspath(cwd),
            worktrees=worktrees,
            tag=tag,
            statuses=statuses,
            source=source,
            active_after=since,
            archived="only" if only_archived else "include" if archived else "exclude",
        )
        return command(*args, query=query, **kwargs)

    options = [
        cwd_option("Only sessions of this directory."),
        click.option(
            "--worktrees", is_flag=True, help="With --cwd: its repository's worktrees too."
        ),
        click.option("--tag", help="Only sessions with this tag."),
        click.option(
            "--status",
            "statuses",
            multiple=True,
            type=click.Choice(STATUSES),
            help="Only sessions in this state. Repeat it for any of several.",
        ),
        click.option("--source", help="Only sessions that this tool keeps; `segue` for our own."),
        click.option("--since", type=When(), help="Only sessions active since: 7d, 2025-01-31 …"),
        click.option("--archived", is_flag=True, help="Archived sessions too."),
        click.option("--only-archived", is_flag=True, help="Archived sessions and no others."),
    ]
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # the same command, with `query` filled in


@click.command("list")
@filtered
@click.option(
    "--order",
    type=click.Choice(["active", "created"]),
    default="active",
    show_default=True,
    help="By last activity, or by when they were made.",
)
@click.option("--reverse", is_flag=True, help="The oldest first.")
@click.option("-n", "--limit", default=20, show_default=True, help="How many.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@paged
@formatted
@located
def list_command(
    where: Where,
    query: Query,
    order: Order,
    reverse: bool,
    limit: int,
    everything: bool,
    format: str | None,
) -> None:
    """List sessions, the most recently active first.

    Example: segue list --cwd . --worktrees --since 7d
    """
    query = replace(query, order=order, descending=not reverse, limit=limit)
    most = None if everything else limit
    sessions, more = where.read(lambda hub, principal: every(hub, principal, query, most))
    asked = query != replace(Query(), order=order, descending=not reverse, limit=limit)
    nothing = "No sessions. `segue new` makes one."
    if asked and not sessions:
        nothing = f"No session is like that.{_hint(where, query)}"
    show_list(sessions, format, nothing)
    if more and format is None:
        say_more(len(sessions), "--limit and --all show more")


async def every(
    hub: Hub, principal: Principal, query: Query, most: int | None = None
) -> tuple[list[Session], bool]:
    """As many sessions as are wanted, and whether there are more."""
    found: list[Session] = []
    async for page in pages(hub, principal, query, most):
        found += page.sessions
    return found, page.next is not None


async def pages(
    hub: Hub, principal: Principal, query: Query, most: int | None = None
) -> AsyncIterator[Page]:
    """As many sessions as are wanted, page by page, each of them once."""
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        wanted = MOST if most is None else min(MOST, most - len(seen))
        page = await hub.sessions.list(principal, replace(query, limit=wanted), cursor)
        # One that moved meanwhile comes again.
        new = [session for session in page.sessions if session.id not in seen]
        seen.update(session.id for session in new)
        cursor = page.next
        if most is None:
            reading(len(seen), "sessions read", done=cursor is None)
        yield page._replace(sessions=new)
        if cursor is None or (most is not None and len(seen) >= most):
            return


def say_more(shown: int, hint: str) -> None:
    """That what was asked for is not all there is."""
    click.echo(click.style(f"… the first {shown}; {hint}", dim=True), err=True)


def show_list(sessions: list[Session], format: str | None, nothing: str) -> None:
    """Sessions in the format that was asked for, or for a person."""
    if format is not None:
        from segue.interfaces.cli.output.output_fields import session_fields

        write_rows(format, ((session, session_fields(session)) for session in sessions))
    elif not sessions:
        click.echo(nothing, err=True)
    elif sys.stdout.isatty():
        from segue.interfaces.cli.output.tables import session_lines

        show_text(session_lines(sessions))
    else:
        from segue.interfaces.cli.output.text import show_sessions

        show_sessions(sessions)


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@filtered
@click.option("--ranked", is_flag=True, help="Best match first instead of newest.")
@click.option("-n", "--limit", default=10, show_default=True, help="How many.")
@paged
@formatted
@located
def search_command(
    where: Where,
    query: Query,
    words: tuple[str, ...],
    ranked: bool,
    limit: int,
    format: str | None,
) -> None:
    """Find sessions in which every word occurs; quote a phrase.

    Example: segue search retry '"connection refused"'
    """
    query = replace(query, text=" ".join(words), limit=limit)
    find = _best if ranked else _newest
    found, more = where.read(lambda hub, principal: find(hub, principal, query))
    nothing = "" if found else f"Nothing found.{_hint(where, query)}"
    _show_found(found, format, nothing)
    if more and format is None:
        say_more(len(found), "--limit shows more")


async def _best(hub: Hub, principal: Principal, query: Query) -> tuple[list[SearchMatch], bool]:
    """As many as are wanted, and whether there are more."""
    results = await hub.sessions.search(
        principal, replace(query, limit=query.limit + 1), ranked=True
    )
    return results.matches[: query.limit], len(results.matches) > query.limit


async def _newest(hub: Hub, principal: Principal, query: Query) -> tuple[list[SearchMatch], bool]:
    found: dict[str, SearchMatch] = {}  # by session: one that moved meanwhile comes again
    cursor: str | None = None
    while True:
        page = replace(query, limit=min(MOST, query.limit - len(found)))
        results = await hub.sessions.search(principal, page, cursor)
        for each in results.matches:
            found.setdefault(each.session.id, each)
        cursor = results.next
        if cursor is None or len(found) >= query.limit:
            return list(found.values()), cursor is not None


def _hint(where: Where, query: Query) -> str:
    """Where else to look for what was not found."""
    if query.source is not None:
        names = [row["name"] for row in where.read(_sources)]
        if query.source not in names:
            return f" There is no source {query.source!r} here, but: {', '.join(names)}."
    return " --archived looks among the archived ones too." if query.archived == "exclude" else ""


def _show_found(found: list[SearchMatch], format: str | None, nothing: str) -> None:
    if format is not None:
        from segue.interfaces.cli.output.output_fields import found_fields

        write_rows(format, ((each.session, found_fields(each)) for each in found))
    elif not found:
        click.echo(nothing, err=True)
    elif sys.stdout.isatty():
        from segue.interfaces.cli.output.tables import session_lines

        show_text(session_lines([each.session for each in found], found))
    else:
        from segue.interfaces.cli.output.text import show_found

        show_found(found)


@click.command("sources")
@formatted
@located
def sources_command(where: Where, format: str | None) -> None:
    """List where sessions come from: the store, and the tools whose own files are read in place.

    Example: segue sources
    """
    rows = where.read(_sources)
    if format is not None:
        write_rows(format, ((row, row) for row in rows))
        return
    for row in rows:
        kept = "segue's own store" if row["kind"] == "store" else "read in place"
        click.echo(f"{row['name']:<10} {kept:<20} changes: {', '.join(row['can']) or 'none'}")


async def _sources(hub: Hub, principal: Principal) -> list[dict[str, Any]]:
    can = ["archive", "delete", "fork", "tag", "title", "trash"]
    store = {"name": "segue", "kind": "store", "can": can}
    mine = [source for source in hub.sources if source.workspace == principal.workspace]
    return [
        store,
        *({"name": each.name, "kind": "source", "can": sorted(each.can)} for each in mine),
    ]

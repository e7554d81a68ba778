"""List and search sessions: `segue list`, `search`, `sources`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from segue.hub import tools
from segue.interfaces.cli.arguments import cwd_option
from segue.interfaces.cli.durations import TimeType
from segue.interfaces.cli.output.formats import format_option, write_rows
from segue.interfaces.cli.output.pager import pager_option, show_text
from segue.interfaces.cli.output.progress import show_count
from segue.interfaces.cli.target import Target, source_option, target_options
from segue.model.lifecycle import STATUSES, Status
from segue.model.query import Order, Query

if TYPE_CHECKING:
    from segue.hub import Hub, SearchMatch
    from segue.hub.sessions.pagination import Page
    from segue.model.principal import Principal
    from segue.model.session import Session

F = TypeVar("F", bound=Callable[..., Any])
MAX_PAGE_SIZE = 1000
_STORE_EDITS = ["archive", "delete", "fork", "tag", "title", "trash"]


def filter_options(command: F, *, counts_archived: bool = False) -> F:
    """Add the options that filter lists; the command receives them as `query`.

    `counts_archived` says that archived sessions pass unless --no-archived is given.
    """

    @wraps(command)
    def wrapped(
        *args: Any,
        cwd: str | None,
        worktrees: bool,
        tag: str | None,
        statuses: tuple[Status, ...],
        source: str | None,
        since: int | None,
        until: int | None,
        branch: str | None,
        model: str | None,
        project: str | None,
        archived: bool,
        only_archived: bool,
        **kwargs: Any,
    ) -> Any:
        if worktrees and cwd is None:
            raise click.UsageError("--worktrees needs --cwd, as in --cwd . --worktrees")
        if since is not None and until is not None and since >= until:
            raise click.UsageError("--since must be an earlier time than --until")
        query = Query(
            cwd=None if cwd is None else os.path.abspath(cwd),
            worktrees=worktrees,
            tag=tag,
            statuses=statuses,
            source=source,
            active_after=since,
            active_before=until,
            branch=branch,
            model=model,
            project=project,
            archived="only" if only_archived else "include" if archived else "exclude",
        )
        return command(*args, query=query, **kwargs)

    options = [
        cwd_option("Only sessions of this directory."),
        click.option(
            "--worktrees", is_flag=True, help="With --cwd: also its repository's worktrees."
        ),
        click.option("--tag", help="Only sessions with this tag."),
        click.option(
            "--status",
            "statuses",
            multiple=True,
            type=click.Choice(STATUSES),
            help="Only sessions with this status. Repeatable.",
        ),
        source_option,
        click.option(
            "--since",
            type=TimeType(),
            help="Only sessions active since: 7d, yesterday, 2025-01-31 …",
        ),
        click.option(
            "--until",
            type=TimeType(end_of_day=True),
            help="Only sessions last active before: 7d, or the end of 2025-01-31 …",
        ),
        click.option("--branch", help="Only sessions of this git branch."),
        click.option("--model", help="Only sessions that used this model; a part is enough."),
        click.option(
            "--project", metavar="NAME", help="Only sessions of directories with this name."
        ),
        click.option(
            "--archived/--no-archived", default=True, help="Count archived sessions, or not."
        )
        if counts_archived
        else click.option("--archived", is_flag=True, help="Include archived sessions."),
        click.option("--only-archived", is_flag=True, help="Only archived sessions."),
    ]
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # the same command, with `query` filled in


@click.command("list")
@filter_options
@click.option(
    "--order",
    type=click.Choice(["active", "created"]),
    default="active",
    show_default=True,
    help="Sort by last activity or by creation.",
)
@click.option("--reverse", is_flag=True, help="Oldest first.")
@click.option("-n", "--limit", default=20, show_default=True, help="How many sessions.")
@click.option("--all", "everything", is_flag=True, help="All sessions.")
@pager_option
@format_option
@target_options
def list_command(
    target: Target,
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
    max_count = None if everything else limit
    with target.reader() as reader:
        sessions, has_more = reader(
            lambda hub, principal: list_all(hub, principal, query, max_count)
        )
        empty_message = "" if sessions or format else reader(partial(_empty_message, query))
        show_list(sessions, format, empty_message)
        if has_more:
            total = reader(lambda hub, principal: hub.sessions.count(principal, query))
            show_more_hint(len(sessions), total, "sessions", "use --limit or --all")
        if format is None:
            _show_unreadable_hint(reader(partial(_count_unreadable, query.source)))


async def _count_unreadable(source: str | None, hub: Hub, principal: Principal) -> int:
    return await hub.sessions.count_unreadable(principal, source)


def _show_unreadable_hint(count: int) -> None:
    """Print how many files or sessions are missing from a list because of damage."""
    if count:
        noun = "file or session" if count == 1 else "files or sessions"
        message = f"{count:,} {noun} could not be read; `segue doctor` says which, and why"
        click.echo(click.style(message, dim=True), err=True)


async def list_all(
    hub: Hub, principal: Principal, query: Query, max_count: int | None = None
) -> tuple[list[Session], bool]:
    """Return up to `max_count` sessions, and whether there are more."""
    sessions: list[Session] = []
    async for page in list_pages(hub, principal, query, max_count):
        sessions += page.sessions
    return sessions, page.next is not None


async def list_pages(
    hub: Hub, principal: Principal, query: Query, max_count: int | None = None
) -> AsyncIterator[Page]:
    """Yield up to `max_count` sessions in pages, each session once."""
    listed_ids: set[str] = set()
    cursor: str | None = None
    while True:
        limit = MAX_PAGE_SIZE
        if max_count is not None:
            limit = min(MAX_PAGE_SIZE, max_count - len(listed_ids))
        page = await hub.sessions.list(principal, replace(query, limit=limit), cursor)
        # A session that becomes active while pages are read is listed again.
        new = [session for session in page.sessions if session.id not in listed_ids]
        listed_ids.update(session.id for session in new)
        cursor = page.next
        if max_count is None:
            show_count(len(listed_ids), "sessions read", done=cursor is None)
        yield page._replace(sessions=new)
        if cursor is None or (max_count is not None and len(listed_ids) >= max_count):
            return


def show_more_hint(count: int, total: int | None, noun: str, hint: str) -> None:
    """Print how many rows are left out of how many; `total` is None if they are very many."""
    rest = "more" if total is None else f"the other {total - count:,}"
    of = f"more than {MAX_PAGE_SIZE:,}" if total is None else f"{total:,}"
    click.echo(click.style(f"… {count:,} of {of} {noun}; {hint} for {rest}", dim=True), err=True)


def show_list(sessions: list[Session], format: str | None, empty_message: str) -> None:
    """Print sessions in a format, or for people."""
    if format is not None:
        from segue.interfaces.cli.output.output_fields import session_fields

        write_rows(format, ((session, session_fields(session)) for session in sessions))
    elif not sessions:
        click.echo(empty_message, err=True)
    elif sys.stdout.isatty():
        from segue.interfaces.cli.output.tables import session_table

        show_text(session_table(sessions))
    else:
        from segue.interfaces.cli.output.text import show_sessions

        show_sessions(sessions)


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@filter_options
@click.option("--ranked", is_flag=True, help="Best match first instead of newest.")
@click.option("-n", "--limit", default=10, show_default=True, help="How many sessions.")
@pager_option
@format_option
@target_options
def search_command(
    target: Target,
    query: Query,
    words: tuple[str, ...],
    ranked: bool,
    limit: int,
    format: str | None,
) -> None:
    """Search for sessions that contain all words; quote a phrase.

    Example: segue search retry '"connection refused"'
    """
    query = replace(query, text=" ".join(words), limit=limit)
    search = _search_ranked if ranked else _search_newest
    with target.reader() as reader:
        matches, has_more, corrected = reader(lambda hub, principal: search(hub, principal, query))
        empty_message = "" if matches or format else reader(partial(_empty_message, query))
        if corrected is not None:
            message = f"No sessions match {query.text!r}. Showing matches of {corrected!r}."
            click.echo(message, err=True)
        _show_matches(matches, format, empty_message)
        if has_more or (matches and format is None and sys.stdout.isatty()):
            searched = replace(query, text=corrected or query.text)
            counts = reader(partial(_count_matches, searched))
            _show_match_count(len(matches), *counts, has_more=has_more)


async def _count_matches(
    query: Query, hub: Hub, principal: Principal
) -> tuple[int | None, int | None]:
    """Return how many sessions match, and of how many; None is very many."""
    matching = await hub.sessions.count(principal, query)
    return matching, await hub.sessions.count(principal, replace(query, text=None))


def _show_match_count(
    listed: int, matching: int | None, total: int | None, *, has_more: bool
) -> None:
    """Print how many sessions match, and how many of them are left out."""
    many = f"more than {MAX_PAGE_SIZE:,}"
    counts = [many if count is None else f"{count:,}" for count in (matching, total)]
    line = f"{counts[0]} of {counts[1]} sessions match"
    if has_more:
        rest = "more" if matching is None else f"the other {matching - listed:,}"
        line = f"… {line}; use --limit for {rest}"
    click.echo(click.style(line, dim=True), err=True)


async def _search_ranked(
    hub: Hub, principal: Principal, query: Query
) -> tuple[list[SearchMatch], bool, str | None]:
    """Return the best matches, whether there are more, and the corrected text, if any."""
    results = await hub.sessions.search(
        principal, replace(query, limit=query.limit + 1), ranked=True
    )
    has_more = len(results.matches) > query.limit
    return results.matches[: query.limit], has_more, results.corrected


async def _search_newest(
    hub: Hub, principal: Principal, query: Query
) -> tuple[list[SearchMatch], bool, str | None]:
    """Return the newest matches, whether there are more, and the corrected text, if any."""
    # By session: one that becomes active while pages are read matches again.
    matches: dict[str, SearchMatch] = {}
    copies: dict[str, list[Session]] = {}  # may be on an earlier page than their originals
    cursor = corrected = None
    while True:
        page_size = min(MAX_PAGE_SIZE, query.limit - len(matches))
        page_query = replace(query, text=corrected or query.text, limit=page_size)
        results = await hub.sessions.search(principal, page_query, cursor)
        corrected = results.corrected or corrected
        for match in results.matches:
            matches.setdefault(match.session.id, match)
        for id, forks in results.copies.items():
            copies.setdefault(id, []).extend(forks)
        cursor = results.next
        if cursor is None or len(matches) >= query.limit:
            page_matches = [
                match._replace(copies=copies.get(id, ())) for id, match in matches.items()
            ]
            return page_matches, cursor is not None, corrected


async def _empty_message(query: Query, hub: Hub, principal: Principal) -> str:
    """Return why a list may be empty, and what to try."""
    plain = Query(order=query.order, descending=query.descending, limit=query.limit)
    if query == plain:
        return f"No sessions. {await _searched_sources(hub, principal)}"
    message = "No sessions match." if query.text else "No sessions match these filters."
    if query.source is not None:
        names = [row["name"] for row in await _list_sources(hub, principal)]
        if query.source not in names:
            return f"{message} There are no sessions of {query.source} here; see `segue sources`."
    if query.cwd is not None and not os.path.isdir(query.cwd):
        return f"{message} There is no directory {query.cwd}."
    any_session = Query(archived="include", limit=1)
    if not (await hub.sessions.list(principal, any_session)).sessions:
        return f"No sessions. {await _searched_sources(hub, principal)}"
    archived = " --archived includes archived sessions." if query.archived == "exclude" else ""
    return f"{message}{archived}"


async def _searched_sources(hub: Hub, principal: Principal) -> str:
    """Return where sessions were looked for, and how to create one."""
    from segue.interfaces.cli.output.text import tilde
    from segue.model.principal import LOCAL

    store = f"segue's store in {tilde(str(hub.data_dir))}"
    if (workspace := principal.workspace) != LOCAL.workspace:
        return (
            f"Looked in workspace {workspace!r} of {store}. Other tools' sessions are only in"
            f" workspace {LOCAL.workspace!r}.\nCreate one with `segue --workspace {workspace} new`."
        )
    opened = {row["name"] for row in await _list_sources(hub, principal)}
    searched = [store]
    absent: list[str] = []
    for tool in tools.all_tools():
        home = f"{tool.label} ({tilde(tool.home())})"
        (searched if tool.name in opened else absent).append(home)
    looked = f"Looked in {', '.join(searched)}."
    unused = f"\nNot used here, or not selected: {', '.join(absent)}." if absent else ""
    return f"{looked}{unused}\nCreate one with `segue new` or `segue prompt new TEXT`."


def _show_matches(matches: list[SearchMatch], format: str | None, empty_message: str) -> None:
    if format is not None:
        from segue.interfaces.cli.output.output_fields import match_fields

        write_rows(format, ((match.session, match_fields(match)) for match in matches))
    elif not matches:
        click.echo(empty_message, err=True)
    elif sys.stdout.isatty():
        from segue.interfaces.cli.output.tables import session_table

        show_text(session_table([match.session for match in matches], matches))
    else:
        from segue.interfaces.cli.output.text import show_matches

        show_matches(matches)


@click.command("sources")
@format_option
@target_options
def sources_command(target: Target, format: str | None) -> None:
    """List where sessions come from: segue's store, and tools whose files are read in place.

    The changes of a tool are those that the tool itself shows afterwards; some need its program.
    All other changes work, too: they are kept in segue's store.

    Example: segue sources
    """
    rows = target.read(_list_sources)
    if format is not None:
        write_rows(format, ((row, row) for row in rows))
        return
    for row in rows:
        kind = "segue's own store" if row["kind"] == "store" else "read in place"
        changes = ", ".join(row["can"])
        if row["can"] != _STORE_EDITS:
            changes = f"{changes}; others in segue's store" if changes else "in segue's store"
        click.echo(f"{row['name']:<10} {kind:<20} changes: {changes}")


async def _list_sources(hub: Hub, principal: Principal) -> list[dict[str, Any]]:
    return [
        {"name": "segue", "kind": "store", "can": _STORE_EDITS},
        *(
            {"name": source.name, "kind": "source", "can": sorted(source.edits)}
            for source in hub.sources
            if source.workspace == principal.workspace
        ),
    ]

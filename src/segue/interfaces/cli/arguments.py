"""The arguments SESSION and DIRECTORY, with shell completion."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

    from .target import Target

F = TypeVar("F", bound=Callable[..., Any])
MAX_COMPLETIONS = 30
_RECENT = re.compile(r"@([1-9][0-9]{0,3})?", re.ASCII)


def session_argument(command: F) -> F:
    """Add the argument SESSION: an id, an id prefix, a title, or `@` for the newest here."""
    return click.argument("session", shell_complete=complete_session)(command)


def optional_session_argument(command: F) -> F:
    """Add the argument SESSION, which may be left out."""
    return click.argument("session", required=False, shell_complete=complete_session)(command)


def session_arguments(command: F) -> F:
    """Add the argument SESSIONS: one or more of them."""
    argument = click.argument("sessions", nargs=-1, required=True, shell_complete=complete_session)
    return argument(command)


def file_or_session_argument(command: F) -> F:
    """Add the argument SESSION, which may also be the path of a file, and may be left out."""
    argument = click.argument("session", required=False, shell_complete=_complete_file_or_session)
    return argument(command)


def cwd_option(help: str, default: str | None = None) -> Callable[[F], F]:
    """Return the option `--cwd`: a directory, which may be on another machine."""
    return click.option(
        "--cwd",
        default=default,
        metavar="DIRECTORY",
        help=help,
        shell_complete=_complete_directory,
    )


async def find_session(
    hub: Hub, principal: Principal, name: str, *, trashed: bool = False
) -> Session:
    """Return the session that a person named: by an id, an id prefix, a title, or `@`.

    `@` is the newest session of the current directory, `@2` the second newest. Raises NotFound if
    no session matches, AmbiguousName if several do. With `trashed`, only the trash is searched.
    """
    recent = _RECENT.fullmatch(name)
    if recent is None:
        return await hub.sessions.resolve(principal, name, trashed=trashed)
    number = int(recent[1] or 1)
    sessions = await _recent_sessions(hub, principal, number, trashed=trashed)
    if len(sessions) >= number:
        return sessions[number - 1]
    from segue.model.errors import NotFound

    where = f"{'in the trash ' if trashed else ''}of {os.getcwd()}"
    if not sessions:
        raise NotFound(f"there is no session {where}; `segue list` shows those of all directories")
    raise NotFound(
        f"there is no {name}: only {len(sessions)} session{'s' * (len(sessions) > 1)} {where}"
    )


async def _recent_sessions(
    hub: Hub, principal: Principal, limit: int, *, trashed: bool = False
) -> list[Session]:
    """Return the newest sessions of the current directory.

    If there is none, return those of its repository, such as in a directory below its root.
    """
    from segue.model.query import Query

    query = Query(cwd=os.getcwd(), trash=trashed, limit=limit)
    page = await hub.sessions.list(principal, query)
    if not page.sessions:
        from msgspec.structs import replace

        page = await hub.sessions.list(principal, replace(query, worktrees=True))
    return page.sessions


def session_or_newest(target: Target, name: str | None, action: str) -> str:
    """Return the name of a session, or without one the id of the newest session here.

    If this directory has none, the user picks a session for the `action` in the terminal.
    """
    if name is not None:
        return name
    sessions = target.read(lambda hub, principal: _recent_sessions(hub, principal, 1))
    if sessions:
        from .output.text import title_text

        session = sessions[0]
        title = title_text(session)
        if sys.stderr.isatty():
            click.echo(click.style(f"{session.id[:13]}  {title}", dim=True), err=True)
        return session.id
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or sys.platform == "win32":
        return "@"  # the error says that there is none
    from .picker.screen import choose_session

    picked = choose_session(target, action)
    if picked is None:
        raise click.Abort
    return picked.id


async def open_session(hub: Hub, principal: Principal, name: str) -> Session:
    """Return the session that a person named, after pulling new messages from its source."""
    session = await find_session(hub, principal, name)
    await hub.sync.ensure_current(principal, session.id)
    return await hub.sessions.get(principal, session.id)


def _complete_directory(
    context: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(prefix, type="dir")]


def _complete_file_or_session(
    context: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    sessions = complete_session(context, parameter, prefix) if prefix else []
    # bash discards the completions that precede a file completion.
    return [CompletionItem(prefix, type="file"), *sessions]


def complete_session(
    context: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Return the ids of sessions, each with its title.

    These are sessions whose id starts with `prefix` or whose title contains it. An empty prefix
    gives the latest sessions.
    """
    from click.shell_completion import CompletionItem

    from segue.model import clock
    from segue.model.errors import SegueError

    from .durations import age
    from .output.text import title_text
    from .target import Target

    options = context.params
    try:
        target = Target(
            options.get("data_dir_option"),
            options.get("workspace") or "local",
            options.get("database_url"),
            options.get("sources"),
        )
        sessions = _find_sessions(target, prefix, trashed=context.info_name == "restore")
    except SegueError:
        return []  # an error message would end up in the line that is being typed
    now = clock.now()
    return [
        CompletionItem(
            session.id,
            help=f"{title_text(session)} ({age(session.active_at, now)})",
        )
        for session in sessions
    ]


def _find_titles(target: Target, prefix: str, *, trashed: bool) -> list[Session]:
    """Return the newest sessions whose title contains a text."""
    from segue.model import search_text
    from segue.model.query import Query

    phrase = "-".join(search_text.tokens(prefix))  # the last word may be incomplete
    if not phrase:
        return []
    query = Query(text=phrase, limit=MAX_COMPLETIONS, trash=trashed)
    page = target.read(lambda hub, principal: hub.sessions.list(principal, query))
    words = prefix.casefold()
    return [session for session in page.sessions if words in (session.title or "").casefold()]


def _find_sessions(target: Target, prefix: str, *, trashed: bool) -> list[Session]:
    from segue.model import ids
    from segue.model.query import Query

    if not prefix:
        query = Query(limit=MAX_COMPLETIONS, trash=trashed)
        return list(
            target.read(lambda hub, principal: hub.sessions.list(principal, query)).sessions
        )
    id_range = ids.prefix_range(prefix, "sesn")
    if id_range is None:
        return _find_titles(target, prefix, trashed=trashed)
    sessions = target.read(lambda hub, principal: hub.sessions.in_id_range(principal, *id_range))
    return [session for session in sessions if (session.state == "trashed") == trashed]

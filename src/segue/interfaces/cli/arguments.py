"""The arguments SESSION and DIRECTORY, with shell completion."""

from __future__ import annotations

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


def session_argument(command: F) -> F:
    """Add the argument SESSION: an id, an id prefix or a title."""
    return click.argument("session", shell_complete=_complete_session)(command)


def optional_session_argument(command: F) -> F:
    """Add the argument SESSION, which may be left out."""
    return click.argument("session", required=False, shell_complete=_complete_session)(command)


def session_arguments(command: F) -> F:
    """Add the argument SESSIONS: one or more of them."""
    argument = click.argument("sessions", nargs=-1, required=True, shell_complete=_complete_session)
    return argument(command)


def file_or_session_argument(command: F) -> F:
    """Add the argument SESSION, which may also be the path of a file."""
    return click.argument("session", shell_complete=_complete_file_or_session)(command)


def cwd_option(help: str, default: str | None = None) -> Callable[[F], F]:
    """Return the option `--cwd`: a directory, which may be on another machine."""
    return click.option(
        "--cwd",
        default=default,
        metavar="DIRECTORY",
        help=help,
        shell_complete=_complete_directory,
    )


async def open_session(hub: Hub, principal: Principal, name: str) -> Session:
    """Return the session that a person named, after pulling new messages from its source."""
    session = await hub.sessions.resolve(principal, name)
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

    sessions = _complete_session(context, parameter, prefix) if prefix else []
    # bash discards the completions that precede a file completion.
    return [CompletionItem(prefix, type="file"), *sessions]


def _complete_session(
    context: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Return the session ids that start with `prefix`, or the latest ones if it is empty."""
    from click.shell_completion import CompletionItem

    from segue.model import clock
    from segue.model.errors import SegueError

    from .durations import age
    from .output.text import one_line
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
            help=f"{one_line(session.title or '(untitled)')} ({age(session.active_at, now)})",
        )
        for session in sessions
    ]


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
        return []
    sessions = target.read(lambda hub, principal: hub.sessions.in_id_range(principal, *id_range))
    return [session for session in sessions if (session.state == "trashed") == trashed]

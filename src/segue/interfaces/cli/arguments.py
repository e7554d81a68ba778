"""The argument SESSION, and directories, with completion in the shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

F = TypeVar("F", bound=Callable[..., Any])


def session_argument(command: F) -> F:
    """One session: an id, the beginning of one, or a title."""
    return click.argument("session", shell_complete=_complete)(command)


def session_arguments(command: F) -> F:
    """One or more of them."""
    argument = click.argument("sessions", nargs=-1, required=True, shell_complete=_complete)
    return argument(command)


def file_or_session_argument(command: F) -> F:
    """One session, or a file that holds one."""
    return click.argument("session", shell_complete=_complete_or_file)(command)


def cwd_option(help: str, default: str | None = None) -> Callable[[F], F]:
    """`--cwd`: a directory, which need not be here."""
    return click.option(
        "--cwd",
        default=default,
        metavar="DIRECTORY",
        help=help,
        shell_complete=lambda context, parameter, begun: [CompletionItem(begun, type="dir")],
    )


def _complete_or_file(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    sessions = _complete(context, parameter, begun) if begun else []
    return [CompletionItem(begun, type="file"), *sessions]  # for files, bash forgets what it has


def _complete(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Ids that begin so, with their titles and ages; at first the latest."""
    from segue.model import clock, ids
    from segue.model.errors import SegueError
    from segue.model.query import Query

    from .durations import age
    from .main import Where
    from .output.text import one_line

    options = context.params
    try:
        where = Where(
            options.get("data_dir_option"),
            options.get("workspace") or "local",
            options.get("database_url"),
            options.get("sources"),
        )
        bounds = ids.prefix_range(begun, "sesn")
        trash = context.info_name == "restore"
        if bounds is not None:
            near = where.read(lambda hub, who: hub.sessions.in_id_range(who, *bounds))
            found = [session for session in near if (session.state == "trashed") == trash]
        elif not begun:
            query = Query(limit=30, trash=trash)
            found = where.read(lambda hub, who: hub.sessions.list(who, query)).sessions
        else:
            return []
    except SegueError:
        return []  # a shell that is being typed into has no place for errors
    now = clock.now()
    return [
        CompletionItem(
            each.id, help=f"{one_line(each.title or '(untitled)')} ({age(each.active_at, now)})"
        )
        for each in found
    ]


async def open_session(hub: Hub, principal: Principal, name: str) -> Session:
    """Return the session that a person named, with what its tool has added to it since."""
    session = await hub.sessions.resolve(principal, name)
    await hub.sync.ensure_current(principal, session.id)
    return await hub.sessions.get(principal, session.id)

"""Find secrets in sessions, and remove them: `segue secrets scan`, `segue secrets redact`."""

from __future__ import annotations

import sys
from typing import Any

import click

from segue.hub import Hub
from segue.hub.sync.secret_scan import find_secrets
from segue.interfaces.cli.arguments import open_session, session_argument
from segue.interfaces.cli.commands.list import filter_options, list_all
from segue.interfaces.cli.group import Group
from segue.interfaces.cli.output.formats import format_option, write_rows
from segue.interfaces.cli.output.progress import show_count
from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.target import Target, target_options
from segue.model import clock
from segue.model.errors import InvalidInput
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

_LEFT = """\
Not undone by this: exports, forks, share links that were read, backups of the store, logs, and \
the tool's own files. Revoke a secret that has left this machine."""


@click.group("secrets", cls=Group)
def secrets_command() -> None:
    """Find keys, tokens and passwords in sessions, and remove them.

    Example: segue secrets scan --since 30d
    """


@secrets_command.command("scan")
@filter_options
@format_option
@target_options
def scan(target: Target, query: Query, format: str | None) -> None:
    """List the secrets in all sessions: where they are, their tool, project and age.

    The values are masked. The exit code is 1 if there are secrets.

    \b
    Example: segue secrets scan
             segue secrets scan --cwd . --source codex --format json
    """

    async def find(hub: Hub, principal: Principal) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        sessions, _ = await list_all(hub, principal, query)
        for number, session in enumerate(sessions, 1):
            for secret in await find_secrets(hub.history, principal, session.id):
                rows.append(_row(session, secret._asdict()))
            show_count(number, "sessions searched", done=number == len(sessions))
        return rows

    rows = target.run(find)
    if format is not None:
        write_rows(format, ((row, row) for row in rows))
    else:
        _show(rows)
    if rows:
        raise SystemExit(1)


def _row(session: Session, secret: dict[str, Any]) -> dict[str, Any]:
    return {
        "session": session.id,
        "source": session.source,
        "directory": session.cwd,
        "event": secret["seq"],
        "at": clock.to_rfc3339(secret["at"]),
        "age_days": max(0, clock.now() - secret["at"]) // clock.DAY,
        "kind": secret["kind"],
        "mask": secret["mask"],
        "thread": secret["thread"],
    }


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("No secrets.", err=True)
        return
    previous = None
    for row in rows:
        if row["session"] != previous:
            previous = row["session"]
            click.echo(one_line(f"{row['session']}  {row['source']}  {row['directory']}"))
        age = f"{row['age_days']}d"
        click.echo(one_line(f"  event {row['event']}  {age}  {row['kind']}  {row['mask']}"))
    sessions = len({row["session"] for row in rows})
    click.echo(f"{len(rows)} secrets in {sessions} sessions.", err=True)


@secrets_command.command("redact")
@session_argument
@click.option("--in-place", is_flag=True, help="Change the session itself; only segue's own.")
@click.option("--yes", is_flag=True, help="With --in-place: do not ask.")
@target_options
def redact(target: Target, session: str, in_place: bool, yes: bool) -> None:
    """Write a copy of a session with masks instead of secrets, and print its id.

    Originals of other tools are never changed. With --in-place, the history and the search index
    of one of segue's own sessions lose the secrets for good.

    \b
    Example: segue secrets redact 0198c2a4-77b1
             segue secrets redact 0198c2a4-77b1 --in-place
    """
    if yes and not in_place:
        raise InvalidInput("--yes is only for --in-place")

    async def find(hub: Hub, principal: Principal) -> tuple[Session, int]:
        resolved = await open_session(hub, principal, session)
        return resolved, len(await find_secrets(hub.history, principal, resolved.id))

    resolved, count = target.run(find)
    if not count:
        click.echo(f"Session {resolved.id} contains no secrets.", err=True)
        return
    if not in_place:
        copy = target.run(lambda hub, principal: hub.exchange.redact(principal, resolved.id))
        click.echo(copy.id)
        click.echo(f"Masked {count} secrets in the copy. The original has them still.", err=True)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput("nothing was changed; use --yes to replace the secrets")
        click.confirm(
            f"Replace {count} secrets in session {resolved.id}? This cannot be undone.", abort=True
        )
    replaced, remainder = target.run(
        lambda hub, principal: hub.exchange.redact_in_place(principal, resolved.id)
    )
    click.echo(f"Replaced {replaced} secrets in session {resolved.id}.", err=True)
    if remainder is not None:
        click.echo(f"The old text remains in {remainder}.", err=True)
    click.echo(_LEFT, err=True)

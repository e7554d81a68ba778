"""Export sessions to files, import and validate them: `segue export`, `import`, `validate`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Any

import click
from msgspec import UNSET

from segue.hub import Hub, tools
from segue.hub.sync.export_file import InvalidLine, is_export, read_lines, shorten
from segue.hub.sync.importer import ImportResult
from segue.hub.sync.secret_scan import find_secrets
from segue.hub.sync.validation import validate
from segue.interfaces.cli.arguments import (
    file_or_session_argument,
    find_session,
    open_session,
    session_argument,
)
from segue.interfaces.cli.import_all import import_all
from segue.interfaces.cli.output.formats import format_option, output_file, write_rows
from segue.interfaces.cli.output.progress import show_count
from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.target import Target, source_option, target_options
from segue.model import ids
from segue.model.errors import Conflict, InvalidInput, NotFound, SegueError
from segue.model.principal import Principal
from segue.model.session import OWN, Session

from .chat import show_new_session

_PROGRESS_EVENTS = 1_000  # between two updates of the count
_TOOLS = tools.writable_tools()
_FORMATS = ["segue", "jsonl", "markdown", "md", "html", *(tool.name for tool in _TOOLS)]
_TOOL_FORMATS = ", ".join(f"`{tool.name}`: for `{tool.resume_usage}`" for tool in _TOOLS)
_READABLE = ("markdown", "md", "html")
_FORMAT_BY_EXTENSION = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
}
_KNOWN_EXTENSIONS = ("", ".json", ".jsonl", ".ndjson", *_FORMAT_BY_EXTENSION)


@click.command("export")
@session_argument
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    help="`segue` (or `jsonl`): complete, for `segue import`. `markdown` (or `md`), `html`: to "
    f"read. {_TOOL_FORMATS}.  "
    "[default: from the file extension, else segue]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The file to write; `-` is standard output.",
)
@click.option(
    "--mask/--no-mask",
    default=None,
    help="Mask secrets such as keys and passwords.  [default: mask in Markdown and HTML only]",
)
@target_options
def export_command(
    target: Target, session: str, format_name: str | None, output: str | None, mask: bool | None
) -> None:
    """Export a session to a file: as a backup, to read, or to resume in another tool.

    Without -o it is written to standard output. A tool's format without -o writes it into that
    tool's own session directory. An existing file is replaced atomically. The secrets in the
    session are counted before it is written.

    \b
    Example: segue export 0198c2a4-77b1 -o session.jsonl
             segue export 0198c2a4-77b1 -o session.html
             segue export 0198c2a4-77b1 --format markdown | less
             segue export 0198c2a4-77b1 --format claude
    """
    extension = os.path.splitext(output or "")[1].lower()
    format = format_name or _FORMAT_BY_EXTENSION.get(extension, "segue")
    if format_name is None and extension not in _KNOWN_EXTENSIONS:
        raise InvalidInput(
            f"no format has the extension of {output}; name the file .jsonl, .md or .html, or pass"
            " --format"
        )

    async def export(hub: Hub, principal: Principal) -> None:
        resolved = await open_session(hub, principal, session)
        masked = mask if mask is not None else format in _READABLE
        secrets = await find_secrets(hub.history, principal, resolved.id)
        if secrets:
            show_secret_count(len(secrets), masked=masked)
        if (tool := tools.find_tool(format)) is not None and output is None:
            if masked:
                raise InvalidInput(f"--mask needs -o FILE, or use `segue resume --in {tool.name}`")
            await _export_to_tool(hub, principal, resolved, tool)
            return
        with output_file(output or "-") as write:
            async for chunk in _export_chunks(hub, principal, resolved, format, mask=masked):
                write(chunk)

    target.run(export)


async def _export_to_tool(
    hub: Hub, principal: Principal, session: Session, tool: tools.Tool
) -> None:
    try:
        click.echo((await hub.sync.write(principal, session.id, tool.name)).path)
    except Conflict as error:
        hint = "use -o FILE to write another file"
        if session.owner not in (OWN, tool.name):
            hint = (
                f"`segue resume {session.id} --in {tool.name}` continues it in {tool.label}, and"
                " -o FILE writes a file"
            )
        raise Conflict(f"{error.message}; {hint}") from None
    command = " ".join(tool.resume_command(session, local=True).arguments)
    click.echo(f"Resume it with: {command}", err=True)


def show_secret_count(count: int, *, masked: bool) -> None:
    """Print how many secrets an output contains, before it is written."""
    noun = "1 secret" if count == 1 else f"{count} secrets"
    hint = "masked; --no-mask writes the original" if masked else "not masked; --mask masks them"
    click.echo(f"The session contains {noun}: {hint}.", err=True)


async def _export_chunks(
    hub: Hub, principal: Principal, session: Session, format: str, *, mask: bool
) -> AsyncIterator[bytes]:
    """Yield a session in one of the formats, in chunks, since it may not fit into memory."""
    if format in _READABLE:
        from segue.render import documents
        from segue.render.reader import EventReader, MaskedReader
        from segue.secrets.events import mask_session

        render = documents.html if format == "html" else documents.markdown
        history = await hub.history.as_ended(principal, session.id)
        reader: EventReader = MaskedReader(history) if mask else history
        session = mask_session(history.session) if mask else history.session
        async for text in render(reader, principal, session):
            yield text.encode()
        return
    if tools.find_tool(format) is None:
        lines = hub.exchange.export(principal, session.id, mask=mask)
    else:
        lines = hub.sync.transcript(principal, session.id, format, mask=mask)
    if mask and tools.find_tool(format) is not None:
        lines = _masked_lines(lines)
    async for line in lines:
        yield line


async def _masked_lines(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a tool's transcript with masks instead of secrets.

    A secret may be split over answers that follow each other.
    """
    import json

    group: list[tuple[bytes, Any]] = []
    async for line in lines:
        value = json.loads(line)
        if group and not (_answer_blocks(value) and _answer_blocks(group[-1][1])):
            for masked in _masked_group(group):
                yield masked
            group = []
        group.append((line, value))
    for masked in _masked_group(group):
        yield masked


def _answer_blocks(value: Any) -> list[dict[str, Any]]:
    """Return the blocks of an answer that is text only; none for another line."""
    message = value.get("message") if isinstance(value, dict) else None
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return []
    blocks = message.get("content")
    if not isinstance(blocks, list):
        return []
    is_text = all(isinstance(b, dict) and isinstance(b.get("text"), str) for b in blocks)
    return blocks if is_text else []


def _masked_group(group: list[tuple[bytes, Any]]) -> Iterator[bytes]:
    from segue.secrets import mask_parts

    blocks = [block for _, value in group for block in _answer_blocks(value)]
    changed: set[int] = set()
    if len(blocks) > 1:
        texts = mask_parts([block["text"] for block in blocks]).texts
        for block, text in zip(blocks, texts, strict=True):
            if block["text"] != text:
                block["text"] = text
                changed.add(id(block))
    for line, value in group:
        is_changed = any(id(block) in changed for block in _answer_blocks(value))
        yield _masked_line(line, value, changed=is_changed)


def _masked_line(line: bytes, value: Any, *, changed: bool) -> bytes:
    """Return a line of a transcript with its value, masked; the line itself if nothing changed."""
    import json

    from segue.secrets import mask_value

    value, count = mask_value(value)
    return json.dumps(value, ensure_ascii=False).encode() + b"\n" if count or changed else line


@click.command("import")
@file_or_session_argument
@click.option("--all", "everything", is_flag=True, help="Import all sessions of other tools.")
@click.option("--follow", is_flag=True, help="With --all: import what is added, too, until Ctrl-C.")
@source_option
@click.option("--new-id", is_flag=True, help="Import a file as a new session with a new id.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIRECTORY",
    help="The directory in which the session of a file continues. Without it, tools ask before "
    "they read the directory that the file names.",
)
@format_option
@target_options
def import_command(
    target: Target,
    session: str | None,
    everything: bool,
    follow: bool,
    source: str | None,
    new_id: bool,
    cwd: str | None,
    format: str | None,
) -> None:
    """Import a session from an export file or from another tool, and print its id.

    SESSION is a file (`-` reads standard input), or a session of another tool: its id, an id
    prefix or a title. Importing such a session again adds its new messages.

    With --all, the sessions of all tools are copied into segue's store, where the cleanup of a
    tool does not reach them: Claude Code deletes files after 30 days.

    \b
    Example: segue import session.jsonl
             segue import session.jsonl --cwd .
             segue import 5f1c9a52
             segue import --all --follow
    """
    if everything:
        if session is not None or new_id or cwd is not None:
            raise InvalidInput("--all takes no SESSION, no --new-id and no --cwd")
        import_all(target, source, format, follow=follow)
        return
    for option, value in (("--follow", follow), ("--source", source)):
        if value:
            raise InvalidInput(f"{option} is only for --all")
    if session is None:
        raise click.UsageError(
            "Missing argument 'SESSION' (or the option --all).", click.get_current_context()
        )

    async def import_session(hub: Hub, principal: Principal) -> Session:
        directory = None if cwd is None else os.path.abspath(cwd)
        imported = await _import_file(hub, principal, session, new_id=new_id, cwd=directory)
        if imported is not None:
            return imported
        if new_id or cwd is not None:
            option = "--new-id" if new_id else "--cwd"
            raise InvalidInput(
                f"{option} is only for files of `segue export`; import this session, then fork it"
            )
        return await _import_from_tool(hub, principal, session)

    show_new_session(target.run(import_session), format)


async def _import_file(
    hub: Hub, principal: Principal, path: str, *, new_id: bool, cwd: str | None
) -> Session | None:
    """Import a file or stream of `segue export`; return None if `path` is not one.

    Raises InvalidInput for a directory, an empty file, or an id that is already in use.
    """
    is_path = os.sep in path or path in (os.curdir, os.pardir)
    if is_path and os.path.isdir(path):
        raise InvalidInput(f"{path} is a directory; pass a file in it")
    is_stream = _is_stream(path)
    if not is_stream and not os.path.isfile(path):
        return None
    with click.open_file(path, "rb") as file:
        lines = read_lines(file)
        first_line = next(lines, b"")
        if not first_line:
            raise InvalidInput(f"nothing to import: {path} is empty")
        # A stream can be read only once, so it must be an export.
        if not is_stream and not is_export(first_line):
            return None
        try:
            return await hub.exchange.import_session(
                principal, chain([first_line], lines), new_id=new_id, cwd=cwd
            )
        except Conflict as error:
            raise InvalidInput(
                f"{error.message}; delete it, or use --new-id to import the file as a new session"
            ) from None


def _is_stream(path: str) -> bool:
    """Return True for standard input, a pipe or a device."""
    return path == "-" or (
        os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    )


async def _import_from_tool(hub: Hub, principal: Principal, name: str) -> Session:
    """Import a transcript, or the session of a tool that `name` identifies.

    Each tool tries in turn. If none can read it, the error has what each of them says.
    """
    is_transcript = os.path.isfile(name) or name.endswith(".jsonl")
    resolved = name if is_transcript else await _resolve_id(hub, principal, name)
    if isinstance(resolved, Session):
        native_id = resolved.native_id or resolved.id
        return _report_import(await hub.sync.import_session(principal, native_id, resolved.source))
    failures: dict[str, SegueError] = {}
    for tool in tools.all_tools():
        try:
            return _report_import(await hub.sync.import_session(principal, resolved, tool.name))
        except (InvalidInput, NotFound) as error:
            failures[tool.label] = error
    raise _unknown_file(name, failures) if is_transcript else next(iter(failures.values()))


def _unknown_file(path: str, failures: dict[str, SegueError]) -> SegueError:
    """Return the error for a file that no tool can read: the formats, and why not."""
    if not os.path.isfile(path):
        return NotFound(f"there is no file {path}")
    reasons = [
        f"{label}: {error.message}"
        for label, error in failures.items()
        if isinstance(error, InvalidInput)
    ]
    formats = ", ".join(["`segue export`", *failures])
    reason_lines = "".join(f"\n  {reason}" for reason in reasons)
    return InvalidInput(
        f"{path} is in none of the formats that were tried: {formats}{reason_lines}"
    )


def _report_import(imported: ImportResult) -> Session:
    session, count = imported
    lines = "1 new line." if count == 1 else f"{count} new lines."
    click.echo(lines if count else "No new lines.", err=True)
    return session


async def _resolve_id(hub: Hub, principal: Principal, name: str) -> Session | str:
    """Return the session of a tool with this name, or an id that segue does not list."""
    try:
        session = await find_session(hub, principal, name)
        return session if tools.find_tool(session.source) is not None else session.id
    except NotFound:
        if id := ids.parse(name):
            return id
        hint = "; it is a directory" if os.path.isdir(name) else ""
        raise NotFound(f"no file and no session matches {name!r}{hint}") from None


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE…")
@format_option
def validate_command(files: tuple[str, ...], format: str | None) -> None:
    """Check files of `segue export` against the documented format, and name the first fault.

    `-` reads standard input. Nothing is imported. The exit code is 1 if a file is not valid.

    \b
    Example: segue validate session.jsonl
             segue export 0198c2a4-77b1 | segue validate -
    """
    checks = map(_validate_file, files)
    if format is None:
        rows = []
        for row in checks:
            rows.append(row)
            click.echo(one_line(_describe_check(row)), err=not row["valid"])
    else:
        rows = list(checks)
        write_rows(format, ((row, row) for row in rows))
    if not all(row["valid"] for row in rows):
        raise SystemExit(1)


def _validate_file(path: str) -> dict[str, Any]:
    """Return the result of a validation as a row."""
    row: dict[str, Any] = {"file": path, "valid": False}
    row |= dict.fromkeys(("version", "session", "events", "dangling"))
    row |= dict.fromkeys(("line", "path", "problem", "value"))
    count = 0

    def show_progress(events: int) -> None:
        nonlocal count
        count = events
        if events % _PROGRESS_EVENTS == 0:
            show_count(events, "events", done=False)

    try:
        with click.open_file(path, "rb") as file:
            return row | validate(read_lines(file), show_progress)._asdict() | {"valid": True}
    except InvalidLine as error:
        value = None if error.value is UNSET else error.value
        fault = {"line": error.line, "path": error.path or None, "value": value}
        return row | fault | {"problem": error.problem}
    except InvalidInput as error:
        return row | {"problem": error.message}
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    finally:
        show_count(count, "events", done=True)


def _describe_check(row: dict[str, Any]) -> str:
    """Return a sentence for people."""
    if row["valid"]:
        events = f"{row['events']} event{'' if row['events'] == 1 else 's'}"
        note = f", {row['dangling']} references lead nowhere" if row["dangling"] else ""
        return f"{row['file']}: valid, version {row['version']}, {events}{note}"
    where = "" if row["line"] is None else f"line {row['line']}: "
    field = "" if row["path"] is None else f"{row['path']}: "
    value_text = "" if row["value"] is None else f" ({shorten(row['value'])})"
    return f"{row['file']}: {where}{field}{row['problem']}{value_text}"

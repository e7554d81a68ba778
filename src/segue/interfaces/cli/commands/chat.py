"""Talk with an agent: `segue new`, `prompt`, `resume`."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.arguments import (
    complete_session,
    cwd_option,
    find_session,
    optional_session_argument,
    session_or_newest,
)
from segue.interfaces.cli.conversation.turns import (
    chat,
    run_turn,
    show_key_hint,
    show_stop_reason,
)
from segue.interfaces.cli.output.formats import format_option, write_value
from segue.interfaces.cli.target import Target, completions, target_options
from segue.model.errors import InvalidInput
from segue.model.session import OWN

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from segue.hub import Hub
    from segue.hub.sync.continuing import Continuation, Handoff
    from segue.hub.tools import Tool
    from segue.interfaces.cli.conversation.requests import OnPermission
    from segue.model.principal import Principal
    from segue.model.session import Session


@click.command("new")
@cwd_option("The working directory.  [default: the current directory]", default=".")
@click.option("--title", help="The title.  [default: from the first prompt]")
@click.option("--tag", help="A tag, for `segue list --tag`.")
@format_option
@target_options
def new_command(
    target: Target, cwd: str, title: str | None, tag: str | None, format: str | None
) -> None:
    """Create a session and print its id.

    Example: segue new --title "Fix the parser"
    """
    path = resolve_directory(cwd)
    session = target.run(
        lambda hub, principal: hub.editor.create(
            principal, cwd=path, title=title, tag=tag, origin="cli"
        )
    )
    show_new_session(session, format)


def resolve_directory(directory: str) -> str:
    """Return the absolute path; warn if it does not exist on this machine."""
    path = os.path.abspath(directory)
    if not os.path.isdir(path):
        click.echo(f"segue: warning: directory {path} does not exist on this machine", err=True)
    return path


def show_new_session(session: Session, format: str | None) -> None:
    """Print the id of a new session, or its fields with --format."""
    from segue.interfaces.cli.output.output_fields import session_fields

    if format is None:
        click.echo(session.id)
    else:
        write_value(format, session if format == "raw" else session_fields(session))


@click.command("prompt")
@click.argument("words", nargs=-1, metavar="[SESSION] TEXT", shell_complete=complete_session)
@click.option("--title", help="With `new`: the session's title.")
@click.option(
    "--on-permission",
    type=click.Choice(["deny", "wait", "fail"]),
    help="Instead of asking for a permission in the terminal: deny it, wait until another client"
    " answers, or cancel the turn.  [default without a terminal: deny]",
)
@target_options
def prompt_command(
    target: Target,
    words: tuple[str, ...],
    title: str | None,
    on_permission: OnPermission | None,
) -> None:
    """Send a prompt to a session and print the answer; `new` as SESSION creates one.

    Without SESSION, the newest session of this directory gets the prompt. `-` as TEXT reads the
    prompt from standard input. Ctrl-C cancels the turn. The exit code is 130 after Ctrl-C, and 1
    if the turn fails or stops before its end.

    \b
    Example: segue prompt new "What can you do?"
             segue prompt "And what else?"
    """
    from segue.interfaces.cli.output.text import one_line

    session, text = _session_and_text(words)
    prompt = sys.stdin.read() if text == "-" else text
    if not prompt.strip():
        raise InvalidInput("the prompt is empty; pass a TEXT, or `-` to read standard input")
    if title is not None and session != "new":
        raise InvalidInput(
            "--title is only for `new`; use `segue rename` for a session that exists"
        )
    if session is None:
        target.read(lambda hub, principal: _require_no_name(hub, principal, text))
    name = session_or_newest(target, session, "prompt")

    async def send(hub: Hub, principal: Principal) -> str:
        await show_key_hint(hub, principal)
        if name == "new":
            created = await hub.editor.create(principal, cwd=os.getcwd(), title=title, origin="cli")
            click.echo(click.style(created.id, dim=True), err=True)
            return await run_turn(hub, principal, created.id, prompt, on_permission)
        existing = await find_session(hub, principal, name)
        if session is None:
            named = f" ({one_line(existing.title)})" if existing.title else ""
            click.echo(click.style(f"To session {existing.id}{named}", dim=True), err=True)
        if (owner := await hub.sessions.owner(principal, existing.id)) is not None:
            await hub.turns.prepare_for_prompt(principal, existing.id)
            click.echo(f"Imported from {owner} into segue's store.", err=True)
        return await run_turn(hub, principal, existing.id, prompt, on_permission)

    if not show_stop_reason(target.run(send)):
        sys.exit(1)


def _session_and_text(words: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the session and the text of a prompt. The user may leave out the session."""
    if not words or words == ("new",):
        raise click.UsageError("Missing argument 'TEXT'.", click.get_current_context())
    if len(words) > 2:
        raise click.UsageError("Quote the TEXT: it is one argument.", click.get_current_context())
    return (None, words[0]) if len(words) == 1 else (words[0], words[1])


async def _require_no_name(hub: Hub, principal: Principal, text: str) -> None:
    """Raise InvalidInput if a prompt is the id of a session, whose text was forgotten."""
    from segue.model.errors import NotFound

    try:
        session = await hub.sessions.resolve(principal, text, titles=False)
    except NotFound:
        return
    raise InvalidInput(f"{text!r} is session {session.id}, but TEXT is missing")


def _complete_tool(
    context: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    from segue.hub.tools import all_tools

    names = [tool.name for tool in all_tools() if tool.writer() is not None]
    return completions([*names, OWN], prefix)


@click.command("resume")
@optional_session_argument
@click.option("--here", is_flag=True, help="Continue here, in a fork if another tool owns it.")
@click.option(
    "--in",
    "in_tool",
    metavar="TOOL",
    shell_complete=_complete_tool,
    help="Continue in another tool, such as codex or claude: with the whole conversation, in a "
    "new session of that tool. `segue` answers with a configured model.",
)
@click.option(
    "--model",
    help="With `--in segue`: the model that answers, with --compact the one that writes the "
    "summary, as PROVIDER:NAME.  [default: the configured one]",
)
@click.option(
    "--compact",
    is_flag=True,
    help="With --in: a summary that a model writes instead of the whole conversation, and the "
    "last turns.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="TURNS",
    help="With --compact: how many of the last turns stay whole.  [default: 3]",
)
@click.option(
    "--dry-run", is_flag=True, help="With --in: show what the tool cannot hold, and write nothing."
)
@click.option("--mask", is_flag=True, help="With --in: mask secrets in the new session.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIRECTORY",
    help="Start the tool in this directory, such as where a moved project is now.",
)
@format_option
@target_options
def resume_command(
    target: Target,
    session: str | None,
    here: bool,
    in_tool: str | None,
    model: str | None,
    compact: bool,
    keep: int | None,
    dry_run: bool,
    mask: bool,
    cwd: str | None,
    format: str | None,
) -> None:
    """Resume a session in its original tool, in another tool, or in segue.

    Without SESSION, the newest session of this directory is resumed. Another tool is started in
    the session's directory, or in that of --cwd; if it has deleted the session, segue first writes
    its copy back. segue's own sessions continue here, line by line, until Ctrl-D. The original of
    a session that continues in another tool stays as it is.

    \b
    Example: segue resume
             segue resume "fix the parser"
             segue resume "fix the parser" --in codex
             segue resume 0198c2a4-77b1 --in segue --model openai:gpt-5
    """
    only_with_in = {"--model": model, "--compact": compact, "--dry-run": dry_run}
    only_with_in |= {"--format": format, "--mask": mask}
    if in_tool is None and (unused := [name for name, value in only_with_in.items() if value]):
        raise InvalidInput(f"{unused[0]} is only for --in TOOL")
    if in_tool is not None and here:
        raise InvalidInput("use --here or --in, not both; `--in segue` continues here")
    if keep is not None and not compact:
        raise InvalidInput("--keep is only for --compact")
    name = session_or_newest(target, session, "resume")
    resolved = target.read(lambda hub, principal: find_session(hub, principal, name))
    directory = None if cwd is None else os.path.abspath(cwd)
    if in_tool is None:
        resume(target, resolved, here=here, cwd=directory)
        return
    resume_in(
        target,
        resolved,
        in_tool,
        model=None if compact else model,
        handoff=_handoff(keep, model) if compact else None,
        dry_run=dry_run,
        mask=mask,
        cwd=directory,
        format=format,
    )


def _handoff(keep: int | None, model: str | None) -> Handoff:
    from segue.hub.sync.continuing import Handoff

    return Handoff(model=model) if keep is None else Handoff(keep, model)


def resume(target: Target, session: Session, *, here: bool = False, cwd: str | None = None) -> None:
    """Resume a session, in the directory `cwd` instead of its own if there is one.

    Does not return if another program resumes it.
    """
    from msgspec.structs import replace

    from segue.hub.tools import deletes_resumed, find_tool
    from segue.interfaces.cli import external_tools

    owner = target.read(lambda hub, principal: hub.sessions.owner(principal, session.id))
    tool_name = target.read(lambda hub, principal: hub.sync.resuming_tool(principal, session))
    tool = None if here else find_tool(tool_name)
    if cwd is not None:
        if owner is None and tool_name is None and find_tool(session.source) is None:
            fork_command = f"segue fork {session.id[:13]} --cwd {shlex.quote(cwd)}"
            message = f"--cwd is for sessions of other tools; `{fork_command}` forks this one"
            raise InvalidInput(message)
        if tool is not None and tool.writer() is not None and cwd != session.cwd:
            _show_new_session_hint(tool, session, cwd)
        session = replace(session, cwd=cwd)
    if tool is not None:
        _require_program(target, tool, session)  # before anything is written
        if deletes_resumed(tool):
            _keep_copy(target, session, tool.label)
        command = tool.resume_command(session, local=True)
        external_tools.start(list(command.arguments), session)
    if not here and tool_name is None:
        _resume_restored(target, session, cwd)
    fork = owner is not None or tool_name is not None or cwd is not None
    target.run(lambda hub, principal: _chat_here(hub, principal, session, cwd, fork=fork))


def _show_new_session_hint(tool: Tool, session: Session, cwd: str) -> None:
    """Print what to do if a tool finds its sessions only in their own directories."""
    command = f"segue resume {session.id[:13]} --in {tool.name} --cwd {shlex.quote(cwd)}"
    message = f"If {tool.label} does not find the session there, `{command}` writes a new one."
    click.echo(message, err=True)


def _require_program(target: Target, tool: Tool, session: Session) -> None:
    """Raise InvalidInput unless a tool's program can start in a session's directory."""
    from segue.interfaces.cli.external_tools import require_program

    values = target.read(lambda hub, principal: hub.config.all(principal.workspace))
    require_program(tool, session, has_model="model" in values)


def _resume_restored(target: Target, session: Session, cwd: str | None) -> None:
    """Resume an imported session whose original its tool does not have: write it there first.

    Does not return if the tool starts. A tool in whose files segue cannot write sessions under
    their own ids gets a new session, and so does a tool that starts in `cwd`. Without
    the tool's program, the session continues here.
    """
    from segue.hub.tools import find_tool
    from segue.interfaces.cli import external_tools

    missing = target.read(lambda hub, principal: hub.sync.missing_original(principal, session))
    tool = None if missing is None else find_tool(missing.tool)
    if missing is None or tool is None:
        return
    problem = f"{tool.label} has deleted this session"
    if not missing.was_here:
        problem = f"{tool.label} does not have this session here: it was imported from a file"
    if (reason := external_tools.why_not_started(tool.program, session)) is not None:
        click.echo(f"{problem}, and {reason}.", err=True)
        click.echo("It continues here, in segue's copy.", err=True)
        if tool.writer() is not None:
            option = "" if os.path.isdir(session.cwd) else " --cwd DIRECTORY"
            command = f"segue resume {session.id[:13]} --in {tool.name}{option}"
            click.echo(f"To continue it in {tool.label}, use `{command}`.", err=True)
        return
    if cwd is not None or not tool.transcripts().can_write:
        if tool.writer() is not None:
            click.echo(f"{problem}.", err=True)
            resume_in(target, session, tool.name, cwd=cwd)
        return
    written = target.run(lambda hub, principal: hub.sync.write(principal, session.id, tool.name))
    click.echo(f"{problem}. Wrote it to {written.path}.", err=True)
    external_tools.start(list(tool.resume_command(session, local=True).arguments), session)


def _keep_copy(target: Target, session: Session, label: str) -> None:
    """Import a session before a tool starts that is known to delete resumed sessions."""
    if target.run(lambda hub, principal: hub.continuing.keep_copy(principal, session)):
        message = f"Imported into segue's store, since {label} may delete sessions that it resumes."
    else:
        message = f"Not imported: the store is read-only. {label} may delete the session."
    click.echo(message, err=True)


def resume_in(
    target: Target,
    session: Session,
    tool_name: str,
    *,
    model: str | None = None,
    handoff: Handoff | None = None,
    dry_run: bool = False,
    mask: bool = False,
    cwd: str | None = None,
    format: str | None = None,
) -> None:
    """Continue a session in another tool, after a report. Does not return if the tool starts."""
    from msgspec.structs import replace

    from segue.hub.tools import find_tool
    from segue.interfaces.cli import external_tools
    from segue.interfaces.cli.output.conversion_report import show_report

    _report_secrets(target, session, mask=mask)
    if dry_run:
        report = target.run(
            lambda hub, principal: hub.continuing.report(
                principal, session.id, tool_name, handoff=handoff
            )
        )
        show_report(report, format, to_stderr=False)
        return
    if (tool := find_tool(tool_name)) is not None:
        located = session if cwd is None else replace(session, cwd=cwd)
        _require_program(target, tool, located)  # before anything is written

    async def run(hub: Hub, principal: Principal) -> Continuation:
        continuation = await hub.continuing.continue_in(
            principal,
            session.id,
            tool_name,
            model=model,
            handoff=handoff,
            mask=mask,
            cwd=cwd,
            origin="cli",
        )
        show_report(continuation.report, format, to_stderr=format is None)
        if continuation.command is None:
            click.echo(f"Continuing in a fork: {continuation.session.id}", err=True)
            await chat(hub, principal, continuation.session)
        return continuation

    continuation = target.run(run)
    if continuation.command is not None:
        new = continuation.session if cwd is None else replace(continuation.session, cwd=cwd)
        external_tools.start(list(continuation.command.arguments), new)


def _report_secrets(target: Target, session: Session, *, mask: bool) -> None:
    """Print how many secrets a session contains, if it contains any."""
    from segue.hub.sync.secret_scan import find_secrets

    secrets = target.run(lambda hub, principal: find_secrets(hub.history, principal, session.id))
    if secrets:
        state = "masked" if mask else "not masked; --mask masks them"
        noun = "1 secret" if len(secrets) == 1 else f"{len(secrets)} secrets"
        click.echo(f"The session contains {noun}: {state}.", err=True)


async def _chat_here(
    hub: Hub, principal: Principal, session: Session, cwd: str | None, *, fork: bool
) -> None:
    """Chat in a session, or in a fork of it that a model answers."""
    if fork:
        session, _, _ = await hub.continuing.continue_in(
            principal, session.id, "segue", cwd=cwd, origin="cli"
        )
        click.echo(f"Continuing in a fork: {session.id}", err=True)
    await chat(hub, principal, session)

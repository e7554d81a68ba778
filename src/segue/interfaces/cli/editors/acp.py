"""Serve an editor over the Agent Client Protocol: `segue acp`."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.target import Target, target_options

if TYPE_CHECKING:
    from segue.interfaces.acp import ServedAgent

_COMMAND_PREFIX = "acp:"
MODEL_SET = """\
segue acp answers editors with the model {model}. To use another one:

    segue config set model PROVIDER:NAME\
"""
NO_MODEL = """\
segue acp answers editors. No model is configured, so the demo agent answers prompts; it needs no
key. To use a model, set its key in the environment and run:

    segue config set model anthropic:claude-sonnet-4-6\
"""


@click.command("acp")
@click.option(
    "--agent",
    metavar="NAME",
    help="The agent that answers, such as demo or model; acp:COMMAND for another ACP agent,"
    " acp+ws://HOST/acp or acp+http://HOST/acp for one elsewhere."
    "  [default: each session's own agent]",
)
@click.option("--setup", is_flag=True, help="Show which model is configured, and exit.")
@click.option("--login", is_flag=True, help="Run the other agent with these ARGS, and exit.")
@click.option(
    "--finish-turns",
    is_flag=True,
    help="When the editor closes the pipe, let the turns that it started finish first.",
)
@click.option("--verbose", is_flag=True, help="Log details on standard error.")
@click.argument("args", nargs=-1)
@target_options
def acp_command(
    target: Target,
    agent: str | None,
    setup: bool,
    login: bool,
    finish_turns: bool,
    verbose: bool,
    args: tuple[str, ...],
) -> None:
    """Speak the Agent Client Protocol on standard input and output, for an editor.

    Add this command to the editor's agent settings; the editor then lists, loads and continues
    every session in the store. Editors that offer another agent's login in a terminal run
    `segue acp --agent "acp:COMMAND" --login -- ARGS`.

    Example: segue acp --agent "acp:claude-agent-acp"
    """
    if setup:
        model = _configured_model(target)
        click.echo(NO_MODEL if model is None else MODEL_SET.format(model=model))
        return
    if login:
        _run_login(agent or "", args)
    if args:
        raise click.UsageError("ARGS are only for --login")
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="segue: %(levelname)s %(message)s")
    from segue.interfaces.acp import serve_stdio

    served_agent = None if agent is None else _served_agent(agent)
    if served_agent is not None and served_agent.only_own_sessions:
        source = click.get_current_context().get_parameter_source("sources")
        if source is click.core.ParameterSource.COMMANDLINE and target.sources != "none":
            served_agent = served_agent._replace(only_own_sessions=False)
        else:
            target.sources = "none"  # another machine gets local sessions only if this says so
    serve_stdio(
        lambda: target.open(lasting=True),
        target.principal,
        served_agent=served_agent,
        finish_turns=finish_turns,
    )


@click.command("acp-check", context_settings={"ignore_unknown_options": True})
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--version",
    "versions",
    type=click.Choice(["1", "2"]),
    multiple=True,
    help="Check this protocol version only.",
)
@click.option("--only", metavar="CHECK", multiple=True, help="Run CHECK, such as LIST or LIST-002.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait for an answer.")
@click.option("--prompt", metavar="TEXT", default=None, help="A prompt that is answered soon.")
@click.option("--long-prompt", metavar="TEXT", help="A prompt whose turn takes several seconds.")
@click.option("--verbose", is_flag=True, help="Log the agent's error output.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def acp_check_command(
    command: tuple[str, ...],
    as_json: bool,
    versions: tuple[str, ...],
    only: tuple[str, ...],
    timeout: float,
    prompt: str | None,
    long_prompt: str | None,
    verbose: bool,
) -> None:
    """Check whether an agent follows the Agent Client Protocol.

    COMMAND starts the agent, which is prompted a few times: with a real model, that costs tokens.
    Each check names its rule. The exit code is 1 if the agent breaks a rule that it must follow.

    Example: segue acp-check claude-agent-acp
    """
    import asyncio
    import shlex

    from segue.acp.conformance import check_agent, start_command
    from segue.acp.conformance.peer import CheckFailed
    from segue.acp.conformance.session import LONG_TEXT, TEXT, Prompts

    level = logging.DEBUG if verbose else logging.ERROR
    logging.basicConfig(stream=sys.stderr, level=level, format="segue: %(levelname)s %(message)s")
    words = shlex.split(command[0]) if len(command) == 1 else list(command)
    numbers = [int(version) for version in versions] or [1, 2]
    try:
        report = asyncio.run(
            check_agent(
                start_command(words),
                versions=numbers,
                timeout=timeout,
                only=only,
                prompts=Prompts(prompt or TEXT, long_prompt or LONG_TEXT),
            )
        )
    except OSError as error:
        raise click.ClickException(f"cannot start {words[0]!r}: {error.strerror}") from None
    except CheckFailed as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from None
    click.echo(report.to_json() if as_json else report.to_text())
    if report.failures:
        raise SystemExit(1)


def _run_login(agent: str, args: tuple[str, ...]) -> None:
    """Replace this process by the other agent's command."""
    command = _split_command(agent.removeprefix(_COMMAND_PREFIX))
    if not command or not agent.startswith(_COMMAND_PREFIX):
        raise _bad_agent("--login needs acp:COMMAND")
    os.execvp(command[0], [*command, *args])


def _configured_model(target: Target) -> str | None:
    """Return the configured model, without creating a store to look it up."""
    if target.database_url is None and not target.directory.exists():
        return None
    config = target.read(lambda hub, principal: hub.config.all(principal.workspace))
    model: str | None = config.get("model")
    return model


def _served_agent(name: str) -> ServedAgent:
    from segue.acp.remote import check_url, is_remote, url_of_account
    from segue.interfaces.acp import ServedAgent

    if name.startswith(_COMMAND_PREFIX):
        from shutil import which

        command = name.removeprefix(_COMMAND_PREFIX).strip()
        words = _split_command(command)
        if not words or which(words[0]) is None:
            raise _bad_agent(f"program {command!r} not found")
        return ServedAgent(f"{_COMMAND_PREFIX}{command}", {"kind": "acp", "command": command})
    if is_remote(name):
        try:
            check_url(name)
            url = url_of_account(name, os.environ)
        except ValueError as error:
            raise _bad_agent(str(error)) from None
        return ServedAgent(url, {"kind": "acp", "command": url}, only_own_sessions=True)
    from segue.agents.registry import AgentRegistry

    kinds = AgentRegistry().kinds()
    if name not in kinds:
        raise _bad_agent(
            f"unknown agent {name!r}; use {', '.join(kinds)}, acp:COMMAND or acp+ws://HOST/acp"
        )
    return ServedAgent(name, {"kind": name})


def _split_command(command: str) -> list[str]:
    import shlex

    try:
        return shlex.split(command)
    except ValueError as error:
        raise _bad_agent(f"cannot parse the command {command!r}: {error}") from None


def _bad_agent(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--agent")

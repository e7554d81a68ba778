"""Change the settings and quotas of a workspace: `segue config` and `segue quotas`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

from segue.hub import Hub
from segue.hub.access.config import SETTINGS, check_model
from segue.hub.access.quotas import QUOTAS, QuotaState, format_amount
from segue.interfaces.cli.group import Group
from segue.interfaces.cli.output.formats import format_option, write_rows
from segue.interfaces.cli.output.pager import pager_option, show_text
from segue.interfaces.cli.output.tables import terminal_columns
from segue.interfaces.cli.output.width import wrap
from segue.interfaces.cli.target import Target, target_options
from segue.model.errors import InvalidInput
from segue.model.principal import Principal

F = TypeVar("F", bound=Callable[..., Any])


class _Described(Protocol):
    @property
    def description(self) -> str: ...


def _name_argument(described: Mapping[str, _Described]) -> Callable[[F], F]:
    """Return an argument that is one of these names; shells complete it with descriptions."""

    def complete(
        context: click.Context, parameter: click.Parameter, prefix: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=item.description)
            for name, item in described.items()
            if name.startswith(prefix)
        ]

    return click.argument("name", shell_complete=complete)


setting_argument = _name_argument(SETTINGS)


@click.group("config", cls=Group)
def config_command() -> None:
    """Change a workspace's settings, such as the model and what its tools may do.

    Example: segue config set model anthropic:claude-sonnet-4-6
    """


@config_command.command("set")
@setting_argument
@click.argument("value")
@target_options
def set_(target: Target, name: str, value: str) -> None:
    """Change a setting; `segue config list --all` lists them.

    \b
    Examples:
        segue config set model anthropic:claude-sonnet-4-6
        segue config set model openai:gpt-5
        segue config set model ollama:qwen3
        segue config set model.base_url http://127.0.0.1:11434/v1
    """

    async def set_setting(hub: Hub, principal: Principal) -> str | None:
        if name == "model":
            check_model(value)
        await hub.config.set(principal.workspace, name, value)
        if not name.startswith("model"):
            return None
        return await hub.config.model_problem(principal.workspace)

    if (problem := target.run(set_setting)) is not None:
        click.echo(f"segue: saved, but not usable yet: {problem}", err=True)


@config_command.command("get")
@setting_argument
@target_options
def get(target: Target, name: str) -> None:
    """Print a setting; the exit code is 1 if it is not set.

    Example: segue config get model
    """
    if name not in SETTINGS:
        raise InvalidInput(f"there is no setting {name!r}; the settings are {', '.join(SETTINGS)}")
    config = target.run(lambda hub, principal: hub.config.all(principal.workspace))
    if name not in config:
        sys.exit(1)
    click.echo(_format_value(config[name]))


@config_command.command("unset")
@setting_argument
@target_options
def unset(target: Target, name: str) -> None:
    """Remove a setting.

    Example: segue config unset model
    """
    target.run(lambda hub, principal: hub.config.unset(principal.workspace, name))


@config_command.command("list")
@click.option("--all", "every", is_flag=True, help="Include unset settings and descriptions.")
@pager_option
@format_option
@target_options
def list_(target: Target, every: bool, format: str | None) -> None:
    """List the settings.

    Example: segue config list --all
    """
    config = target.run(lambda hub, principal: hub.config.all(principal.workspace))
    if format is not None:
        rows = [
            {"name": name, "value": config.get(name), "about": setting.description}
            for name, setting in SETTINGS.items()
            if every or name in config
        ]
        write_rows(format, ((row, row) for row in rows))
        return
    if not config and not every:
        click.echo("No settings. `segue config list --all` lists what can be set.", err=True)
    lines = []
    for name, setting in SETTINGS.items():
        if name in config:
            lines.append(f"{name} = {_format_value(config[name])}")
        elif every:
            lines.append(f"{name} (not set; for example {setting.example})")
        if every:
            lines += wrap(f"    {setting.description}", terminal_columns())
    show_text("".join(f"{line}\n" for line in lines))


@click.group("quotas", cls=Group)
def quotas_command() -> None:
    """Limit what a workspace's API keys may store and run. The local user has no limits.

    `segue serve --quota` sets limits for every workspace; a workspace's own limits replace them.

    Example: segue quotas set bytes 10GB --workspace team-a
    """


quota_argument = _name_argument(QUOTAS)


@quotas_command.command("set")
@quota_argument
@click.argument("limit")
@target_options
def set_quota(target: Target, name: str, limit: str) -> None:
    """Set a limit of a workspace: a number, a size such as 10GB, or `unlimited`.

    Servers that are running apply it within five seconds.

    Example: segue quotas set sessions 5000 --workspace team-a
    """
    target.run(lambda hub, principal: hub.quotas.set_limit(principal.workspace, name, limit))


@quotas_command.command("unset")
@quota_argument
@target_options
def unset_quota(target: Target, name: str) -> None:
    """Remove a limit of a workspace, so that the server's limit applies.

    Example: segue quotas unset sessions --workspace team-a
    """
    target.run(lambda hub, principal: hub.quotas.unset_limit(principal.workspace, name))


@quotas_command.command("list")
@format_option
@target_options
def list_quotas(target: Target, format: str | None) -> None:
    """List what a workspace uses, and its limits.

    The limits of a server are known here only if SEGUE_QUOTAS has them.

    Example: segue quotas list --workspace team-a
    """
    states = target.run(lambda hub, principal: hub.quotas.states(principal.workspace))
    if format is not None:
        rows = [{**state._asdict(), "about": QUOTAS[state.name].description} for state in states]
        write_rows(format, ((row, row) for row in rows))
        return
    for state in states:
        click.echo(f"{state.name:<10} {_describe_quota(state)}")


def _describe_quota(state: QuotaState) -> str:
    """Return what is used of a quota, its limit and the origin of the limit."""
    origin = f" (the {state.source}'s limit)" if state.source else ""
    limit = None if state.limit is None else format_amount(state.name, state.limit)
    if state.used is None:  # only the servers know it
        return f"at most {limit} in each server process{origin}" if limit else f"no limit{origin}"
    used = format_amount(state.name, state.used)
    return f"{used} of {limit}{origin}" if limit else f"{used}, no limit{origin}"


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

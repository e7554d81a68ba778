"""The commands on settings."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from segue.hub import Hub
from segue.hub.access.config import SETTINGS
from segue.interfaces.cli.main import Group, Where, located
from segue.interfaces.cli.output.formats import formatted, write_rows
from segue.interfaces.cli.output.pager import paged, show_text
from segue.interfaces.cli.output.tables import columns
from segue.interfaces.cli.output.width import wrap
from segue.model.errors import InvalidInput
from segue.model.principal import Principal


def _complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    found = {name: each for name, each in SETTINGS.items() if name.startswith(begun)}
    return [CompletionItem(name, help=each.about) for name, each in found.items()]


setting_argument = click.argument("name", shell_complete=_complete)


@click.group("config", cls=Group)
def config_command() -> None:
    """Settings of a workspace: which model answers, and what its tools may do.

    Example: segue config set model anthropic:claude-sonnet-4-6
    """


@config_command.command("set")
@setting_argument
@click.argument("value")
@located
def set_(where: Where, name: str, value: str) -> None:
    """Set one. `segue config list --all` shows what there is.

    \b
    Examples:
        segue config set model anthropic:claude-sonnet-4-6
        segue config set model openai:gpt-5
        segue config set model ollama:qwen3
        segue config set model.base_url http://127.0.0.1:11434/v1
    """

    async def do(hub: Hub, principal: Principal) -> dict[str, Any]:
        if name == "model":
            _check(value)
        await hub.config.set(principal.workspace, name, value)
        return dict(await hub.config.all(principal.workspace))

    config = where.run(do)
    if name.startswith("model") and "model" in config:
        _warn(config)


@config_command.command("get")
@setting_argument
@located
def get(where: Where, name: str) -> None:
    """Print one setting; exit code 1 if it is not set.

    Example: segue config get model
    """
    if name not in SETTINGS:
        raise InvalidInput(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
    config = where.run(lambda hub, principal: hub.config.all(principal.workspace))
    if name not in config:
        sys.exit(1)
    click.echo(_written(config[name]))


@config_command.command("unset")
@setting_argument
@located
def unset(where: Where, name: str) -> None:
    """Forget one setting.

    Example: segue config unset model
    """
    where.run(lambda hub, principal: hub.config.unset(principal.workspace, name))


@config_command.command("list")
@click.option("--all", "every", is_flag=True, help="Also what is not set, and what each means.")
@paged
@formatted
@located
def list_(where: Where, every: bool, format: str | None) -> None:
    """List the settings.

    Example: segue config list --all
    """
    config = where.run(lambda hub, principal: hub.config.all(principal.workspace))
    if format is not None:
        rows = [
            {"name": name, "value": config.get(name), "about": setting.about}
            for name, setting in SETTINGS.items()
            if every or name in config
        ]
        write_rows(format, ((row, row) for row in rows))
        return
    if not config and not every:
        click.echo("Nothing is set. `segue config list --all` shows what could be.", err=True)
    lines = []
    for name, setting in SETTINGS.items():
        if name in config:
            lines.append(f"{name} = {_written(config[name])}")
        elif every:
            lines.append(f"{name} (not set; for example {setting.example})")
        if every:
            lines += wrap(f"    {setting.about}", columns())
    show_text("".join(f"{line}\n" for line in lines))


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(model: str) -> None:
    """Refuse what cannot be the name of a model."""
    from segue.agents.model.models import ModelUnavailable, check_provider
    from segue.agents.model.settings import has_provider

    model = model.strip()
    if not has_provider(model):
        raise InvalidInput(f"{model!r} is no model: write provider:name, as in openai:gpt-5")
    try:
        check_provider(model.partition(":")[0])
    except ModelUnavailable as error:
        raise InvalidInput(str(error)) from None


def _warn(config: dict[str, Any]) -> None:
    """Say at once what the first prompt would fail of."""
    from segue.agents.model.models import ModelUnavailable, make_model

    try:
        make_model(config["model"], config.get("model.base_url"))
    except ModelUnavailable as error:
        click.echo(f"segue: it is set, but cannot be used yet: {error}", err=True)

"""Create the REST API commands from the operations of the OpenAPI document."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click

from segue.interfaces.cli.group import Group
from segue.interfaces.cli.target import Target, target_options

from . import help
from .errors import ApiFailure, missing_flag, unknown_command, usage_failure
from .operations import Flag, Operation, load_operations
from .output import FORMATS

_SHARED_OPTIONS = (
    click.Option(["--base-url"], help="A server: https://…  [default: the local store]"),
    click.Option(["--api-key"], help="The server's key.  [env var: ANTHROPIC_API_KEY]"),
    click.Option(["--auth-token"], help="The server's token.  [env var: ANTHROPIC_AUTH_TOKEN]"),
    click.Option(["--beta", "betas"], multiple=True, help="Another beta header. Repeatable."),
    click.Option(
        ["--format"], type=click.Choice(FORMATS), default="auto", help="The output format."
    ),
    click.Option(
        ["--format-error"], type=click.Choice(FORMATS), default="auto", help="… of errors."
    ),
    click.Option(["--transform"], help="The part of each item to print: a GJSON path."),
    click.Option(["--transform-error"], help="… of errors."),
    click.Option(["-r", "--raw-output"], is_flag=True, help="Print strings without quotes."),
    click.Option(["--debug"], is_flag=True, help="Show requests on standard error."),
)
_HELP = ("-h", "--help")
_CLICK_TYPES = {"integer": click.INT, "file": click.Path()}


class ApiGroup(Group):
    """A resource. An unknown command is exit code 3."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        command = super().get_command(context, name)
        if command is None and not context.resilient_parsing:
            suggestions = get_close_matches(name, self.commands, 1)
            raise unknown_command(name, suggestions, context.command_path)
        return command

    def count_leading_options(self, args: list[str]) -> int:
        """Return how many arguments at the start are flags of any command and their values."""
        with_value = {
            name
            for command in self.commands.values()
            for param in command.params
            if isinstance(param, click.Option) and param.type is not click.BOOL
            for name in param.opts
        }
        count = 0
        while count < len(args) and args[count].startswith("-") and args[count] not in _HELP:
            name = args[count]
            has_value = name in with_value or f"-{name}" in with_value or "." in name
            count += 2 if has_value and "=" not in name else 1
        return count if count < len(args) else super().count_leading_options(args)


class ApiCommand(click.Command):
    """An operation. A wrong flag is exit code 1, in the vendor's words."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        args, context.obj = _split_nested_flags(args)
        try:
            return super().parse_args(context, [_with_two_dashes(self, arg) for arg in args])
        except click.UsageError as error:
            raise usage_failure(error, context.command_path) from None


def _with_two_dashes(command: click.Command, arg: str) -> str:
    """Return `--limit` for `-limit`, which the vendor's command line accepts too."""
    name = arg.partition("=")[0]
    is_long_flag = any(f"-{name}" in param.opts for param in command.params)
    has_one_dash = name.startswith("-") and not name.startswith("--")
    return f"-{arg}" if has_one_dash and is_long_flag else arg


def _split_nested_flags(args: list[str]) -> tuple[list[str], dict[str, str]]:
    """Separate flags such as `--agent.tools`, which set a part of a structured value."""
    others: list[str] = []
    nested: dict[str, str] = {}
    iterator = iter(args)
    for arg in iterator:
        name, equals, value = arg.partition("=")
        if name.startswith("--") and "." in name:
            nested[name[2:]] = value if equals else next(iterator, "")
        else:
            others.append(arg)
    return others, nested


def _create_option(flag: Flag) -> click.Option:
    names = [f"--{flag.name}", _parameter_name(flag)]
    if flag.type == "boolean":
        return click.Option(names, type=bool, is_flag=False, flag_value=True, help=flag.help)
    click_type = _CLICK_TYPES.get(flag.type, click.STRING)
    return click.Option(names, type=click_type, multiple=flag.is_repeatable, help=flag.help)


def _parameter_name(flag: Flag) -> str:
    return "flag_" + flag.name.replace("-", "_")


def create_command(operation: Operation) -> click.Command:
    """Return the command of an operation."""

    @target_options
    def run(target: Target, ids: tuple[str, ...] = (), **options: Any) -> None:
        _run(operation, target, list(ids), options)

    # `target_options` leaves its options on the function; here they belong to the command.
    target_params = reversed(run.__click_params__)  # type: ignore[attr-defined]  # set by click
    shared = [*_SHARED_OPTIONS, *target_params]
    if operation.response == "pages":
        text = "The maximum number of items over all pages; -1 for all."
        shared.insert(0, click.Option(["--max-items"], type=int, default=-1, help=text))
    if operation.response == "file":
        text = "The file to write; `-` is standard output."
        output = click.Option(["-o", "--output"], type=click.Path(), required=True, help=text)
        shared.insert(0, output)
    has_id = any(flag.location == "path" for flag in operation.flags)
    arguments = [click.Argument(["ids"], nargs=-1, metavar="[ID]")] if has_id else []
    return ApiCommand(
        operation.name,
        params=[*arguments, *map(_create_option, operation.flags), *shared],
        callback=run,
        help=f"{operation.help.summary}\n\n\b\nExample: {operation.help.example}",
    )


def _run(operation: Operation, target: Target, ids: list[str], options: dict[str, Any]) -> None:
    import asyncio

    from .request import ApiCall

    context = click.get_current_context()
    call = ApiCall(operation, target, options)
    for flag in operation.flags:
        value = options[_parameter_name(flag)]
        if flag.location == "path":
            value = value or (ids.pop(0) if ids else None)
            if value is None:
                raise missing_flag(flag.name, context.command_path)
            call.set_path_value(flag, value)
        elif flag.type == "file" and not value:
            raise missing_flag(flag.name, context.command_path)
        else:
            call.set_flag(flag, value)
    if ids:
        raise ApiFailure(f"Incorrect Usage: unexpected argument {ids[0]!r}")
    for name, text in (context.obj or {}).items():
        call.set_nested(name, text)
    asyncio.run(call.run())


def _create_groups() -> dict[str, ApiGroup]:
    """Return all groups by name, `sessions events` inside of `sessions`."""
    groups: dict[str, ApiGroup] = {}
    operations = load_operations()
    for name, texts in help.GROUPS.items():
        parent, _, own_name = name.rpartition(" ")
        commands = [
            create_command(operation) for operation in operations if operation.group == name
        ]
        text = f"{texts.summary}\n\nExample: {texts.example}"
        groups[name] = ApiGroup(own_name, commands, help=text)
        if parent:
            groups[parent].add_command(groups[name])
    return groups


_GROUPS = _create_groups()
sessions_command = _GROUPS["sessions"]
agents_command = _GROUPS["agents"]
environments_command = _GROUPS["environments"]
skills_command = _GROUPS["skills"]
webhooks_command = _GROUPS["webhooks"]

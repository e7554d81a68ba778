"""The commands, made from the table."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click

from segue.interfaces.cli.main import Group, Where, located

from .errors import Failure, missing, unknown, usage
from .output import FORMATS
from .skills import SKILL_VERSIONS, SKILLS
from .table import AGENTS, ENVIRONMENTS, EVENTS, SESSIONS, VERSIONS, Action, Flag

_SHARED = (
    click.Option(["--base-url"], help="A server: https://…  [default: the local store]"),
    click.Option(["--api-key"], help="Its key.  [env var: ANTHROPIC_API_KEY]"),
    click.Option(["--auth-token"], help="Its token.  [env var: ANTHROPIC_AUTH_TOKEN]"),
    click.Option(["--beta", "betas"], multiple=True, help="A beta to name beside ours."),
    click.Option(["--format"], type=click.Choice(FORMATS), default="auto", help="How to print."),
    click.Option(["--format-error"], type=click.Choice(FORMATS), default="auto", help="… errors."),
    click.Option(["--transform"], help="What to print of each item: a GJSON path."),
    click.Option(["--transform-error"], help="The same for errors."),
    click.Option(["-r", "--raw-output"], is_flag=True, help="Print strings without quotes."),
    click.Option(["--debug"], is_flag=True, help="Show requests on standard error."),
)


class ApiGroup(Group):
    """A resource. What it does not know is exit code 3."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        found = super().get_command(context, name)
        if found is None and not context.resilient_parsing:
            near = get_close_matches(name, self.commands, 1)
            raise unknown(name, near, context.command_path)
        return found

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        # Flags before the action mean the same as after it. Any other word there is an action.
        at = self._flags(args)
        if at < len(args) and not {"-h", "--help"} & set(args[:at]):
            args = [*args[at:], *args[:at]]
        return super().parse_args(context, args)

    def _flags(self, args: list[str]) -> int:
        """How many words at the beginning are flags and their values."""
        valued = {
            name
            for command in self.commands.values()
            for param in command.params
            if isinstance(param, click.Option) and param.type is not click.BOOL
            for name in param.opts
        }
        at = 0
        while at < len(args) and args[at].startswith("-"):
            name = args[at]
            takes = name in valued or f"-{name}" in valued or "." in name
            at += 2 if takes and "=" not in name else 1
        return at


class ApiCommand(click.Command):
    """An action. Mistakes in its flags are exit code 1, said as the vendor's tool says them."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        given, context.obj = _inner(args)
        try:
            return super().parse_args(context, [_long(self, word) for word in given])
        except click.UsageError as error:
            raise usage(error, context.command_path) from None


def _long(command: click.Command, word: str) -> str:
    """`-limit` is `--limit`, as it is there."""
    name = word.partition("=")[0]
    long = any(f"-{name}" in param.opts for param in command.params)
    return f"-{word}" if name.startswith("-") and not name.startswith("--") and long else word


def _inner(args: list[str]) -> tuple[list[str], dict[str, str]]:
    """Flags such as `--agent.tools`, which set a part of a structured value, taken out."""
    rest: list[str] = []
    inner: dict[str, str] = {}
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if name.startswith("--") and "." in name:
            inner[name[2:]] = value if equals else next(words, "")
        else:
            rest.append(word)
    return rest, inner


def _option(flag: Flag) -> click.Option:
    name = [f"--{flag.name}", _argument(flag)]
    if flag.kind == "flag":
        return click.Option(name, type=bool, is_flag=False, flag_value=True, help=flag.help)
    many = flag.kind in ("texts", "values", "files")
    kind = {"number": click.INT, "files": click.Path()}.get(flag.kind, click.STRING)
    return click.Option(name, type=kind, multiple=many, help=flag.help)


def _argument(flag: Flag) -> str:
    return "flag_" + flag.name.replace("-", "_")


def make(action: Action) -> click.Command:
    """The command of an action."""

    @located
    def run(where: Where, words: tuple[str, ...] = (), **given: Any) -> None:
        _run(action, where, words, given)

    # The options that `located` gives, which are the command's and not the function's here.
    places = reversed(run.__click_params__)  # type: ignore[attr-defined]  # click put it there
    shared = [*_SHARED, *places]
    if action.shape == "pages":
        help = "How many items at most, over all pages; -1 for all."
        shared.insert(0, click.Option(["--max-items"], type=int, default=-1, help=help))
    if action.shape == "file":
        help = "The file to write; `-` is standard output."
        output = click.Option(["-o", "--output"], type=click.Path(), required=True, help=help)
        shared.insert(0, output)
    named = any(flag.place == "path" for flag in action.flags)
    words = [click.Argument(["words"], nargs=-1, metavar="[ID]")] if named else []
    return ApiCommand(
        action.name,
        params=[*words, *map(_option, action.flags), *shared],
        callback=run,
        help=f"{action.help}\n\n\b\nExample: {action.example}",
    )


def _group(name: str, help: str, actions: tuple[Action, ...], *inner: click.Group) -> ApiGroup:
    commands = [*map(make, actions), *inner]
    return ApiGroup(name, commands, help=help)


def _run(action: Action, where: Where, words: tuple[str, ...], given: dict[str, Any]) -> None:
    import asyncio

    from .request import Calling

    path = click.get_current_context().command_path
    calling = Calling(action, where, given)
    ids = list(words)
    for flag in action.flags:
        if flag.place == "path":
            value = given[_argument(flag)] or (ids.pop(0) if ids else None)
            if value is None:
                raise missing(flag.name, path)
            calling.values[flag.wire] = value
        else:
            calling.set(flag, given[_argument(flag)])
            if flag.kind == "files" and not given[_argument(flag)]:
                raise missing(flag.name, path)
    if ids:
        raise Failure(f"Incorrect Usage: unexpected argument {ids[0]!r}")
    for name, value in (click.get_current_context().obj or {}).items():
        calling.set_inner(name, value, path)
    asyncio.run(calling.run())


sessions_command = _group(
    "sessions",
    "Sessions by the REST API's names, of the local store or of any server.\n\n"
    "`beta:sessions` means the same.\n\nExample: segue sessions list --max-items 20",
    SESSIONS,
    _group("events", "A session's events.\n\nExample: segue sessions events list sesn_01…", EVENTS),
)
agents_command = _group(
    "agents",
    "Agents by the REST API's names.\n\nExample: segue agents list",
    AGENTS,
    _group(
        "versions",
        "An agent's versions.\n\nExample: segue agents versions list agent_01…",
        VERSIONS,
    ),
)
environments_command = _group(
    "environments",
    "Environments by the REST API's names.\n\nExample: segue environments list",
    ENVIRONMENTS,
)
skills_command = _group(
    "skills",
    "Skills by the REST API's names: what agents can be told to know.\n\n"
    "Example: segue skills create --file ./reviewing",
    SKILLS,
    _group(
        "versions",
        "A skill's versions.\n\nExample: segue skills versions list skill_01…",
        SKILL_VERSIONS,
    ),
)

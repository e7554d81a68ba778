"""What a built-in tool is, and what it has to work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from segue.model.content import Block, Content, as_content
from segue.model.event import ToolKind, ToolResult

from .path_guard import PathGuard, ToolError

__all__ = ["Tool", "ToolContext", "ToolError", "done", "failed", "shortened"]

# As much as a model reads with profit of one result; what is longer loses its middle.
MAX_OUTPUT = 30_000
_TELLING = 4  # a line of a secret that has fewer characters tells nothing of it
_NO_WORDS = ("type", "mime", "data")  # of a block


class ToolContext(NamedTuple):
    """A session's directories, who is asking, and what the workspace has configured."""

    session: str
    roots: PathGuard
    local: bool
    config: Mapping[str, Any]
    shells: Any = None  # ShellPool; a name that would be imported in a circle
    variables: Mapping[str, str] = {}  # secrets that programs have in their environment
    env: Mapping[str, str] = {}  # for programs, from whoever asks
    elsewhere: bool = False  # tools run with a worker, and nothing of the session's is here

    def for_others(self) -> ToolContext:
        """The same for somebody who is not the local user."""
        roots = PathGuard(self.roots.directories, strict=True, mounts=self.roots.mounts)
        return self._replace(local=False, roots=roots, env={})


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class Tool(NamedTuple):
    """A tool of the agent toolset: how the model sees it, and what it does."""

    name: str
    kind: ToolKind
    about: str
    input: type[Input]
    title: Callable[[Any], str]
    run: Callable[[ToolContext, Any], Awaitable[ToolResult]]
    target: Callable[[Any], str | None] = lambda _: None  # the file that a call touches

    def schema(self) -> dict[str, Any]:
        """The arguments as a JSON schema of one level."""
        (_, whole) = msgspec.json.schema_components([self.input], ref_template="{name}")
        found = dict(whole[self.input.__name__])
        found.pop("title", None)
        return found

    async def use(self, context: ToolContext, given: Any) -> ToolResult:
        """Run it. What is secret in the context is not in the result as it stands there."""
        if not context.variables:
            return await self.run(context, given)
        secrets = _secrets(context.variables)
        try:
            result = await self.run(context, given)
        except ToolError as error:
            raise ToolError(_without(secrets, str(error))) from None
        shown = _without(secrets, msgspec.to_builtins(result.content))
        return msgspec.structs.replace(result, content=msgspec.convert(shown, Content))

    def read(self, arguments: Any) -> Input:
        """Arguments that fit; ToolError says what does not."""
        try:
            return msgspec.convert(arguments, self.input)
        except (msgspec.ValidationError, UnicodeError) as error:
            raise ToolError(f"these arguments do not fit: {error}") from None


def _secrets(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """What not to show, with its name: values, and their lines, the longest first."""
    found = {line: name for name, value in variables.items() for line in value.split("\n")}
    found = {line: name for line, name in found.items() if len(line.strip()) >= _TELLING}
    found |= {value: name for name, value in variables.items() if value}
    return sorted(found.items(), key=lambda item: -len(item[0]))


def _without(secrets: Sequence[tuple[str, str]], shown: Any) -> Any:
    """The same with the name of each secret in its place."""
    if isinstance(shown, str):
        for value, name in secrets:
            shown = shown.replace(value, f"[{name}]")
        return shown
    if isinstance(shown, dict):
        return {
            key: each if key in _NO_WORDS else _without(secrets, each)
            for key, each in shown.items()
        }
    if isinstance(shown, list | tuple):
        return [_without(secrets, each) for each in shown]
    return shown


Status = Literal["completed", "failed"]


def done(*content: str | Block, status: Status = "completed") -> ToolResult:
    blocks = [block for each in content for block in as_content(each)]
    return ToolResult(call_id="", status=status, content=tuple(blocks))


def failed(why: str) -> ToolResult:
    return done(why, status="failed")


def shortened(text: str, limit: int = MAX_OUTPUT) -> str:
    """Text that fits, its middle left out where it does not."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n\n[… {left_out} characters left out …]\n\n{text[-half:]}"

"""The interface of a built-in tool, and the context in which it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from segue.model.content import Block, Content, as_content
from segue.model.event import ToolKind, ToolResult

from .path_guard import PathGuard, ToolError

if TYPE_CHECKING:
    from segue.agents.egress.proxy import EgressProxy

__all__ = ["Tool", "ToolContext", "ToolError", "completed_result", "failed_result", "truncate"]

# Longer results lose their middle: a model gains little from more text than this.
MAX_OUTPUT_CHARACTERS = 30_000
# Shorter lines of a secret are not redacted: they reveal nothing, and occur in ordinary text.
MIN_REDACTED_CHARACTERS = 4
_FIELDS_WITHOUT_TEXT = ("type", "mime", "data")


class ToolContext(NamedTuple):
    """The session that a tool runs for: its directories, its caller and its configuration."""

    session: str
    paths: PathGuard
    local: bool  # whether the caller is the local user
    config: Mapping[str, Any]
    shells: Any = None  # a ShellPool, whose module imports this one
    variables: Mapping[str, str] = {}  # secret environment variables for programs
    env: Mapping[str, str] = {}  # environment variables that the caller sets for programs
    private: Sequence[str] = ()  # directories that other callers' programs must not see
    egress: EgressProxy | None = None  # the only route to the network, unless it is None
    packages: bool = False  # whether the environment has packages, which programs shall find
    thread: str | None = None  # each thread has a shell of its own
    remote: bool = False  # a remote worker runs the tools, so the session's files are not here

    def for_other_caller(self) -> ToolContext:
        """Return this context for a caller who is not the local user."""
        paths = PathGuard(
            self.paths.directories,
            strict=True,
            mounts=self.paths.mounts,
            private=self.private,
            read_only=self.paths.read_only,
        )
        return self._replace(local=False, paths=paths, env={})


class ToolInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class Tool(NamedTuple):
    """A built-in tool: its description for the model, and the function that runs it."""

    name: str
    kind: ToolKind
    description: str
    input: type[ToolInput]
    function: Callable[[ToolContext, Any], Awaitable[ToolResult]]
    target: Callable[[Any], str | None] = lambda _: None  # the path that a call reads or changes

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        (_, components) = msgspec.json.schema_components([self.input], ref_template="{name}")
        schema = dict(components[self.input.__name__])
        schema.pop("title", None)
        return schema

    async def run(self, context: ToolContext, arguments: Any) -> ToolResult:
        """Run the tool, and replace the context's secrets in its result by their names."""
        if not context.variables:
            return await self.function(context, arguments)
        secrets = _secret_texts(context.variables)
        try:
            result = await self.function(context, arguments)
        except ToolError as error:
            raise ToolError(_redact(secrets, str(error))) from None
        redacted = _redact(secrets, msgspec.to_builtins(result.content))
        return msgspec.structs.replace(result, content=msgspec.convert(redacted, Content))

    def parse(self, arguments: Any) -> ToolInput:
        """Validate the model's arguments. Raises ToolError with the first mistake."""
        try:
            return msgspec.convert(arguments, self.input)
        except (msgspec.ValidationError, UnicodeError) as error:
            raise ToolError(f"invalid arguments: {error}") from None


def _secret_texts(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (text, variable name) for each secret value and each of its lines, longest first."""
    names = {line: name for name, value in variables.items() for line in value.split("\n")}
    names = {
        line: name for line, name in names.items() if len(line.strip()) >= MIN_REDACTED_CHARACTERS
    }
    names |= {value: name for name, value in variables.items() if value}
    return sorted(names.items(), key=lambda item: -len(item[0]))


def _redact(secrets: Sequence[tuple[str, str]], value: Any) -> Any:
    """Return `value` with each secret replaced by its name."""
    if isinstance(value, str):
        for secret, name in secrets:
            value = value.replace(secret, f"[{name}]")
        return value
    if isinstance(value, dict):
        return {
            key: field if key in _FIELDS_WITHOUT_TEXT else _redact(secrets, field)
            for key, field in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact(secrets, item) for item in value]
    return value


Status = Literal["completed", "failed"]


def completed_result(*content: str | Block, status: Status = "completed") -> ToolResult:
    """Return a tool result, with an empty call id, that consists of these blocks."""
    blocks = [block for part in content for block in as_content(part)]
    return ToolResult(call_id="", status=status, content=tuple(blocks))


def failed_result(reason: str) -> ToolResult:
    """Return the result of a failed call, with an empty call id."""
    return completed_result(reason, status="failed")


def truncate(text: str, max_characters: int = MAX_OUTPUT_CHARACTERS) -> str:
    """Return `text`, without its middle if it is too long."""
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    omitted = len(text) - 2 * half
    return f"{text[:half]}\n\n[… {omitted} characters left out …]\n\n{text[-half:]}"

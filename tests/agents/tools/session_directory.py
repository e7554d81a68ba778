"""A session directory for tests, with a secret file outside of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.agents.tools import BUILT_IN, PathGuard, ShellPool, ToolContext, ToolError
from segue.model.event import ToolResult


class SessionDirectory:
    """`path` is the session's directory; `secret` is a file in its parent directory."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.path = parent / "inside"
        self.secret = parent / "secret.txt"
        self.path.mkdir()
        self.secret.write_text("SECRET")

    def context(
        self,
        *,
        local: bool = True,
        shells: ShellPool | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> ToolContext:
        """Return a tool context for the directory."""
        paths = PathGuard([str(self.path)], strict=not local)
        return ToolContext(self.parent.name, paths, local, config or {}, shells)

    async def run(
        self, name: str, context: ToolContext | None = None, **arguments: Any
    ) -> ToolResult:
        """Run a tool and return its result; a ToolError becomes a failed result."""
        tool = BUILT_IN[name]
        try:
            return await tool.run(context or self.context(), tool.parse(arguments))
        except ToolError as error:
            return ToolResult(call_id="", status="failed", output=str(error))


def text_of(result: ToolResult) -> str:
    """Return the text of a result, or its error message."""
    text = "".join(getattr(block, "text", "") for block in result.content)
    return text or str(result.output)

"""A session's directory beside things that are none of its business."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.agents.tools import BUILT_IN, PathGuard, ShellPool, ToolContext, ToolError
from segue.model.event import ToolResult


class Place:
    """`inside` is the session's; `secret` is a file outside of it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.inside = top / "inside"
        self.secret = top / "secret.txt"
        self.inside.mkdir()
        self.secret.write_text("SECRET")

    def context(
        self, *, local: bool = True, shells: Any = None, config: Mapping[str, Any] | None = None
    ) -> ToolContext:
        roots = PathGuard([str(self.inside)], strict=not local)
        return ToolContext(self.top.name, roots, local, config or {}, shells)

    async def use(self, name: str, context: ToolContext | None = None, **given: Any) -> ToolResult:
        """A tool's result; a refusal is one that failed."""
        tool = BUILT_IN[name]
        try:
            return await tool.use(context or self.context(), tool.read(given))
        except ToolError as error:
            return ToolResult(call_id="", status="failed", output=str(error))


def told(result: ToolResult) -> str:
    words = "".join(getattr(block, "text", "") for block in result.content)
    return words or str(result.output)


__all__ = ["Place", "ShellPool", "told"]

"""The built-in tools of segue's own model agent, by meaning, and what its sessions hold."""

from __future__ import annotations

from segue.model.event import AgentThought
from segue.sources.writing.conversation import Holds
from segue.sources.writing.tool_names import ToolName, ToolNames

_MODEL = "model"  # the key of the fields that a provider needs back

NAMES = ToolNames(
    [
        ToolName("shell", "bash", {"command": "command", "timeout_ms": "timeout_ms"}),
        ToolName("read", "read", {"path": "file_path"}),
        ToolName("write", "write", {"path": "file_path", "content": "content"}),
        ToolName(
            "edit",
            "edit",
            {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"},
        ),
        ToolName("search", "grep", {"pattern": "pattern", "path": "path"}),
        ToolName("find", "glob", {"pattern": "pattern", "path": "path"}),
        ToolName("fetch", "web_fetch", {"url": "url"}),
        ToolName("web_search", "web_search", {"query": "query"}),
    ]
)


def _is_own(thought: AgentThought) -> bool:
    """Return whether the model agent sends a thought to its model again."""
    return _MODEL in thought.extra


HOLDS = Holds(own_thought=_is_own)

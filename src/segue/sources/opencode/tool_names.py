"""The tools of opencode, by meaning."""

from __future__ import annotations

from segue.sources.writing.tool_names import ToolName, ToolNames

_SHELL = {
    "command": "command",
    "directory": "workdir",
    "timeout_ms": "timeout",
    "description": "description",
}
_EDIT = {"path": "filePath", "old": "oldString", "new": "newString", "all": "replaceAll"}
_SUBAGENT = {"prompt": "prompt", "description": "description", "kind": "subagent_type"}

NAMES = ToolNames(
    [
        ToolName("shell", "bash", _SHELL),
        ToolName("read", "read", {"path": "filePath", "offset": "offset", "limit": "limit"}),
        ToolName("write", "write", {"path": "filePath", "content": "content"}),
        ToolName("edit", "edit", _EDIT),
        ToolName("search", "grep", {"pattern": "pattern", "path": "path", "include": "include"}),
        ToolName("find", "glob", {"pattern": "pattern", "path": "path"}),
        ToolName("list", "list", {"path": "path"}),
        ToolName("fetch", "webfetch", {"url": "url", "prompt": "prompt"}),
        ToolName("web_search", "websearch", {"query": "query"}),
        ToolName(
            "todo",
            "todowrite",
            {"items": "todos"},
            items={"content": "content", "status": "status"},
        ),
        ToolName("subagent", "task", _SUBAGENT),
    ]
)

"""The names of all commands, grouped as `segue --help` shows them, with their modules."""

from __future__ import annotations

from segue.hub import tools

_SECTIONS = {
    "Find and read": {
        "list": "commands.list",
        "search": "commands.list",
        "show": "commands.show",
        "tail": "commands.show",
        "stats": "commands.stats",
    },
    "Chat": {
        "new": "commands.chat",
        "prompt": "commands.chat",
        "resume": "commands.chat",
        "fork": "commands.edit",
    },
    "Organize": {
        "rename": "commands.edit",
        "tag": "commands.edit",
        "archive": "commands.edit",
        "unarchive": "commands.edit",
        "delete": "commands.edit",
        "restore": "commands.edit",
        "trash": "commands.trash",
        "prune": "commands.prune",
    },
    "Import and export": {
        "export": "commands.exchange",
        "import": "commands.exchange",
        "validate": "commands.exchange",
        "sources": "commands.list",
    },
    "Serve": {
        "open": "commands.serve",
        "serve": "commands.serve",
        "mcp": "mcp.command",
        "acp": "editors.acp",
        "acp-check": "editors.acp",
        "vscode": "editors.vscode",
        "demo": "commands.demo",
    },
    "Configure": {
        "config": "commands.config",
        "keys": "commands.keys",
        "secrets": "secrets.command",
        "quotas": "commands.config",
        "doctor": "commands.doctor",
        "completion": "commands.completion",
    },
    "REST API": {
        "sessions": "api.command",
        "agents": "api.command",
        "environments": "api.command",
        "skills": "api.command",
        "webhooks": "api.command",
    },
}
_SOURCES_SECTION = "Import and export"  # where the commands of sources are listed
MODULES = {name: module for section in _SECTIONS.values() for name, module in section.items()}
API_COMMANDS = frozenset(_SECTIONS["REST API"])

# What other programs call a command: "did you mean" suggests ours.
SYNONYMS = {
    "ask": "prompt",
    "cat": "show",
    "chat": "resume",
    "continue": "resume",
    "copy": "fork",
    "cp": "fork",
    "create": "new",
    "find": "search",
    "follow": "tail",
    "grep": "search",
    "ls": "list",
    "mv": "rename",
    "remove": "delete",
    "rm": "delete",
    "run": "prompt",
    "server": "serve",
    "undelete": "restore",
    "verify": "validate",
    "version": "--version",
    "view": "show",
    "web": "open",
}


def sections() -> dict[str, list[str]]:
    """Return the names of all commands by section, with the sources that have commands."""
    names = {title: list(modules) for title, modules in _SECTIONS.items()}
    names[_SOURCES_SECTION] += [tool.name for tool in tools.all_tools() if tool.commands()]
    return names

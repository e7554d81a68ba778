"""The commands there are, as the first help tells them, and the module that has each."""

from __future__ import annotations

SECTIONS = {
    "Find and read": {
        "list": "commands.list",
        "search": "commands.list",
        "show": "commands.show",
        "tail": "commands.show",
        "stats": "commands.stats",
    },
    "Talk": {
        "new": "commands.chat",
        "prompt": "commands.chat",
        "resume": "commands.chat",
        "fork": "commands.edit",
    },
    "Keep in order": {
        "rename": "commands.edit",
        "tag": "commands.edit",
        "archive": "commands.edit",
        "unarchive": "commands.edit",
        "delete": "commands.edit",
        "restore": "commands.edit",
        "trash": "commands.trash",
        "prune": "commands.prune",
    },
    "From and to elsewhere": {
        "export": "commands.exchange",
        "import": "commands.exchange",
        "sources": "commands.list",
        "claude": "commands.claude",
    },
    "Browsers, programs and editors": {
        "open": "commands.serve",
        "serve": "commands.serve",
        "acp": "commands.acp",
        "demo": "commands.demo",
    },
    "Set up": {
        "config": "commands.config",
        "keys": "commands.keys",
        "doctor": "commands.doctor",
        "completion": "commands.completion",
    },
    "The REST API by its own names": {
        "sessions": "api.command",
        "agents": "api.command",
        "environments": "api.command",
        "skills": "api.command",
    },
}
COMMANDS = {name: module for found in SECTIONS.values() for name, module in found.items()}
# What other programs call them.
MEANT = {
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
    "view": "show",
    "web": "open",
}

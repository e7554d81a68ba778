"""The commands there are, as the first help tells them, and the module that has each."""

from __future__ import annotations

SECTIONS = {
    "Find and read": {
        "list": "listing",
        "search": "listing",
        "show": "showing",
        "tail": "showing",
        "stats": "stats",
    },
    "Talk": {
        "new": "talking",
        "prompt": "talking",
        "resume": "talking",
        "fork": "changing",
    },
    "Keep in order": {
        "rename": "changing",
        "tag": "changing",
        "archive": "changing",
        "unarchive": "changing",
        "delete": "changing",
        "restore": "changing",
        "trash": "trash",
        "prune": "pruning",
    },
    "From and to elsewhere": {
        "export": "sessions",
        "import": "sessions",
        "sources": "listing",
        "claude": "claude",
    },
    "Browsers, programs and editors": {
        "open": "serve",
        "serve": "serve",
        "acp": "acp",
        "demo": "demo",
    },
    "Set up": {
        "config": "config",
        "keys": "keys",
        "doctor": "doctor",
        "completion": "completion",
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

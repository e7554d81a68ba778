"""Write docs/format.schema.json and the tables of docs/format.md from the structs.

Run `python docs/build_format.py` after a change of events, session rows or the export file. The
tests fail if the two files are not up to date.
"""

from __future__ import annotations

import json
import re
import sqlite3
import types
import typing
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from segue.hub.sync import export_file
from segue.hub.sync.export_file import AgentRecord, EventLine, Header, Summary, time_fields
from segue.model import clock, content, event, session
from segue.store.migrations import load as load_migrations

DIRECTORY = Path(__file__).parent
SCHEMA_PATH = DIRECTORY / "format.schema.json"
DOCUMENT_PATH = DIRECTORY / "format.md"

Struct = type[msgspec.Struct]
TIME = {"type": "string", "pattern": clock.TIME_PATTERN}
NAMES = {str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null"}
BLOCKS: tuple[Struct, ...] = typing.get_args(content.Block)
STORE_TABLES = ("sessions", "events", "records")
# Structs inside events and session rows, besides content blocks.
PARTS: tuple[Struct, ...] = (
    event.Usage,
    event.AgentRef,
    event.ForkPoint,
    event.PlanEntry,
    event.Option,
    event.Location,
    event.InsertedText,
    session.Outcome,
    session.ChangedLines,
    session.OpenThread,
    Summary,
)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of an export file."""
    _, definitions = msgspec.json.schema_components(
        [Header, EventLine, event.AnyBody], ref_template="#/$defs/{name}"
    )
    for cls in (Header, Summary, AgentRecord):
        for name, inner in time_fields(cls).items():
            if inner is None:
                _make_time(definitions[cls.__name__]["properties"], name)
    for cls, names in export_file.EXPLICIT_FIELDS.items():
        definitions[cls.__name__]["required"] += names
    for name in ("Summary", "AgentRecord"):
        _make_id(definitions[name]["properties"]["id"])
    for name in export_file.ID_FIELDS:
        _make_id(definitions["Created"]["properties"][name])
    definitions["Header"]["properties"]["version"] = {"const": export_file.VERSION}
    line = definitions["EventLine"]
    _make_time(line["properties"], "at")
    bodies = [{"$ref": f"#/$defs/{cls.__name__}"} for cls in event.BODIES.values()]
    line["if"] = {"properties": {"version": {"const": event.BODY_VERSION}}}
    line["then"] = {"properties": {"body": {"anyOf": bodies}}}
    line["else"] = {"properties": {"body": {"type": "object", "required": ["type"]}}}
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = _one_line(definition["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of a segue export file, version {export_file.VERSION}",
        "description": "The first line is a Header, every further line an EventLine.",
        "anyOf": [{"$ref": "#/$defs/Header"}, {"$ref": "#/$defs/EventLine"}],
        "$defs": dict(sorted(definitions.items())),
    }


def _make_time(properties: dict[str, Any], name: str) -> None:
    nullable = "anyOf" in properties[name]
    properties[name] = {"anyOf": [TIME, {"type": "null"}], "default": None} if nullable else TIME


def _make_id(value: dict[str, Any]) -> None:
    """Add the form of ids to the schema of an id, of one that may be null, or of a list of ids."""
    for schema in (value, value.get("items", {}), *value.get("anyOf", ())):
        if schema.get("type") == "string":
            schema["pattern"] = export_file.ID_PATTERN


def schema_text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def document(text: str) -> str:
    """Return docs/format.md with new tables between its markers."""
    for name, build in SECTIONS.items():
        pattern = rf"(<!-- {name}: .*? -->\n).*?(<!-- end of {name} -->)"
        section = build()
        text, count = re.subn(
            pattern, lambda match, new=section: f"{match[1]}\n{new}\n{match[2]}", text, flags=re.S
        )
        if count != 1:
            raise ValueError(f"docs/format.md needs one pair of markers for {name!r}")
    return text


def _events() -> str:
    return "\n".join(_section(f"`{tag}`", cls) for tag, cls in event.BODIES.items())


def _blocks() -> str:
    return "\n".join(_section(f"`{block.__struct_config__.tag}`", block) for block in BLOCKS)


def _parts() -> str:
    return "\n".join(_section(cls.__name__, cls) for cls in PARTS)


def _section(title: str, cls: Struct) -> str:
    return f"### {title}\n\n{_text(cls)}{_table(cls)}"


# The meaning of fields whose names do not say it, where the text above a table does not either.
NOTES = {
    "at": "when it happened",
    "agent": "the agent that answers",
    "archived_at": "when it was moved to the archive",
    "call_id": "the id of the tool call",
    "ask_id": "the id of the permission request",
    "cwd": "the working directory",
    "content": "what was written or returned",
    "context_size": "the most tokens that the model can read",
    "context_used": "the tokens that the request filled",
    "cost": "millionths of a US dollar",
    "created_at": "when it was created",
    "custom": "the client runs the tool",
    "data": "base64",
    "days": "messages by day (days since 1970, in UTC), without those that a fork inherited",
    "deleted_at": "when it was moved to the trash",
    "deployment_id": "the stored setup that created the session",
    "dialect": "the protocol or tool that it is from",
    "duration": "microseconds",
    "environment_id": "the environment that the tools run in",
    "errors": "the number of `failed` events",
    "estimated_cost": "the part of `cost` that segue computed from list prices",
    "fork": "the session that this one is a fork of",
    "git_branch": "the branch in the working directory",
    "input": "the arguments",
    "last_seq": "the number of events",
    "lines": "the lines of files that tool calls added and removed",
    "locations": "the files that the call touches",
    "memory_store_ids": "the memory stores that the agent can read",
    "messages": "the number of messages of the user and the agent",
    "metadata": "values of the client",
    "mime": "the media type",
    "mode": "the permission mode",
    "models": "tokens and cost by model",
    "name": "the name",
    "native_id": "the id in the tool that the session is from, if it is another one",
    "open_asks": "permission requests without an answer",
    "open_calls": "tool calls without a result",
    "options": "settings by name",
    "origin": "the interface that created the session, or the tool that it is from",
    "output": "what the tool returned, if it is not content",
    "overrides": "settings of this session that replace those of the agent",
    "pending": "the ids of the requests that the session waits for",
    "raw": "as the protocol sent it",
    "resources": "files and repositories that are mounted",
    "roots": "further directories that the agent may use",
    "running_since": "when the current turn began to run",
    "running_time": "how long turns have run in total, in microseconds",
    "server": "the MCP server",
    "source": "always `segue` in an export",
    "stop_reason": "why the turn ended",
    "tag": "a label that a person chose",
    "terminated_at": "when it ended for good",
    "thread": "the subagent",
    "tool_calls": "the number of tool calls",
    "title_by": "the author of the title",
    "turn": "the `id` of the turn's first prompt",
    "turns": "the number of turns",
    "uri": "the address",
    "usage": "tokens and cost",
    "vault_ids": "the vaults whose credentials the agent can use",
    "workspace": "the tenant that the session belongs to",
}


def _text(cls: Struct) -> str:
    """Return the docstring of a struct as paragraphs, without the name of a base class."""
    own = cls.__dict__.get("__doc__")
    paragraphs = (own or "").strip().split("\n\n")
    text = "".join(f"{_with_tags(_one_line(part))}\n\n" for part in paragraphs if part)
    return re.sub(r"\bNone\b", "null", text).replace("ALWAYS_ALLOWED", '"always_allow"')


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _with_tags(text: str) -> str:
    """Return text that names types of events as the file does: `model_asked`."""
    tags = {cls.__name__: tag for tag, cls in event.BODIES.items()}
    pattern = r"(?<![`\w])(" + "|".join(tags) + r")\b(?= event|'s|\.|,| with| whose|$)"
    return re.sub(pattern, lambda match: f"`{tags[match[1]]}`", text)


def _table(cls: Struct) -> str:
    inherited = {"thread", "extra"} if cls is not session.Session else set()
    fields = [field for field in msgspec.structs.fields(cls) if field.name not in inherited]
    if not fields:
        return ""
    times = {name for name, inner in time_fields(cls).items() if inner is None}
    if cls is EventLine:
        times.add("at")
    explicit = export_file.EXPLICIT_FIELDS.get(cls, ())
    rows = "".join(
        f"| `{field.encode_name}` | {_type_name(field.type, is_time=field.name in times)} "
        f"| {'required' if field.name in explicit else _default(field)} "
        f"| {NOTES.get(field.encode_name, '')} |\n"
        for field in fields
    )
    return f"| field | type | if left out | |\n|---|---|---|---|\n{rows}"


def _type_name(kind: Any, *, is_time: bool = False) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return "any JSON"
    if kind == content.Content:
        return "list of [content blocks](#content-blocks)"
    if kind is int and is_time:
        return "time"
    if kind is str and is_time:
        return "time"
    if kind in NAMES:
        return NAMES[kind]
    if origin is typing.Annotated:
        return _type_name(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        kinds = [each for each in arguments if each is not UnsetType]
        names = [_type_name(each, is_time=is_time) for each in kinds]
        return " or ".join(sorted(names, key=lambda name: name == "null"))
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"object of {_type_name(arguments[1])}"
    if kind is session.Session:
        return "[session row](#the-session-row)"
    if kind is AgentRecord:
        return "[record](#agents)"
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _default(field: Any) -> str:
    if field.default is UNSET:
        return "unchanged or unknown"
    if field.default is not msgspec.NODEFAULT:
        return f"`{json.dumps(msgspec.to_builtins(field.default))}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{json.dumps(msgspec.to_builtins(field.default_factory()))}`"
    return "required"


def _store() -> str:
    """Return the columns of the tables and views with sessions, events and agents."""
    migrations = load_migrations("sqlite")
    with closing(sqlite3.connect(":memory:")) as database:
        for migration in migrations:
            database.executescript(migration.sql)
        names = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")
        ]
        tables = [*STORE_TABLES, *sorted(names)]
        columns = {name: list(database.execute(f"PRAGMA table_info ({name})")) for name in tables}
    comments = dict(
        (name, comment)
        for migration in migrations
        for comment, name in re.findall(
            r"((?:^-- .*\n)+)CREATE (?:TABLE|VIEW) (\w+)", migration.sql, re.MULTILINE
        )
    )
    sections = []
    for name in tables:
        text = _one_line(comments.get(name, "").replace("-- ", ""))
        rows = "".join(f"| `{column[1]}` | {column[2] or 'any'} |\n" for column in columns[name])
        sections.append(f"### `{name}`\n\n{text}\n\n| column | type |\n|---|---|\n{rows}")
    return "\n".join(sections)


SECTIONS: dict[str, Callable[[], str]] = {
    "header": lambda: _text(Header) + _table(Header),
    "event line": lambda: _text(EventLine) + _table(EventLine),
    "session row": lambda: _text(session.Session) + _table(session.Session),
    "agents": lambda: _text(AgentRecord) + _table(AgentRecord),
    "events": _events,
    "content blocks": _blocks,
    "parts": _parts,
    "store": _store,
}


def main() -> None:
    SCHEMA_PATH.write_text(schema_text())
    DOCUMENT_PATH.write_text(document(DOCUMENT_PATH.read_text()))


if __name__ == "__main__":
    main()

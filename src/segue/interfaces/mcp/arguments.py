"""The arguments of the tools, with the descriptions that models read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .answers import DEFAULT_CHARS, MAX_CHARS, MAX_RESULTS, MIN_CHARS

Limit = Annotated[int, Meta(ge=1, le=MAX_RESULTS, description="How many results to return.")]
Cursor = Annotated[
    str | None, Meta(description="The cursor of an earlier answer, for the results after it.")
]
MaxChars = Annotated[
    int, Meta(ge=MIN_CHARS, le=MAX_CHARS, description="The most characters of the answer.")
]
SessionId = Annotated[str, Meta(description="The id of a session, or a unique beginning of it.")]


class _Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_chars: MaxChars = DEFAULT_CHARS


class SearchSessions(_Arguments, frozen=True, kw_only=True):
    """Search all earlier agent sessions (of every tool) by words and filters.

    Use it to find out what was tried, decided or learned before. A session matches if it contains
    every word; quote a phrase. Returns titles, ids and snippets; read one with read_session.
    """

    words: Annotated[str, Meta(description='Words that must all occur; "quote a phrase".')] = ""
    project: Annotated[
        str | None, Meta(description="The name of a directory, or the last parts of its path.")
    ] = None
    tool: Annotated[
        str | None, Meta(description="Only sessions of one tool, such as codex or gemini.")
    ] = None
    since: Annotated[str | None, Meta(description="Active since: 7d, 12h or 2026-01-31.")] = None
    until: Annotated[str | None, Meta(description="Last active before: 7d or 2026-01-31.")] = None
    branch: Annotated[str | None, Meta(description="Only sessions of this git branch.")] = None
    file: Annotated[str | None, Meta(description="A file that the session mentions.")] = None
    order: Annotated[
        Literal["best", "newest"], Meta(description="Best match or newest session first.")
    ] = "best"
    limit: Limit = 10
    cursor: Cursor = None


class ReadSession(_Arguments, frozen=True, kw_only=True):
    """Read one session as Markdown: its outline, its prompts, one turn, or around one event.

    Begin with the outline. It numbers the turns and the events.
    """

    session: SessionId
    part: Annotated[
        Literal["outline", "prompts", "turn", "around"] | None,
        Meta(description="What to read; from turn or event if not given, else the outline."),
    ] = None
    turn: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="With part=turn: the number of the turn, from 1; the last unless given."),
    ] = None
    event: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="With part=around: the number of an event."),
    ] = None
    window: Annotated[
        int, Meta(ge=1, le=100, description="With part=around: events before and after it.")
    ] = 10
    cursor: Cursor = None


class SessionsTouching(_Arguments, frozen=True, kw_only=True):
    """List the sessions that read or changed a file or directory, when, and with which diff."""

    path: Annotated[str, Meta(min_length=1, description="A file or directory; a name is enough.")]
    changes_only: Annotated[bool, Meta(description="Leave out sessions that only read it.")] = False
    limit: Limit = 10
    cursor: Cursor = None


class RecentWork(_Arguments, frozen=True, kw_only=True):
    """Show the last sessions of this directory or repository, worktrees included.

    For each: what was asked, what was done, which files changed, and what was left open.
    """

    since: Annotated[str | None, Meta(description="Active since: 7d, 12h or 2026-01-31.")] = None
    limit: Limit = 5
    cursor: Cursor = None


class FindCommand(_Arguments, frozen=True, kw_only=True):
    """Find shell commands that agents ran here, with their outcome.

    Use it to learn how this project is built, tested, deployed or debugged.
    """

    words: Annotated[str, Meta(min_length=1, description="Words of the command: pytest, docker.")]
    outcome: Annotated[
        Literal["any", "succeeded", "failed"], Meta(description="Only commands that ended so.")
    ] = "any"
    limit: Limit = 15
    cursor: Cursor = None


class SimilarFailures(_Arguments, frozen=True, kw_only=True):
    """Find sessions in which an error occurred before, and what was done about it."""

    error: Annotated[str, Meta(min_length=1, description="The error message, or a part of it.")]
    limit: Limit = 5
    cursor: Cursor = None


class SetTitle(_Arguments, frozen=True, kw_only=True):
    """Change the title of a session."""

    session: SessionId
    title: Annotated[str, Meta(min_length=1, max_length=200, description="The new title.")]


class SetTag(_Arguments, frozen=True, kw_only=True):
    """Set the tag of a session, or remove it with an empty one."""

    session: SessionId
    tag: Annotated[str, Meta(max_length=100, description="The new tag.")]


class AddNote(_Arguments, frozen=True, kw_only=True):
    """Store a note with a session; recent_work and outlines show it. It replaces an older one."""

    session: SessionId
    note: Annotated[str, Meta(max_length=2000, description="The note; empty removes it.")]


def schema(arguments: type[_Arguments]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    full = msgspec.json.schema(arguments)
    schema: dict[str, Any] = dict(full["$defs"][arguments.__name__])
    schema.pop("title", None)
    schema.pop("description", None)
    return schema

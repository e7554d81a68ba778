"""Derive the facts of a session (title, prompt, directory, start time) from its entries.

Lists, the index, imports and the SDK's summaries all use these rules. They differ only in how much
of a transcript they read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from . import jsonl
from .jsonl import Entry
from .paths import is_uuid
from .prompt import parse_prompt, replace_lone_surrogates

_PROGRAM_ENTRYPOINTS = frozenset({"sdk-cli", "sdk-ts", "sdk-py"})
_DAEMON_KINDS = frozenset({"daemon", "daemon-worker"})


class LatestValue(NamedTuple):
    """A fact that the last entry of a type decides."""

    field: str  # of the entry
    fact: str  # attribute of SessionFacts


LATEST_VALUES = {
    "custom-title": LatestValue("customTitle", "custom_title"),
    "ai-title": LatestValue("aiTitle", "ai_title"),
    "tag": LatestValue("tag", "tag"),
    "relocated": LatestValue("relocatedCwd", "relocated_cwd"),
    "last-prompt": LatestValue("lastPrompt", "last_prompt"),
    "summary": LatestValue("summary", "summary_hint"),
    "continued-in": LatestValue("continuedInSessionId", "continued_in"),
}


class SessionFacts(msgspec.Struct, gc=False):
    """The facts about a session that its transcript has. Times are microseconds."""

    size: int = 0
    mtime_ns: int = 0
    is_sidechain: bool | None = None
    entrypoint: str | None = None
    session_kind: str | None = None
    first_prompt: str | None = None
    command_fallback: str | None = None
    pasted: str | None = None
    cwd: str | None = None
    created_at: int | None = None
    git_branch: str | None = None
    forked_from: str | None = None  # the parent session of a fork
    # The last value of each; an empty one was cleared.
    custom_title: str | None = None
    ai_title: str | None = None
    tag: str | None = None
    relocated_cwd: str | None = None
    last_prompt: str | None = None
    summary_hint: str | None = None
    continued_in: str | None = None

    @property
    def is_programmatic(self) -> bool:
        """Whether a program, not a person, ran the session."""
        return self.entrypoint in _PROGRAM_ENTRYPOINTS or self.session_kind in _DAEMON_KINDS

    @property
    def prompt(self) -> str | None:
        """The first prompt of a person: a text, or else a slash command."""
        return self.first_prompt or self.command_fallback

    @property
    def generated_title(self) -> str | None:
        """The best title that is not a person's choice; None if nothing can name the session."""
        title = self.ai_title or self.last_prompt or self.summary_hint or self.prompt
        return title or self.pasted or None

    @property
    def is_nameless(self) -> bool:
        """Whether nothing here could name the session in a list."""
        return not (self.custom_title or self.generated_title)

    @property
    def directory(self) -> str | None:
        """The working directory: where the session was relocated to, or else where it began."""
        return self.relocated_cwd or self.cwd

    def learn_start(
        self, is_sidechain: Any, cwd: Any, timestamp: Any, entrypoint: Any, session_kind: Any
    ) -> None:
        """Learn the facts that the first entry to have them decides."""
        if self.is_sidechain is None:
            self.is_sidechain = is_sidechain is True
        if self.cwd is None:
            self.cwd = clean_text(cwd)
        if self.created_at is None:
            self.created_at = jsonl.parse_timestamp(timestamp)
        if entrypoint and self.entrypoint is None:
            self.entrypoint = clean_text(entrypoint)
        if session_kind and self.session_kind is None:
            self.session_kind = clean_text(session_kind)

    def learn_latest(self, fact: str, value: Any) -> None:
        """Learn a fact of LATEST_VALUES."""
        if isinstance(value, str):
            setattr(self, fact, replace_lone_surrogates(value))

    def learn_prompt(self, message: Any) -> None:
        """Learn the first prompt from a user message, unless it is already known."""
        if self.first_prompt:
            return
        prompt = parse_prompt(message)
        self.first_prompt = replace_lone_surrogates(prompt.text) or None
        command = replace_lone_surrogates(prompt.command)
        self.command_fallback = self.command_fallback or command or None
        self.pasted = self.pasted or prompt.pasted or None

    def learn_entry(self, entry: Entry) -> None:
        """Learn everything from one entry. Call it for each entry, in file order."""
        self.learn_start(
            entry.get("isSidechain"),
            entry.get("cwd"),
            entry.get("timestamp"),
            entry.get("entrypoint"),
            entry.get("sessionKind"),
        )
        self.git_branch = clean_text(entry.get("gitBranch")) or self.git_branch
        self.forked_from = fork_parent(entry) or self.forked_from
        kind = entry.get("type")
        if kind in ("user", "assistant"):
            self.continued_in = None  # it counts only if no message follows
        if kind == "user":
            if not entry.get("isMeta") and not entry.get("isCompactSummary"):
                self.learn_prompt(entry.get("message"))
        elif isinstance(kind, str) and kind in LATEST_VALUES:
            field, fact = LATEST_VALUES[kind]
            self.learn_latest(fact, entry.get(field))


def facts_of_entries(entries: Iterable[Entry]) -> SessionFacts:
    """Return what some entries, in file order, say about their session."""
    facts = SessionFacts()
    for entry in entries:
        facts.learn_entry(entry)
    return facts


def fork_parent(entry: Entry) -> str | None:
    """Return the id of the session from which a fork copied this entry, or None."""
    origin = entry.get("forkedFrom")
    id = origin.get("sessionId") if isinstance(origin, dict) else None
    return id.lower() if isinstance(id, str) and is_uuid(id) else None


def clean_text(value: Any) -> str | None:
    """Return a string that is not empty, without lone surrogates, or None."""
    return replace_lone_surrogates(value) if value and isinstance(value, str) else None

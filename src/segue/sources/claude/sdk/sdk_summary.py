"""Convert session facts to the Agent SDK's session info and summaries.

A summary is a dictionary that the SDK keeps in a session store, so its keys are the SDK's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from segue.model.anthropic.sdk_types import SDKSessionInfo
from segue.sources.claude.format.facts import LATEST_VALUES, SessionFacts
from segue.sources.claude.format.jsonl import Entry

# Unlike a transcript's reader, the SDK accepts these fields on an entry of any type.
_LATEST_FIELDS = [
    latest for kind, latest in LATEST_VALUES.items() if kind not in ("tag", "continued-in")
]
_SUMMARY_FACTS = (
    "is_sidechain",
    "cwd",
    "git_branch",
    "command_fallback",
    "pasted",
    *(latest.fact for latest in _LATEST_FIELDS),
)


def fold_entries(summary: dict[str, Any], entries: Iterable[Entry]) -> None:
    """Add the facts of more entries to a summary."""
    facts = facts_from_summary(summary)
    for entry in entries:
        facts.learn_entry(entry)
        for field, fact in _LATEST_FIELDS:
            facts.learn_latest(fact, entry.get(field))
    _update_summary(summary, facts)


def facts_from_summary(summary: dict[str, Any]) -> SessionFacts:
    """Return the facts that a summary holds."""
    facts = SessionFacts(tag=summary.get("tag"))
    for name in _SUMMARY_FACTS:
        setattr(facts, name, summary.get(name))
    if summary.get("first_prompt_locked"):
        facts.first_prompt = summary.get("first_prompt")
    if (milliseconds := summary.get("created_at")) is not None:
        facts.created_at = milliseconds * 1000
    return facts


def _update_summary(summary: dict[str, Any], facts: SessionFacts) -> None:
    for name in _SUMMARY_FACTS:
        if (value := getattr(facts, name)) is not None:
            summary[name] = value
    if facts.created_at is not None:
        summary["created_at"] = facts.created_at // 1000
    summary.pop("tag", None)
    if facts.tag:
        summary["tag"] = facts.tag
    if facts.first_prompt:
        summary["first_prompt"], summary["first_prompt_locked"] = facts.first_prompt, True


def info_from_summary(
    id: str, last_modified: int, summary: dict[str, Any], directory: str | None
) -> SDKSessionInfo | None:
    """Return a summary as session info; None for a session that lists leave out."""
    return info_from_facts(facts_from_summary(summary), id, last_modified, directory=directory)


def info_from_facts(
    facts: SessionFacts,
    id: str,
    last_modified: int,
    *,
    directory: str | None = None,
    title_copy: str | None = None,
    file_size: int | None = None,
) -> SDKSessionInfo | None:
    """Return facts as session info; None for a session that lists leave out.

    `title_copy` is a person's title that is kept outside the transcript.
    """
    own_title = facts.custom_title or title_copy
    summary = own_title or facts.generated_title
    if facts.is_sidechain or not summary:
        return None
    return SDKSessionInfo(
        session_id=id,
        summary=summary,
        last_modified=last_modified,
        file_size=file_size,
        custom_title=own_title or facts.ai_title or None,
        first_prompt=facts.prompt or None,
        git_branch=facts.git_branch or None,
        cwd=facts.directory or directory or None,
        tag=facts.tag or None,
        created_at=None if facts.created_at is None else facts.created_at // 1000,
    )

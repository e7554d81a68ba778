"""What a list shows of a session, folded from its entries one by one.

The names are those of the SDK, which reads what stores keep of it.
"""

from __future__ import annotations

from typing import Any

from segue.sources.claude.format import jsonl
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.prompt import parse_prompt

from .sdk_types import SDKSessionInfo

# An entry's field whose last value counts, and what it is called in a summary.
_LAST = {
    "customTitle": "custom_title",
    "aiTitle": "ai_title",
    "lastPrompt": "last_prompt",
    "summary": "summary_hint",
    "gitBranch": "git_branch",
    "relocatedCwd": "relocated_cwd",
}


def fold_entry(data: dict[str, Any], entry: Entry) -> None:
    """Take one more entry into a summary."""
    data.setdefault("is_sidechain", entry.get("isSidechain") is True)
    at = jsonl.parse_timestamp(entry.get("timestamp"))
    if at is not None:
        data.setdefault("created_at", at // 1000)
    cwd = entry.get("cwd")
    if cwd and isinstance(cwd, str):
        data.setdefault("cwd", cwd)
    for field, name in _LAST.items():
        value = entry.get(field)
        if isinstance(value, str):
            data[name] = value
    kind = entry.get("type")
    if kind == "tag":
        tag = entry.get("tag")
        data.pop("tag", None)
        if tag and isinstance(tag, str):
            data["tag"] = tag
    typed = kind == "user" and not entry.get("isMeta") and not entry.get("isCompactSummary")
    if typed and not data.get("first_prompt_locked"):
        said = parse_prompt(entry.get("message"))
        if said.text:
            data["first_prompt"], data["first_prompt_locked"] = said.text, True
        if said.command:
            data.setdefault("command_fallback", said.command)
        if said.pasted:
            data.setdefault("pasted", said.pasted)


def info_from_summary(
    id: str, modified: int, data: dict[str, Any], directory: str | None
) -> SDKSessionInfo | None:
    """A summary as lists show it; None for a session that they leave out."""
    if data.get("is_sidechain"):
        return None
    typed = data.get("first_prompt") if data.get("first_prompt_locked") else None
    typed = typed or data.get("command_fallback") or None
    title = data.get("custom_title") or data.get("ai_title") or None
    summary = title or data.get("last_prompt") or data.get("summary_hint") or typed
    summary = summary or data.get("pasted")
    if not summary:
        return None
    return SDKSessionInfo(
        session_id=id,
        summary=summary,
        last_modified=modified,
        custom_title=title,
        first_prompt=typed,
        git_branch=data.get("git_branch") or None,
        cwd=data.get("relocated_cwd") or data.get("cwd") or directory or None,
        tag=data.get("tag") or None,
        created_at=data.get("created_at"),
    )

"""Render the rows of the session list.

Python renders them, not a template, because it is faster and a page may have hundreds of rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from typing import NamedTuple
from urllib.parse import urlencode

from segue.hub.sessions.search import SearchMatch
from segue.model import clock
from segue.model.session import Session
from segue.render import format, project_names
from segue.render.text.markdown import sendable

from .filters import Filters

HUE_COUNT = 8  # the colours of projects
MAX_PROJECT_ROWS = 6  # of one project, before a link to all its sessions


class Row(NamedTuple):
    """A session in the list. A search result has a `snippet`, which is HTML, and its `seq`."""

    session: Session
    snippet: str | None = None
    seq: int | None = None
    pinned: bool = False


class Group(NamedTuple):
    """Rows under one heading."""

    key: str
    label: str
    rows: list[Row]


def row_from_match(match: SearchMatch) -> Row:
    """Return the row of a search result, its search terms highlighted."""
    text = sendable(match.snippet)
    html = ""
    end = 0
    for mark in match.marks:
        term = escape(text[mark.start : mark.stop])
        html += f"{escape(text[end : mark.start])}<mark>{term}</mark>"
        end = mark.stop
    html += escape(text[end:])
    if match.copies:
        count = len(match.copies)
        html += f' <span class="quiet">· also in {count} fork{"s" * (count > 1)}</span>'
    # Without an event the title or path matches: the link leads to the beginning.
    return Row(match.session, html, 1 if match.event is None else match.event.seq)


def group_of(session: Session, filters: Filters, now: int, utc_offset: int) -> tuple[str, str]:
    """Return the key and the heading of a session's group.

    Days are those of a reader whose clock is `utc_offset` microseconds ahead of UTC.
    """
    if filters.by_project:
        key = session.directory if project_names.is_project(session.directory) else ""
        return key, project_names.project_name(session.directory)
    label = _recency((session.active_at + utc_offset) // clock.DAY, (now + utc_offset) // clock.DAY)
    return label, label


@lru_cache(maxsize=1024)
def _recency(day: int, today: int) -> str:
    for days, label in ((0, "Today"), (1, "Yesterday"), (7, "Last 7 days"), (30, "Last 30 days")):
        if today - day <= days:
            return label
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%B %Y}"


def group_rows(rows: Sequence[Row], filters: Filters, now: int, utc_offset: int) -> list[Group]:
    """Return the groups of the rows, in the order of their first rows."""
    groups: dict[str, Group] = {}
    for row in rows:
        key, label = group_of(row.session, filters, now, utc_offset)
        groups.setdefault(key, Group(key, label, [])).rows.append(row)
    if not filters.by_project:
        return list(groups.values())
    names = project_names.unique_names(list(groups))
    return [group._replace(label=names[group.key] or group.label) for group in groups.values()]


def render_group(group: Group, filters: Filters, now: int) -> str:
    """Return a group as HTML; of a project only its newest sessions, and a link to all."""
    key, label = _escape(group.key), _escape(group.label)
    listed_rows = group.rows[:MAX_PROJECT_ROWS] if filters.by_project and group.key else group.rows
    rows = "\n".join([render_row(row, filters, now) for row in listed_rows])
    link = ""
    if len(listed_rows) < len(group.rows):
        query_string = escape(filters.with_changes(group="", cwd=sendable(group.key)))
        link = f'\n<a class="rest" href="/{query_string}">All sessions of {label}</a>'
    return (
        f'<section class="group" data-key="{key}">\n<h2 title="{key}">{label}</h2>\n'
        f"<ul>\n{rows}\n</ul>{link}\n</section>"
    )


def render_search_head(filters: Filters, corrected: str | None) -> str:
    """Return what is above search results: the corrected text, and a link to the search page."""
    note = ""
    if corrected:
        note = (
            f'<p class="corrected">Nothing contains “{_escape(filters.search)}”.'
            f" These results are for “{_escape(corrected)}”.</p>\n"
        )
    query = urlencode({"q": filters.search}, errors="replace")
    return f'{note}<a class="best" href="/search?{escape(query)}">Show best matches first</a>\n'


def render_row(row: Row, filters: Filters, now: int) -> str:
    """Return a row as HTML."""
    session = row.session
    at = session.active_at
    query_string = filters.escaped_query_string
    if row.seq:
        query_string += f"{'&amp;' if query_string else '?'}at={row.seq}#e{row.seq}"
    title = _status_dot(session) + _escape(format.title(session))
    snippet = "" if row.snippet is None else f'\n<span class="snippet">{row.snippet}</span>'
    return (
        f'<li class="row" data-id="{session.id}" data-at="{at}">'
        f'<a href="/s/{session.id}{query_string}">'
        f'<span class="first"><span class="title">{title}</span> '
        f"{_time_tag(at)}{format.ago(at, now)}</time></span>{snippet}\n"
        f'<span class="meta">{_project(session.directory)}'
        f"{_branch(session)}{_cost(session)}{_lines(session)}{_badges(row, filters)}"
        "</span></a></li>"
    )


def _branch(session: Session) -> str:
    if not session.git_branch:
        return ""
    return f'\n<span class="branch">{_escape(session.git_branch)}</span>'


def _cost(session: Session) -> str:
    text = format.session_cost(session)
    return f"\n<span>{text}</span>" if text else ""


def _lines(session: Session) -> str:
    lines = session.lines
    if lines is None or not (lines.added or lines.removed):
        return ""
    title = f"{lines.added:,} lines added, {lines.removed:,} removed"
    added, removed = format.short(lines.added), format.short(lines.removed)
    return (
        f'\n<span class="lines" title="{title}"><span class="added">+{added}</span>'
        f' <span class="removed">−{removed}</span></span>'
    )


@lru_cache(maxsize=4096)
def _time_tag(at: int) -> str:
    timestamp = clock.to_rfc3339(at)
    return f'<time datetime="{timestamp}" title="{timestamp[:10]} {timestamp[11:16]} UTC">'


def _status_dot(session: Session) -> str:
    if session.status in ("running", "rescheduling"):
        return '<span class="dot" aria-hidden="true"></span><span class="hidden">running: </span>'
    if session.open_asks:
        return (
            '<span class="dot asks" aria-hidden="true"></span>'
            '<span class="hidden">waiting for an answer: </span>'
        )
    if session.stop_reason == "error":
        return (
            '<span class="dot failed" aria-hidden="true"></span>'
            '<span class="hidden">failed: </span>'
        )
    return ""


@lru_cache(maxsize=1024)
def _project(directory: str) -> str:
    if not project_names.is_project(directory):
        return ""
    name = project_names.project_name(directory)
    hue = zlib.crc32(name.encode("utf-8", "replace")) % HUE_COUNT
    return f'<span class="where hue-{hue}">{_escape(name)}</span>'


def _badges(row: Row, filters: Filters) -> str:
    session = row.session
    html = ' <span class="badge pinned">pinned</span>' if row.pinned else ""
    if session.fork is not None:
        title = _escape(f"fork of {_forked_title(session) or session.fork.session}")
        html += f' <span class="badge" title="{title}">fork</span>'
    if session.source != "segue" and not filters["source"]:
        html += f' <span class="badge">{_escape(session.source)}</span>'
    if session.tag:
        html += f' <span class="badge tag">{_escape(session.tag)}</span>'
    if session.state == "archived":
        html += ' <span class="badge archived">archived</span>'
    return html


def _forked_title(session: Session) -> str:
    """Return the title of the session that a fork copied; "" once the fork was renamed."""
    title = session.title or ""
    return title.removesuffix(" (fork)") if title.endswith(" (fork)") else ""


def _escape(text: str) -> str:
    return escape(sendable(text))

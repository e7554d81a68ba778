"""The list's rows as HTML, made here and not by a template: a page may have hundreds of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from typing import NamedTuple

from segue.hub.sessions.catalog import SearchMatch
from segue.model import clock
from segue.model.session import Session
from segue.render import format, project_names
from segue.render.markdown import sendable

from .filters import Filters

PER_PROJECT = 6  # sessions of one project, before a link to all of them


class Row(NamedTuple):
    """A session in the list; `snippet`, which is HTML, and `seq` say where a search found it."""

    session: Session
    snippet: str | None = None
    seq: int | None = None


class Group(NamedTuple):
    """Rows under one heading."""

    key: str
    label: str
    rows: list[Row]


def found(each: SearchMatch) -> Row:
    """A search's result, its words marked."""
    words = sendable(each.snippet)
    made = ""
    end = 0
    for mark in each.marks:
        made += (
            f"{escape(words[end : mark.start])}<mark>{escape(words[mark.start : mark.stop])}</mark>"
        )
        end = mark.stop
    made += escape(words[end:])
    return Row(each.session, made, None if each.event is None else each.event.seq)


def group_of(session: Session, filters: Filters, now: int, ahead: int) -> tuple[str, str]:
    """The group that a session stands in: its key and its heading.

    Days are those of a reader whose clock is so far ahead of UTC.
    """
    if filters.by_project:
        chosen = project_names.is_project(session.directory)
        return session.directory if chosen else "", project_names.project_name(session.directory)
    label = _recency((session.active_at + ahead) // clock.DAY, (now + ahead) // clock.DAY)
    return label, label


@lru_cache(maxsize=1024)
def _recency(day: int, today: int) -> str:
    for days, label in ((0, "Today"), (1, "Yesterday"), (7, "Last 7 days"), (30, "Last 30 days")):
        if today - day <= days:
            return label
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%B %Y}"


def grouped(rows: Sequence[Row], filters: Filters, now: int, ahead: int) -> list[Group]:
    made: dict[str, Group] = {}
    for row in rows:
        key, label = group_of(row.session, filters, now, ahead)
        made.setdefault(key, Group(key, label, [])).rows.append(row)
    if not filters.by_project:
        return list(made.values())
    names = project_names.unique_names(list(made))
    return [group._replace(label=names[group.key] or group.label) for group in made.values()]


def section(group: Group, filters: Filters, now: int) -> str:
    """A group with its heading; of a project the newest sessions, and where the others are."""
    key, label = _text(group.key), _text(group.label)
    shown = group.rows[:PER_PROJECT] if filters.by_project and group.key else group.rows
    rows = "\n".join([row(each, filters, now) for each in shown])
    rest = ""
    if len(shown) < len(group.rows):
        there = escape(filters.address(group="", cwd=sendable(group.key)))
        rest = f'\n<a class="rest" href="/{there}">All sessions of {label}</a>'
    return (
        f'<section class="group" data-key="{key}">\n<h2 title="{key}">{label}</h2>\n'
        f"<ul>\n{rows}\n</ul>{rest}\n</section>"
    )


def row(each: Row, filters: Filters, now: int) -> str:
    session = each.session
    at = session.active_at
    link = filters.escaped
    if each.seq:
        link += f"{'&amp;' if link else '?'}at={each.seq}#e{each.seq}"
    title = _state(session) + _text(session.title or "Untitled")
    snippet = "" if each.snippet is None else f'\n<span class="snippet">{each.snippet}</span>'
    count = session.messages
    return (
        f'<li class="row" data-id="{session.id}" data-at="{at}"><a href="/s/{session.id}{link}">'
        f'<span class="title">{title}</span>{snippet}\n'
        f'<span class="meta">{_time(at)}{format.ago(at, now)}</time>\n'
        f"{_where(session.directory)}\n"
        f'<span title="{count:,} messages">{format.short(count)} msg</span>'
        f"{_badges(session)}</span></a></li>"
    )


@lru_cache(maxsize=4096)
def _time(at: int) -> str:
    moment = clock.to_rfc3339(at)
    return f'<time datetime="{moment}" title="{moment[:10]} {moment[11:16]} UTC">'


def _state(session: Session) -> str:
    if session.status in ("running", "rescheduling"):
        return '<span class="dot" aria-hidden="true"></span><span class="hidden">running: </span>'
    if session.open_asks:
        return (
            '<span class="dot asks" aria-hidden="true"></span>'
            '<span class="hidden">waiting for an answer: </span>'
        )
    return ""


@lru_cache(maxsize=1024)
def _where(directory: str) -> str:
    if not project_names.is_project(directory):
        return ""
    return f'<span class="where">{_text(project_names.project_name(directory))}</span>'


def _badges(session: Session) -> str:
    made = ""
    if session.fork is not None:
        made += f' <span class="badge" title="{_text(_origin(session))}">fork</span>'
    if session.source != "segue":
        made += f' <span class="badge">{_text(session.source)}</span>'
    if session.tag:
        made += f' <span class="badge tag">{_text(session.tag)}</span>'
    if session.state == "archived":
        made += ' <span class="badge">archived</span>'
    return made


def _origin(session: Session) -> str:
    """What a fork was taken from: by the name that it got from there, while it has it."""
    assert session.fork is not None
    name = session.title or ""
    whole = name.removesuffix(" (fork)")
    return f"fork of {whole if whole != name else session.fork.session}"


def _text(words: str) -> str:
    return escape(sendable(words))

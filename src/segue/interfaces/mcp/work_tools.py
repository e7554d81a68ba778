"""The tools that find files, recent work, commands and failures."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from segue.hub.sessions.search import SearchMatch
from segue.model import search_text
from segue.model.content import plain_text
from segue.model.errors import InvalidInput
from segue.model.event import (
    AgentMessage,
    Event,
    Failed,
    PlanChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.query import Query
from segue.model.session import Session
from segue.model.tools.arguments import changes_of, command_of, path_of
from segue.render.items import outline_line, starts_turn
from segue.render.text.diffs import file_diff
from segue.render.tools.bodies import unified_text
from segue.render.tools.rows import meaning_of, tool_row

from .answers import Answer, parse_time, quoted, shorten, stamp
from .arguments import FindCommand, RecentWork, SessionsTouching, SimilarFailures
from .caller import Call
from .history_tools import NOTE, add_all, file_phrase

_EVENTS_EACH = 60  # of a session, that a tool looks at
_MAX_SEARCHED_PAGES = 4  # of sessions that mention a text but do not match
_MAX_DIFF_CHARS = 1500
_MAX_FOLLOWING = 8  # events after a failure
_MAX_ERROR_WORDS = 12


async def sessions_touching(call: Call, arguments: SessionsTouching) -> str:
    """Return the sessions that read or changed a path."""
    phrase = file_phrase(arguments.path)
    if not search_text.terms(phrase):
        raise InvalidInput(f"path: {arguments.path!r} has no name to search for")
    query = await call.query(text=f'"{phrase}"', archived="include", limit=arguments.limit)

    async def describe(match: SearchMatch) -> str | None:
        events = await call.find_events(match.session, f'"{phrase}"', _EVENTS_EACH)
        lines = []
        for event, tool_call, result in await call.calls(match.session, events):
            line = _touch(tool_call, result, arguments.path, changes_only=arguments.changes_only)
            if line is not None:
                lines.append(f"- {stamp(event.at)} (event {event.seq}) {line}")
        if not lines:
            return None
        return "\n".join([call.line(match.session), *lines])

    return await _answer_matches(call, query, arguments.cursor, arguments.max_chars, describe)


def _touch(
    call: ToolCall, result: ToolResult | None, path: str, *, changes_only: bool
) -> str | None:
    """Return what a call did with a path; None if it did nothing with it."""
    changes = [change for change in changes_of(call, result) if _is_path(change.path, path)]
    if changes:
        diff = "\n".join(unified_text(file_diff(change).lines) for change in changes)
        names = ", ".join(dict.fromkeys(change.path for change in changes))
        return f"changed {names}\n```diff\n{shorten(diff, _MAX_DIFF_CHARS)}\n```"
    if changes_only:
        return None
    if meaning_of(call) == "read" and _is_path(path_of(call), path):
        return f"read {path_of(call)}"
    if meaning_of(call) == "edit" and _is_path(path_of(call), path):
        return f"changed {path_of(call)}"
    command = command_of(call)
    if command and file_phrase(path).split(" ")[-1] in command:
        return f"ran `{shorten(' '.join(command.split()), 200)}`"
    return None


def _is_path(matched_path: str, path: str) -> bool:
    """Return whether a path is the one that is searched for, or is inside of it."""
    name = path.strip("/").removeprefix("./")
    return f"/{name}/" in f"/{matched_path.strip('/')}/"


async def _answer_matches(
    call: Call,
    query: Query,
    cursor: str | None,
    max_chars: int,
    describe: Callable[[SearchMatch], Awaitable[str | None]],
) -> str:
    """Return the descriptions of matching sessions, newest first.

    `describe` returns None for a session that does not match after all. Then more sessions are
    searched, a few pages at most.
    """
    answer = Answer(max_chars)
    number = 0
    for _ in range(_MAX_SEARCHED_PAGES):
        page_cursor, last = cursor, None
        matches, cursor, _corrected = await call.search(query, cursor)
        for match in matches:
            text = await describe(match)
            if text is not None and not answer.add(f"{number + 1}. {text}"):
                if last is not None:
                    page_cursor = await call.cursor_after(query, page_cursor, last)
                rest = f"; use a larger max_chars, or cursor={page_cursor}"
                answer.notes.append(f"More sessions did not fit{rest}")
                return answer.text()
            number += text is not None
            last = match.session
        if cursor is None or number >= query.limit:
            break
    if cursor is not None:
        answer.notes.append(f"Older sessions were not searched: cursor={cursor}")
    if answer.is_empty:
        return "Nothing matches." + "".join(f" {note}" for note in answer.notes)
    return answer.text()


async def recent_work(call: Call, arguments: RecentWork) -> str:
    """Return the requests, the changes and the open work of the last sessions of the scope."""
    query = await call.query(
        active_after=parse_time(arguments.since, "since"), limit=arguments.limit
    )
    sessions, cursor = await call.page(query, arguments.cursor)
    answer = Answer(arguments.max_chars)
    added = add_all(answer, [await _work_of(call, session) for session in sessions])
    if added < len(sessions):
        following = await call.cursor_after(query, arguments.cursor, sessions[added - 1])
        left = f"{len(sessions) - added} more sessions did not fit; use a larger max_chars"
        answer.notes.append(f"{left}, or cursor={following}")
    elif cursor is not None:
        answer.notes.append(f"There are older sessions: cursor={cursor}")
    return "No sessions here." if answer.is_empty else answer.text()


async def _work_of(call: Call, session: Session) -> str:
    events = await call.reader.events(
        call.principal, session.id, limit=3 * _EVENTS_EACH, backward=True
    )
    lines = [call.line(session)]
    prompts = [e.body for e in events if isinstance(e.body, UserMessage) and starts_turn(e.body)]
    lines += [f"Asked: {outline_line(prompt, 200)}" for prompt in prompts[-3:]]
    answers = [e.body for e in events if isinstance(e.body, AgentMessage)]
    texts = [text for answer in answers if (text := plain_text(answer.content).strip())]
    if texts:
        lines.append(f"Answered: {shorten(' '.join(texts[-1].split()), 400)}")
    if changed := _changed_paths(events):
        more = f" and {len(changed) - 8} more" if len(changed) > 8 else ""
        lines.append(f"Changed: {', '.join(changed[:8])}{more}")
    lines += [f"Open: {end}" for end in _open_ends(session, events)]
    if note := call.visible_row(session).metadata.get(NOTE):
        lines.append(f"Note: {note}")
    return "\n   ".join(lines)


def _changed_paths(events: Sequence[Event]) -> list[str]:
    results = {e.body.call_id: e.body for e in events if isinstance(e.body, ToolResult)}
    paths: dict[str, None] = {}
    for event in events:
        if isinstance(event.body, ToolCall):
            for change in changes_of(event.body, results.get(event.body.call_id)):
                if change.path:
                    paths[change.path] = None
    return list(paths)


def _open_ends(session: Session, events: Sequence[Event]) -> list[str]:
    """Return what a session has not finished."""
    ends = []
    if session.status == "running":
        ends.append("a turn is running")
    elif session.pending or session.open_asks:
        ends.append("the turn waits for an answer")
    if session.stop_reason in ("error", "refusal", "max_tokens"):
        ends.append(f"the last turn ended with {session.stop_reason}")
    plans = [event.body for event in events if isinstance(event.body, PlanChanged)]
    if plans:
        ends += [
            f"plan: {entry.content}"
            for entry in plans[-1].entries
            if entry.status in ("pending", "in_progress")
        ]
    last = next((e.body for e in reversed(events) if isinstance(e.body, ToolResult | Failed)), None)
    if isinstance(last, Failed):
        ends.append(f"failed: {shorten(last.message, 200)}")
    elif last is not None and last.status == "failed":
        ends.append(f"the last tool call failed: {shorten(plain_text(last.content), 200)}")
    return ends[:8]


async def find_command(call: Call, arguments: FindCommand) -> str:
    """Return shell commands that contain some words, with their outcome."""
    terms = search_text.terms(arguments.words)
    if not terms:
        raise InvalidInput("words: give at least one word of the command")
    query = await call.query(text=arguments.words, archived="include", limit=arguments.limit)

    async def describe(match: SearchMatch) -> str | None:
        events = await call.find_events(match.session, arguments.words, _EVENTS_EACH)
        lines = []
        for event, tool_call, result in await call.calls(match.session, events):
            command = command_of(tool_call)
            if not command or not all(search_text.text_has_term(term, command) for term in terms):
                continue
            failed = result is not None and _failed(result)
            if arguments.outcome == "failed" and not failed:
                continue
            if arguments.outcome == "succeeded" and (failed or result is None):
                continue
            lines.append(_command_line(event, tool_call, result, command))
        if not lines:
            return None
        return "\n".join([call.line(match.session), *lines])

    return await _answer_matches(call, query, arguments.cursor, arguments.max_chars, describe)


def _failed(result: ToolResult) -> bool:
    return result.status != "completed" or (result.exit_code or 0) != 0


def _command_line(event: Event, call: ToolCall, result: ToolResult | None, command: str) -> str:
    facts = ", ".join(tool_row(call, result).facts)
    if result is None:
        outcome = "no result"
    elif _failed(result):
        outcome = facts or result.status
    else:
        outcome = facts or "succeeded"
    line = (
        f"- {stamp(event.at)} (event {event.seq}, {outcome})\n```sh\n{shorten(command, 800)}\n```"
    )
    output = "" if result is None else plain_text(result.content)
    return line + (f"\n{quoted(_tail(output, 300))}" if output.strip() else "")


def _tail(text: str, width: int) -> str:
    text = text.strip()
    return text if len(text) <= width else "…" + text[-width:]


async def similar_failures(call: Call, arguments: SimilarFailures) -> str:
    """Return sessions in which an error occurred, and what followed it."""
    async for words in _error_queries(call, arguments.error):
        query = await call.query(text=words, archived="include", limit=arguments.limit)

        async def describe(match: SearchMatch, words: str = words) -> str | None:
            events = await call.find_events(match.session, words, _EVENTS_EACH)
            # The first occurrence: what follows it is what was done about it.
            event = next((e for e in reversed(events) if not isinstance(e.body, UserMessage)), None)
            if event is None and events:
                event = events[-1]
            if event is None:
                return None
            return await _failure(call, match.session, event, words)

        text = await _answer_matches(call, query, arguments.cursor, arguments.max_chars, describe)
        if not text.startswith("Nothing matches."):
            return text
    return "No session has this error."


async def _error_queries(call: Call, error: str) -> AsyncIterator[str]:
    """Yield searches for an error, from all of its words to the few that tell most."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    # The last line of a traceback has the error; paths, numbers and ids differ each time.
    text = lines[-1] if lines else error
    words = [w for w in re.findall(r"[A-Za-z_]{3,}", text) if not w.islower() or len(w) > 3]
    words = list(dict.fromkeys(words))[:_MAX_ERROR_WORDS]
    if not words:
        words = search_text.tokens(error)[:_MAX_ERROR_WORDS]
    if not words:
        raise InvalidInput("error: give the text of the error")
    yield " ".join(words)
    longest = sorted(words, key=len, reverse=True)
    for count in (6, 4, 3, 2, 1):
        if count < len(words):
            yield " ".join(longest[:count])


async def _failure(call: Call, session: Session, event: Event, words: str) -> str:
    occurrence, *following = await call.reader.events(
        call.principal, session.id, after=event.seq - 1, limit=_MAX_FOLLOWING + 1
    )
    text = await call.snippet(session, occurrence, words, 300)
    lines = [
        call.line(session),
        f"{stamp(event.at)} (event {event.seq})",
        quoted(text),
        "What followed:",
    ]
    for later in following:
        match later.body:
            case AgentMessage() as body:
                lines.append(f"- said: {shorten(' '.join(plain_text(body.content).split()), 400)}")
            case ToolCall() as body:
                row = tool_row(body, None)
                lines.append(f"- {row.name or row.meaning} {row.subject}".rstrip())
            case ToolResult() as body if _failed(body):
                lines.append(f"- failed: {shorten(plain_text(body.content), 200)}")
            case UserMessage() as body:
                lines.append(f"- asked: {outline_line(body, 200)}")
    return "\n".join(lines)

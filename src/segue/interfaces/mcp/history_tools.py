"""The tools that search and read sessions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from segue.model import search_text
from segue.model.content import plain_text
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import AgentMessage, Event, ToolCall, UserMessage
from segue.model.session import Session
from segue.render import documents
from segue.render.items import outline_line, starts_turn
from segue.render.tools.rows import STEP_WORDS, meaning_of

from .answers import Answer, parse_offset, parse_time, quoted, shorten
from .arguments import ReadSession, SearchSessions
from .caller import Call

NOTE = "note"  # the name of a note in a session's metadata
_MAX_TURNS = 5000
_PAGE_EVENTS = 1000
_MAX_OUTLINE_PROMPT = 160


async def search_sessions(call: Call, arguments: SearchSessions) -> str:
    """Return the sessions that contain some words, or match the filters."""
    words = arguments.words
    if arguments.file:
        words = f'{words} "{file_phrase(arguments.file)}"'.strip()
    since = parse_time(arguments.since, "since")
    until = parse_time(arguments.until, "until", end=True)
    if since is not None and until is not None and since >= until:
        raise InvalidInput(f"since: {arguments.since!r} is not before until: {arguments.until!r}")
    query = await call.query(
        text=words or None,
        project=arguments.project,
        source=call.source(arguments.tool),
        branch=arguments.branch,
        active_after=since,
        active_before=until,
        archived="include",
        limit=arguments.limit,
    )
    answer = Answer(arguments.max_chars)
    if not search_text.terms(words):
        query = replace(query, text=None)
        sessions, following = await call.page(query, arguments.cursor)
        parts = [(session, call.line(session)) for session in sessions]
        ranked = False
    else:
        ranked = arguments.order == "best" and arguments.cursor is None
        matches, following, corrected = await call.search(query, arguments.cursor, ranked=ranked)
        if corrected is not None:
            answer.notes.append(f"No session matches {words!r}. These match {corrected!r}.")
            words = corrected
        parts = []
        for match in matches[: arguments.limit]:
            text = call.line(match.session)
            if match.event is not None:
                snippet = await call.snippet(match.session, match.event, words)
                text += f"\n{quoted(snippet)} (event {match.event.seq})" if snippet else ""
            parts.append((match.session, text))
        if ranked and len(matches) >= arguments.limit:
            answer.notes.append("These are the best matches; use order=newest to page through all.")
    added = add_all(answer, [text for _, text in parts])
    if added < len(parts):
        left = f"{len(parts) - added} more sessions did not fit; use a larger max_chars"
        if ranked:
            answer.notes.append(f"{left}.")
        else:
            cursor = await call.cursor_after(query, arguments.cursor, parts[added - 1][0])
            answer.notes.append(f"{left}, or cursor={cursor}")
    elif following is not None:
        answer.notes.append(f"There are more sessions: cursor={following}")
    if answer.is_empty:
        return "No session matches." + "".join(f" {note}" for note in answer.notes)
    return answer.text()


def add_all(answer: Answer, parts: Sequence[str]) -> int:
    """Add numbered parts. Returns how many did fit."""
    for number, part in enumerate(parts, 1):
        if not answer.add(f"{number}. {part}"):
            return number - 1
    return len(parts)


def file_phrase(path: str) -> str:
    """Return the words that find a path in a search: its last two parts."""
    return " ".join(path.replace('"', " ").rstrip("/").split("/")[-2:]).strip()


async def read_session(call: Call, arguments: ReadSession) -> str:
    """Return one part of a session as Markdown."""
    part = _part(arguments)
    session = await call.session(arguments.session)
    match part:
        case "turn":
            return await _turn(call, session, arguments)
        case "around":
            return await _around(call, session, arguments)
        case "prompts":
            return await _prompts(call, session, arguments)
    return await _outline(call, session, arguments)


def _part(arguments: ReadSession) -> str:
    """Return the part to read. Raises InvalidInput if `turn` or `event` is of another part."""
    part, turn, event = arguments.part, arguments.turn, arguments.event
    if turn is not None and event is not None:
        raise InvalidInput("event: give turn or event, not both")
    if turn is not None and part not in (None, "turn"):
        raise InvalidInput(f"turn: part={part} has no turn; use part=turn")
    if event is not None and part not in (None, "around"):
        raise InvalidInput(f"event: part={part} has no event; use part=around")
    if part is not None:
        return part
    if turn is not None:
        return "turn"
    return "outline" if event is None else "around"


async def prompts_of(call: Call, session: Session) -> list[Event]:
    """Return the prompts that begin the turns of a session."""
    prompts: list[Event] = []
    after = 0
    while len(prompts) < _MAX_TURNS:
        events = await call.reader.events(
            call.principal, session.id, after=after, types=("user_message",), limit=_PAGE_EVENTS
        )
        prompts += [e for e in events if isinstance(e.body, UserMessage) and starts_turn(e.body)]
        if len(events) < _PAGE_EVENTS:
            break
        after = events[-1].seq
    return prompts


async def turn_text(call: Call, session: Session, number: int, max_chars: int) -> str:
    """Return one turn as Markdown. Raises NotFound if the session has no such turn."""
    prompts = await prompts_of(call, session)
    if not 0 < number <= len(prompts):
        raise NotFound(f"session {session.id} has {len(prompts)} turns, and no turn {number}")
    first = prompts[number - 1].seq
    before = prompts[number].seq if number < len(prompts) else session.last_seq + 1
    text = await documents.excerpt(call.reader, call.principal, session, first, before)
    answer = Answer(max_chars)
    answer.add(f"{call.line(session)}\n\nTurn {number} of {len(prompts)}")
    _add_text(answer, text)
    return answer.text()


def _add_text(answer: Answer, text: str, offset: int = 0) -> None:
    """Add as much of a text as fits; the note has the cursor of the rest."""
    rest = text[offset:]
    left = answer.chars_left
    if len(rest) <= left:
        answer.add(rest)
        return
    cut = rest.rfind("\n", 0, left)
    cut = cut if cut > left // 2 else left
    answer.add(rest[:cut])
    answer.notes.append(f"Cut: {len(rest) - cut:,} characters follow. cursor={offset + cut}")


async def _turn(call: Call, session: Session, arguments: ReadSession) -> str:
    prompts = await prompts_of(call, session)
    number = arguments.turn if arguments.turn is not None else len(prompts)
    if number > len(prompts) or not prompts:
        raise NotFound(f"session {session.id} has {len(prompts)} turns, and no turn {number}")
    first = prompts[number - 1].seq
    before = prompts[number].seq if number < len(prompts) else session.last_seq + 1
    text = await documents.excerpt(call.reader, call.principal, session, first, before)
    answer = Answer(arguments.max_chars)
    answer.add(f"Turn {number} of {len(prompts)} of `{session.id}`, events {first} to {before - 1}")
    _add_text(answer, text, parse_offset(arguments.cursor))
    return answer.text()


async def _around(call: Call, session: Session, arguments: ReadSession) -> str:
    if arguments.event is None:
        raise InvalidInput("event: part=around needs the number of an event")
    if arguments.event > session.last_seq:
        raise NotFound(f"session {session.id} has no event {arguments.event}")
    events = [
        *await call.reader.events(
            call.principal,
            session.id,
            before=arguments.event,
            limit=arguments.window,
            backward=True,
        ),
        *await call.reader.events(
            call.principal, session.id, after=arguments.event - 1, limit=arguments.window + 1
        ),
    ]
    first, last = min(e.seq for e in events), max(e.seq for e in events)
    text = await documents.excerpt(call.reader, call.principal, session, first, last + 1)
    answer = Answer(arguments.max_chars)
    answer.add(f"Around event {arguments.event} of `{session.id}`: events {first} to {last}")
    _add_text(answer, text, parse_offset(arguments.cursor))
    return answer.text()


async def _prompts(call: Call, session: Session, arguments: ReadSession) -> str:
    prompts = await prompts_of(call, session)
    skipped = parse_offset(arguments.cursor)
    answer = Answer(arguments.max_chars)
    answer.add(shorten(call.line(session), answer.chars_left // 2))
    for number, event in enumerate(prompts[skipped:], skipped + 1):
        assert isinstance(event.body, UserMessage)
        text = shorten(plain_text(event.body.content), 4000)
        # Each call leads further, also if its first prompt does not fit.
        is_first = number == skipped + 1
        if not answer.add(f"{number}. (event {event.seq}) {text}", cut=is_first):
            answer.notes.append(f"{len(prompts) - number + 1} more prompts: cursor={number - 1}")
            break
    return answer.text()


async def _outline(call: Call, session: Session, arguments: ReadSession) -> str:
    prompts = await prompts_of(call, session)
    skipped = parse_offset(arguments.cursor)
    answer = Answer(arguments.max_chars)
    note = call.visible_row(session).metadata.get(NOTE)
    header = call.line(session) + (f"\nNote: {note}" if note else "")
    answer.add(shorten(header, answer.chars_left // 2))
    for number in range(skipped + 1, len(prompts) + 1):
        event = prompts[number - 1]
        before = prompts[number].seq if number < len(prompts) else None
        assert isinstance(event.body, UserMessage)
        line = f"{number}. (event {event.seq}) {outline_line(event.body, _MAX_OUTLINE_PROMPT)}"
        line += await _turn_facts(call, session, event.seq, before)
        if not answer.add(line, cut=number == skipped + 1):
            answer.notes.append(f"{len(prompts) - number + 1} more turns: cursor={number - 1}")
            break
    if not prompts:
        answer.add("No prompts.")
    return answer.text()


async def _turn_facts(call: Call, session: Session, after: int, before: int | None) -> str:
    """Return what a turn did: counts of its steps, and the beginning of its last answer."""
    events = await call.reader.events(
        call.principal,
        session.id,
        after=after,
        before=before,
        types=("tool_call", "agent_message"),
        limit=500,
    )
    counts: dict[str, int] = {}
    last = ""
    for event in events:
        if isinstance(event.body, ToolCall):
            meaning = meaning_of(event.body)
            counts[meaning] = counts.get(meaning, 0) + 1
        elif isinstance(event.body, AgentMessage):
            last = plain_text(event.body.content) or last
    steps = [f"{n} {STEP_WORDS[meaning][n != 1]}" for meaning, n in counts.items()]
    facts = f"\n   {', '.join(steps)}" if steps else ""
    return facts + (f"\n   → {shorten(' '.join(last.split()), 200)}" if last else "")

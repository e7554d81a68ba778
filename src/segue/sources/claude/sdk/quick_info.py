"""What a list says of a session, from the first and the last 64 KiB of its transcript.

Every value comes from a parsed line of the right type: a tool's input that happens to have a
`customTitle` in it names nothing. For the few sessions of a page the reading is thorough: every
line of the windows is parsed, damaged ones too, and titles and tags are looked for between the
windows. A list of everything parses only the lines that begin as such lines do.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from segue.sources.claude.format import jsonl, safe_io
from segue.sources.claude.format.prompt import (
    Prompt,
    parse_prompt,
    pasted_label,
    replace_lone_surrogates,
)

WINDOW_BYTES = 1 << 16
_PROGRAMS = frozenset({"sdk-cli", "sdk-ts", "sdk-py"})
_DAEMONS = frozenset({"daemon", "daemon-worker"})
# Where the last line of a type has its value, and what the fact is called here.
_LAST = {
    "custom-title": ("customTitle", "custom_title"),
    "ai-title": ("aiTitle", "ai_title"),
    "tag": ("tag", "tag"),
    "relocated": ("relocatedCwd", "relocated"),
    "last-prompt": ("lastPrompt", "last_prompt"),
    "summary": ("summary", "recap"),
    "continued-in": ("continuedInSessionId", "continued_in"),
}
# These hold until the next one, wherever it stands; the others describe the end of the file.
_LASTING = ("custom-title", "ai-title", "tag", "relocated")
_TYPE, _T = b'{"type":', ord("t")
_NAMES = {kind.encode(): name for kind, (_, name) in _LAST.items()}


class ListedLine(msgspec.Struct, gc=False):
    """The fields of an entry that matter to a list."""

    type: Any = None
    isSidechain: Any = None
    isMeta: Any = None
    isCompactSummary: Any = None
    cwd: Any = None
    timestamp: Any = None
    gitBranch: Any = None
    entrypoint: Any = None
    sessionKind: Any = None
    customTitle: Any = None
    aiTitle: Any = None
    tag: Any = None
    lastPrompt: Any = None
    summary: Any = None
    relocatedCwd: Any = None
    continuedInSessionId: Any = None
    message: msgspec.Raw = msgspec.Raw()


_pick = jsonl.FieldDecoder(ListedLine)


class SessionFacts(msgspec.Struct, gc=False):
    """What the transcript of one session says of it."""

    size: int
    mtime_ns: int
    sidechain: bool | None = None
    entrypoint: str | None = None
    session_kind: str | None = None
    first_prompt: str | None = None
    command: str | None = None
    pasted: str | None = None
    cwd: str | None = None
    created_at: int | None = None
    git_branch: str | None = None
    # The last of each; an empty one was cleared.
    custom_title: str | None = None
    ai_title: str | None = None
    tag: str | None = None
    relocated: str | None = None
    last_prompt: str | None = None
    recap: str | None = None
    continued_in: str | None = None

    @property
    def programmatic(self) -> bool:
        """Whether a program ran the session, and nobody sat before it."""
        return self.entrypoint in _PROGRAMS or self.session_kind in _DAEMONS

    @property
    def nameless(self) -> bool:
        """Whether nothing here could stand in a list."""
        named = self.custom_title or self.ai_title or self.last_prompt or self.recap
        return not (named or self.first_prompt or self.command or self.pasted)


def read_facts(path: str, thorough: bool = True) -> SessionFacts | None:
    """What a transcript says; None when it is empty or there is no regular file to read."""
    try:
        descriptor, status = safe_io.open_regular(path)
    except safe_io.UnreadableFile:
        return None
    try:
        return _facts(descriptor, status, thorough) if status.st_size else None
    except OSError:
        return None  # it vanished under us, or its disk did
    finally:
        os.close(descriptor)


def _facts(descriptor: int, status: os.stat_result, thorough: bool) -> SessionFacts:
    size = status.st_size
    found = SessionFacts(size, status.st_mtime_ns)
    head = tail = safe_io.read_at(descriptor, 0, min(size, WINDOW_BYTES))
    # Where the last whole line of the head ends, and where the first one of the tail begins.
    end, begin = len(head), 0
    if size > WINDOW_BYTES:
        tail = safe_io.read_at(descriptor, size - WINDOW_BYTES, WINDOW_BYTES)
        end, begin = max(0, head.rfind(b"\n")), tail.find(b"\n") + 1 or WINDOW_BYTES
    if thorough or not _marks(found, tail, begin, len(tail), _LAST):
        _end(found, reversed(_pick.all(tail[begin:])))
    if found.git_branch is None:
        found.git_branch = _branch(tail)
    if size > WINDOW_BYTES:
        if thorough:
            between = safe_io.read_blocks_backwards(
                descriptor, end and end + 1, size - WINDOW_BYTES + begin
            )
            _lasting(found, itertools.chain(between, [head[:end]]))
        elif not _marks(found, head, 0, end, _LASTING):
            _note(found, reversed(_pick.all(head[:end])), _LASTING)
    _begin(found, _lines(head, end))
    if size > WINDOW_BYTES and not found.first_prompt:
        _unfinished(found, head[end:].lstrip(b"\n"))
        if found.nameless and not found.sidechain:
            _search_on(found, descriptor, end and end + 1)
    return found


def _lines(data: bytes, end: int) -> Iterator[ListedLine]:
    begin = 0
    while begin < end:
        newline = data.find(b"\n", begin, end)
        stop = newline if newline >= 0 else end
        yield from _pick(data[begin:stop])
        begin = stop + 1


def _search_on(found: SessionFacts, descriptor: int, start: int) -> None:
    """Look for a prompt behind the head: long lines before it must not hide the session."""
    for _, size, line in safe_io.read_lines(descriptor, start):
        if size == len(line):
            _begin(found, _pick(line))
        else:
            _unfinished(found, line[:WINDOW_BYTES])
        if not found.nameless:
            return


def _marks(found: SessionFacts, block: bytes, begin: int, end: int, kinds: Collection[str]) -> bool:
    """Facts of the lines that begin with their type: all that are not of the conversation do.

    They are met backwards, since the last counts, and those that cannot add anything are not
    parsed. False when all lines must be: padded ones after a power loss, and those around one that
    says where the session went on, which counts only if no message follows.
    """
    if b"\0" in block:
        return False
    starts, at, newline_before = [], max(begin, end - len(_TYPE)), block.rfind
    while (at := newline_before(b"\n", begin, at)) >= 0:
        if block[at + 3] == _T:  # to look at more of each line would cost more than the rest
            starts.append(at + 1)
    for start in (*starts, begin):
        if not block.startswith(_TYPE, start):
            continue
        stop = block.find(b"\n", start, end)
        line = block[start : stop if stop >= 0 else end]
        name = _NAMES.get(line[8:].partition(b'"')[2].partition(b'"')[0])
        # With a second type in it another line may be glued to this one.
        if (name and getattr(found, name) is None) or line.count(b'"type":') > 1:
            if b'"continued-in"' in line:
                return False
            _note(found, reversed(_pick(line)), kinds)
    return True


def _branch(tail: bytes) -> str | None:
    """The last branch of the tail, even at the end of a line that begins before it."""
    at = len(tail)
    while (at := tail.rfind(b'"gitBranch":', 0, at)) >= 0:
        end = tail.find(b"\n", at)
        if branch := _text(jsonl.tail_field(tail[at : end if end >= 0 else None], "gitBranch")):
            return branch
    return None


def _begin(found: SessionFacts, seen: Iterable[ListedLine]) -> None:
    """Facts that the first lines to have them decide."""
    for line in seen:
        if found.sidechain is None:
            found.sidechain = line.isSidechain is True
        if found.cwd is None:
            found.cwd = _text(line.cwd)
        if found.created_at is None:
            found.created_at = _milliseconds(line.timestamp)
        if line.gitBranch and found.git_branch is None:
            found.git_branch = _text(line.gitBranch)
        if line.entrypoint and found.entrypoint is None:
            found.entrypoint = _text(line.entrypoint)
        if line.sessionKind and found.session_kind is None:
            found.session_kind = _text(line.sessionKind)
        typed = line.type == "user" and not line.isMeta and not line.isCompactSummary
        if typed and not found.first_prompt:
            _prompted(found, parse_prompt(jsonl.decode_raw(line.message)))
        if found.first_prompt and found.cwd and found.created_at is not None:
            return


def _prompted(found: SessionFacts, said: Prompt) -> None:
    found.first_prompt = replace_lone_surrogates(said.text) or None
    found.command = found.command or replace_lone_surrogates(said.command) or None
    found.pasted = found.pasted or said.pasted or None


def _end(found: SessionFacts, seen: Iterable[ListedLine]) -> None:
    """Facts that the last lines to have them decide; `seen` comes backwards."""
    ended = True
    for line in seen:
        if line.gitBranch and found.git_branch is None:
            found.git_branch = _text(line.gitBranch)
        if line.type in ("user", "assistant"):
            ended = False
        elif ended or line.type != "continued-in":
            _note(found, (line,), _LAST)


def note(found: SessionFacts, kind: str, entry: jsonl.Entry) -> None:
    """A fact that the last line to have it decides, when lines are read as they come."""
    if kind in _LAST:
        field, name = _LAST[kind]
        if isinstance(value := entry.get(field), str):
            setattr(found, name, replace_lone_surrogates(value))


def prompted(found: SessionFacts, entry: jsonl.Entry) -> None:
    """What a person asked for, if a user's entry says it."""
    if not entry.get("isMeta") and not entry.get("isCompactSummary"):
        _prompted(found, parse_prompt(entry.get("message")))


def _note(found: SessionFacts, seen: Iterable[ListedLine], kinds: Collection[str]) -> None:
    """Facts that the last line of a type decides; `seen` comes backwards."""
    for line in seen:
        kind = line.type
        if isinstance(kind, str) and kind in kinds:
            field, name = _LAST[kind]
            value = getattr(line, field)
            if isinstance(value, str) and getattr(found, name) is None:
                setattr(found, name, replace_lone_surrogates(value))


def _lasting(found: SessionFacts, blocks: Iterable[bytes]) -> None:
    """Titles, tags and moves out of blocks of whole lines, which come backwards."""
    wanted = [kind for kind in _LASTING if getattr(found, _LAST[kind][1]) is None]
    for block in blocks:
        if not wanted:
            return
        for kind in tuple(wanted):
            # Only programs write these lines, and all of them without spaces.
            needle, at = f'"type":"{kind}"'.encode(), len(block)
            while (at := block.rfind(needle, 0, at)) >= 0 and kind in wanted:
                begin, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
                _note(found, reversed(_pick(block[begin : end if end >= 0 else None])), (kind,))
                if getattr(found, _LAST[kind][1]) is not None:
                    wanted.remove(kind)
                at = begin


def _unfinished(found: SessionFacts, line: bytes) -> None:
    """What the line that the head ends in shows before the cut."""
    if found.sidechain is None:
        found.sidechain = jsonl.head_field(line, "isSidechain") is True
    found.cwd = found.cwd or _text(jsonl.head_field(line, "cwd"))
    found.git_branch = found.git_branch or _text(jsonl.head_field(line, "gitBranch"))
    if found.created_at is None:
        found.created_at = _milliseconds(jsonl.head_field(line, "timestamp"))
    if jsonl.head_field(line, "type") != "user" or b'"tool_result"' in line:
        return
    if jsonl.head_field(line, "isMeta") or jsonl.head_field(line, "isCompactSummary"):
        return
    kinds = {kind for kind in ("image", "document") if f'"type":"{kind}"'.encode() in line}
    found.pasted = found.pasted or pasted_label(kinds) or None
    if not kinds:
        _prompted(
            found,
            parse_prompt(
                {"content": jsonl.head_text(line, "text") or jsonl.head_text(line, "content")}
            ),
        )


def _text(value: Any) -> str | None:
    return replace_lone_surrogates(value) if value and isinstance(value, str) else None


def _milliseconds(value: Any) -> int | None:
    at = jsonl.parse_timestamp(value)
    return None if at is None else at // 1000

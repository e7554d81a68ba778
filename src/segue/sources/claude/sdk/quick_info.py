"""Read a session's facts from the first and the last 64 KiB of its transcript.

Every value comes from a parsed line of the right type: a `customTitle` in a tool's input names
nothing. A thorough read, for the sessions of one page, parses every line of both windows, damaged
ones included, and looks for titles and tags between the windows. A list of all sessions parses
only the lines that begin with one of the types it needs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from segue.sources import safe_io
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.facts import LATEST_VALUES, SessionFacts, clean_text
from segue.sources.claude.format.prompt import pasted_label

WINDOW_BYTES = 1 << 16
# These hold until the next one, wherever it is; the other types describe the end of the file.
_LASTING_TYPES = ("custom-title", "ai-title", "tag", "relocated")
_TYPE_PREFIX, _T = b'{"type":', ord("t")
_FACT_BY_TYPE = {kind.encode(): latest.fact for kind, latest in LATEST_VALUES.items()}


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


_decoder = jsonl.FieldDecoder(ListedLine)
_decode_line, _decode_block = _decoder.decode_line, _decoder.decode_block


def read_facts(path: str, *, thorough: bool = True) -> SessionFacts | None:
    """Return the facts of a transcript; None if it is empty or cannot be read."""
    try:
        descriptor, status = safe_io.open_regular(path)
    except safe_io.UnreadableFile:
        return None
    try:
        return _read_facts(descriptor, status, thorough=thorough) if status.st_size else None
    except OSError:
        return None  # the file or its disk has gone
    finally:
        os.close(descriptor)


def _read_facts(descriptor: int, status: os.stat_result, *, thorough: bool) -> SessionFacts:
    size = status.st_size
    facts = SessionFacts(size, status.st_mtime_ns)
    head = tail = safe_io.read_at(descriptor, 0, min(size, WINDOW_BYTES))
    # Where the last whole line of the head ends, and where the first one of the tail begins.
    head_end, tail_start = len(head), 0
    if size > WINDOW_BYTES:
        tail = safe_io.read_at(descriptor, size - WINDOW_BYTES, WINDOW_BYTES)
        head_end, tail_start = max(0, head.rfind(b"\n")), tail.find(b"\n") + 1 or WINDOW_BYTES
    if thorough or not _learn_typed_lines(facts, tail, tail_start, len(tail), LATEST_VALUES):
        _learn_end(facts, reversed(_decode_block(tail[tail_start:])))
    if facts.git_branch is None:
        facts.git_branch = _last_branch(tail)
    after_head = head_end and head_end + 1
    if size > WINDOW_BYTES:
        if thorough:
            end = size - WINDOW_BYTES + tail_start
            between = safe_io.read_blocks_backwards(descriptor, after_head, end)
            _learn_lasting(facts, itertools.chain(between, [head[:head_end]]))
        elif not _learn_typed_lines(facts, head, 0, head_end, _LASTING_TYPES):
            _learn_latest(facts, reversed(_decode_block(head[:head_end])), _LASTING_TYPES)
    learn_beginning(facts, decode_lines(head, head_end))
    if size > WINDOW_BYTES and not facts.first_prompt:
        _learn_cut_line(facts, head[head_end:].lstrip(b"\n"))
        if facts.is_nameless and not facts.is_sidechain:
            _search_prompt(facts, descriptor, after_head)
    return facts


def decode_lines(data: bytes, end: int) -> Iterator[ListedLine]:
    """Yield the lines of `data` up to `end`, each decoded when it is asked for."""
    start = 0
    while start < end:
        newline = data.find(b"\n", start, end)
        stop = newline if newline >= 0 else end
        yield from _decode_line(data[start:stop])
        start = stop + 1


def _search_prompt(facts: SessionFacts, descriptor: int, start: int) -> None:
    """Look for a prompt after the head, so that long lines before it do not hide the session."""
    for _, size, line in safe_io.read_lines(descriptor, start):
        if size == len(line):
            learn_beginning(facts, _decode_line(line))
        else:
            _learn_cut_line(facts, line[:WINDOW_BYTES])
        if not facts.is_nameless:
            return


def _learn_typed_lines(
    facts: SessionFacts, block: bytes, start: int, end: int, types: Collection[str]
) -> bool:
    """Learn from the lines that begin with their type: all lines except messages do.

    Read backwards, since the last line of a type counts, and skip lines of a known fact. Return
    False if every line must be parsed: padding after a power loss, or a `continued-in` line, which
    counts only if no message follows.
    """
    if b"\0" in block:
        return False
    starts, position, find_newline = [], max(start, end - len(_TYPE_PREFIX)), block.rfind
    while (position := find_newline(b"\n", start, position)) >= 0:
        # Comparing one byte: a look at more of each line would cost more than all the rest.
        if block[position + 3] == _T:
            starts.append(position + 1)
    for line_start in (*starts, start):
        if not block.startswith(_TYPE_PREFIX, line_start):
            continue
        stop = block.find(b"\n", line_start, end)
        line = block[line_start : stop if stop >= 0 else end]
        fact = _FACT_BY_TYPE.get(line[8:].partition(b'"')[2].partition(b'"')[0])
        # With a second type in it, another line may be joined to this one.
        if (fact and getattr(facts, fact) is None) or line.count(b'"type":') > 1:
            if b'"continued-in"' in line:
                return False
            _learn_latest(facts, reversed(_decode_line(line)), types)
    return True


def _last_branch(tail: bytes) -> str | None:
    """Return the last branch in the tail, even if its line begins before the tail."""
    position = len(tail)
    while (position := tail.rfind(b'"gitBranch":', 0, position)) >= 0:
        end = tail.find(b"\n", position)
        line_end = tail[position : end if end >= 0 else None]
        if branch := clean_text(jsonl.tail_field(line_end, "gitBranch")):
            return branch
    return None


def learn_beginning(facts: SessionFacts, lines: Iterable[ListedLine]) -> None:
    """Learn the facts that the first lines decide; stop reading when they are complete."""
    for line in lines:
        facts.learn_start(
            line.isSidechain, line.cwd, line.timestamp, line.entrypoint, line.sessionKind
        )
        if line.gitBranch and facts.git_branch is None:
            facts.git_branch = clean_text(line.gitBranch)
        is_typed = line.type == "user" and not line.isMeta and not line.isCompactSummary
        if is_typed and not facts.first_prompt:
            facts.learn_prompt(jsonl.decode_raw(line.message))
        if facts.first_prompt and facts.cwd and facts.created_at is not None:
            return


def _learn_end(facts: SessionFacts, lines: Iterable[ListedLine]) -> None:
    """Learn the facts that the last lines decide. `lines` are in reverse order."""
    is_after_messages = True
    for line in lines:
        if line.gitBranch and facts.git_branch is None:
            facts.git_branch = clean_text(line.gitBranch)
        if line.type in ("user", "assistant"):
            is_after_messages = False
        elif is_after_messages or line.type != "continued-in":
            _learn_latest(facts, (line,), LATEST_VALUES)


def _learn_latest(facts: SessionFacts, lines: Iterable[ListedLine], types: Collection[str]) -> None:
    """Learn the facts that the last line of a type decides. `lines` are in reverse order."""
    for line in lines:
        if isinstance(line.type, str) and line.type in types:
            field, fact = LATEST_VALUES[line.type]
            if getattr(facts, fact) is None:
                facts.learn_latest(fact, getattr(line, field))


def _learn_lasting(facts: SessionFacts, blocks: Iterable[bytes]) -> None:
    """Learn titles, tags and moves from blocks of whole lines in reverse order."""
    unknown = [kind for kind in _LASTING_TYPES if getattr(facts, LATEST_VALUES[kind].fact) is None]
    for block in blocks:
        if not unknown:
            return
        for kind in tuple(unknown):
            # Only programs write these lines, and all of them without spaces.
            needle, position = f'"type":"{kind}"'.encode(), len(block)
            while (position := block.rfind(needle, 0, position)) >= 0 and kind in unknown:
                start, end = block.rfind(b"\n", 0, position) + 1, block.find(b"\n", position)
                line = block[start : end if end >= 0 else None]
                _learn_latest(facts, reversed(_decode_line(line)), (kind,))
                if getattr(facts, LATEST_VALUES[kind].fact) is not None:
                    unknown.remove(kind)
                position = start


def _learn_cut_line(facts: SessionFacts, line: bytes) -> None:
    """Learn from a line whose end is beyond the head."""
    facts.learn_start(
        jsonl.head_field(line, "isSidechain"),
        jsonl.head_field(line, "cwd"),
        jsonl.head_field(line, "timestamp"),
        None,
        None,
    )
    facts.git_branch = facts.git_branch or clean_text(jsonl.head_field(line, "gitBranch"))
    if jsonl.head_field(line, "type") != "user" or b'"tool_result"' in line:
        return
    if jsonl.head_field(line, "isMeta") or jsonl.head_field(line, "isCompactSummary"):
        return
    kinds = {kind for kind in ("image", "document") if f'"type":"{kind}"'.encode() in line}
    facts.pasted = facts.pasted or pasted_label(kinds) or None
    if not kinds:
        text = jsonl.head_text(line, "text") or jsonl.head_text(line, "content")
        facts.learn_prompt({"content": text})

"""What a session's history holds of transcripts: which lines are here already, and which agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from segue.model.event import Event, Foreign, ToolCall, ToolResult, Usage
from segue.model.session import Session, Thread
from segue.sources.claude.events.translator import usage
from segue.sources.claude.format.jsonl import Entry

from . import event_codec, transcript_line, transcript_writer
from .transcript_line import TranscriptLine


class ImportDiff:
    """What of a session's transcripts is in its history already: lines by what they come to."""

    def __init__(self, session: Session) -> None:
        self.event_ids: set[str] = set()
        self._native: set[str] = set()
        self._lines: dict[str, Counter[bytes]] = {"": Counter()}
        self._exported: Counter[bytes] = Counter()  # lines as an export has them, where they differ
        self._writers = (
            transcript_writer.TranscriptWriter(session, joined=False),
            transcript_writer.TranscriptWriter(session),
        )

    def add_event(self, event: Event) -> None:
        self.event_ids.add(event.id)
        if event_codec.line_info(event) is None:
            self._native.add(event.id)
        self._note(*(writer.write(event) for writer in self._writers))
        for _, path in event_codec.subagent_events([event]):
            if event_codec.is_deletion_marker(event.body):
                self._lines.pop(path, None)
            else:
                found = self._lines.setdefault(path, Counter())
                found[
                    _mark(event_codec.restore_line(event.body, event_codec.line_info(event) or {}))
                ] += 1

    def finish(self) -> None:
        self._note(*(writer.finish() for writer in self._writers))

    def _note(self, lines: Iterable[TranscriptLine], joined: Iterable[TranscriptLine]) -> None:
        for line, exported in zip(lines, joined, strict=True):
            self._lines[""][_mark(line)] += 1
            if exported != line:
                self._exported[_mark(exported)] += 1

    def missing_lines(self, path: str, lines: Iterable[TranscriptLine]) -> Iterator[TranscriptLine]:
        """The lines of a transcript that are not here, or not as often."""
        counts = [self._lines.get(path, Counter()), *([] if path else [self._exported])]
        for line in lines:
            mark = _mark(line)
            for left in counts:
                if left[mark]:
                    left[mark] -= 1
                    break
            else:
                if path or not self._was_told(line):
                    yield line

    def _was_told(self, line: TranscriptLine) -> bool:
        """Whether Claude Code said it to us, too, so that its event is here and no line of it."""
        uuids = [transcript_line.nonempty_text(entry.get("uuid")) for entry in line.entries]
        return bool(uuids) and all(uuid and uuid.lower() in self._native for uuid in uuids)


def _mark(line: TranscriptLine) -> bytes:
    return blake2b(line.data(), digest_size=16).digest()


class SubagentThreads:
    """The agents whose transcripts a session's history keeps, as its events are taken."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}
        self._started: dict[str, int] = {}
        self._paths: dict[str, Entry] = {}  # and what is told of each
        self._times: dict[str, tuple[int, int]] = {}
        self._spent: dict[str, dict[str, Usage]] = {}  # by path and response

    def add_event(self, event: Event) -> None:
        body = event.body
        if isinstance(body, ToolCall):
            self._calls[body.call_id] = event.seq
        elif isinstance(body, ToolResult):
            told = ((event_codec.line_info(event) or {}).get("entry") or {}).get("toolUseResult")
            if isinstance(told, dict) and (
                agent := transcript_line.nonempty_text(told.get("agentId"))
            ):
                self._started[agent] = self._calls.get(body.call_id, event.seq)
        for _, path in event_codec.subagent_events([event]):
            if event_codec.is_deletion_marker(body):
                self._paths.pop(path, None)
                continue
            about = self._paths.setdefault(path, {})
            self._times[path] = self._times.get(path, (event.at, 0))[0], event.at
            if isinstance(body, Foreign) and isinstance(body.raw, dict):
                about.update(
                    body.raw if body.raw.get("type") == transcript_line.SUBAGENT_METADATA else {}
                )
                message = body.raw.get("message")
                if isinstance(message, dict) and isinstance(message.get("usage"), dict):
                    spent = self._spent.setdefault(path, {})
                    spent[str(message.get("id"))] = usage(message["usage"])

    def threads(self) -> dict[str, Thread]:
        """By the path of its transcript, in the order of their beginning."""
        threads = {path: self._thread(path, about) for path, about in self._paths.items()}
        return dict(sorted(threads.items(), key=lambda each: (each[1].seq or 0, each[1].id)))

    def _thread(self, path: str, about: Entry) -> Thread:
        id = path.rpartition("/")[2].removeprefix("agent-")
        seq = self._started.get(id) or self._calls.get(
            transcript_line.nonempty_text(about.get("toolUseId")) or ""
        )
        parent = transcript_line.nonempty_text(about.get("parentAgentId"))
        kind, title = (
            transcript_line.nonempty_text(about.get("agentType")),
            transcript_line.nonempty_text(about.get("description")),
        )
        begun, ended = self._times[path]
        spent = sum(self._spent.get(path, {}).values(), Usage())
        return Thread(id, seq, parent, kind, title, begun, ended, spent)

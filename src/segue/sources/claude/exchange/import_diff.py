"""Compare a session's stored events with its transcripts: missing lines, and subagents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from hashlib import blake2b

from segue.model.event import AnyBody, Event, Foreign, ToolCall, ToolResult, Usage
from segue.model.session import Session, Thread
from segue.sources.claude.events.translator import parse_usage
from segue.sources.claude.format.jsonl import Entry

from .event_codec import is_deletion_marker, line_info, restore_line, subagent_events
from .transcript_line import SUBAGENT_METADATA, TranscriptLine, nonempty_text
from .transcript_writer import TranscriptWriter


class ImportDiff:
    """Find the lines of transcripts that a session's events do not hold yet.

    Lines are compared by a digest of their bytes, and counted, as a line may occur twice.
    """

    def __init__(self, session: Session) -> None:
        self.event_ids: set[str] = set()
        self._native_ids: set[str] = set()  # of events that were not imported
        self._digests: dict[str, Counter[bytes]] = {"": Counter()}  # by the transcript's path
        self._relinked: Counter[bytes] = Counter()  # of lines that an export would change
        self._writer = TranscriptWriter(session, relink=False)
        self._relinking_writer = TranscriptWriter(session)

    def add_event(self, event: Event) -> None:
        """Add the next stored event."""
        self.event_ids.add(event.id)
        if line_info(event) is None:
            self._native_ids.add(event.id)
        self._add_lines(self._writer.write(event), self._relinking_writer.write(event))
        for _, path in subagent_events([event]):
            if is_deletion_marker(event.body):
                self._digests.pop(path, None)
            else:
                line = restore_line(event.body, line_info(event) or {})
                self._digests.setdefault(path, Counter())[_digest(line)] += 1

    def finish(self) -> None:
        """End the comparison's first part, after the last stored event."""
        self._add_lines(self._writer.finish(), self._relinking_writer.finish())

    def _add_lines(
        self, lines: Iterable[TranscriptLine], relinked_lines: Iterable[TranscriptLine]
    ) -> None:
        for line, relinked in zip(lines, relinked_lines, strict=True):
            self._digests[""][_digest(line)] += 1
            if relinked != line:
                self._relinked[_digest(relinked)] += 1

    def missing_lines(self, path: str, lines: Iterable[TranscriptLine]) -> Iterator[TranscriptLine]:
        """Return the lines of a transcript that are not stored, or not as often."""
        remaining = [self._digests.get(path, Counter()), *([] if path else [self._relinked])]
        for line in lines:
            digest = _digest(line)
            for counts in remaining:
                if counts[digest]:
                    counts[digest] -= 1
                    break
            else:
                if path or not is_native_line(line, self._native_ids):
                    yield line


def is_native_line(line: TranscriptLine, native_ids: Container[str]) -> bool:
    """Return whether a line repeats events that were stored while segue ran the turn itself.

    `native_ids` are the ids of stored events that were not imported.
    """
    uuids = [nonempty_text(entry.get("uuid")) for entry in line.entries]
    return bool(uuids) and all(uuid and uuid.lower() in native_ids for uuid in uuids)


def _digest(line: TranscriptLine) -> bytes:
    return blake2b(line.data(), digest_size=16).digest()


class SubagentThreads:
    """Collect the subagents whose transcripts a session's events carry."""

    def __init__(self) -> None:
        self._call_seqs: dict[str, int] = {}  # by the tool call's id
        self._start_seqs: dict[str, int] = {}  # by the subagent's id
        self._metadata: dict[str, Entry] = {}  # from here on by the subagent's path
        self._times: dict[str, tuple[int, int]] = {}  # of its first and last event
        self._usage: dict[str, dict[str, Usage]] = {}  # of each response

    def add_event(self, event: Event) -> None:
        """Add the next stored event."""
        body = event.body
        if isinstance(body, ToolCall):
            self._call_seqs[body.call_id] = event.seq
        elif isinstance(body, ToolResult):
            result = ((line_info(event) or {}).get("entry") or {}).get("toolUseResult")
            if isinstance(result, dict) and (agent := nonempty_text(result.get("agentId"))):
                self._start_seqs[agent] = self._call_seqs.get(body.call_id, event.seq)
        for _, path in subagent_events([event]):
            if is_deletion_marker(body):
                self._metadata.pop(path, None)
                continue
            self._times[path] = self._times.get(path, (event.at, 0))[0], event.at
            self._add_entry(path, body)

    def _add_entry(self, path: str, body: AnyBody) -> None:
        metadata = self._metadata.setdefault(path, {})
        if not isinstance(body, Foreign) or not isinstance(body.raw, dict):
            return
        if body.raw.get("type") == SUBAGENT_METADATA:
            metadata.update(body.raw)
        message = body.raw.get("message")
        if isinstance(message, dict) and isinstance(message.get("usage"), dict):
            response_id = str(message.get("id"))
            self._usage.setdefault(path, {})[response_id] = parse_usage(message["usage"])

    def threads(self) -> dict[str, Thread]:
        """Return the threads by the paths of their transcripts, in the order of their start."""
        threads = {path: self._thread(path) for path in self._metadata}
        return dict(sorted(threads.items(), key=lambda item: (item[1].seq or 0, item[1].id)))

    def _thread(self, path: str) -> Thread:
        id = path.rpartition("/")[2].removeprefix("agent-")
        metadata = self._metadata[path]
        call_id = nonempty_text(metadata.get("toolUseId")) or ""
        created_at, active_at = self._times[path]
        return Thread(
            id=id,
            seq=self._start_seqs.get(id) or self._call_seqs.get(call_id),
            parent=nonempty_text(metadata.get("parentAgentId")),
            kind=nonempty_text(metadata.get("agentType")),
            title=nonempty_text(metadata.get("description")),
            created_at=created_at,
            active_at=active_at,
            usage=sum(self._usage.get(path, {}).values(), Usage()),
        )

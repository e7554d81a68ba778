"""Compare a session's stored events with its transcripts: missing lines, and subagents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from hashlib import blake2b

from segue.model.event import AnyBody, Event, Foreign
from segue.model.session import Session, Thread
from segue.sources.claude.events import subagent_threads, transcript_summary, usage
from segue.sources.claude.events.summary import TranscriptSummary
from segue.sources.claude.format.jsonl import Entry, parse_text
from segue.sources.claude.format.subagents import agent_id_from_path

from .event_codec import is_deletion_marker, line_info, restore_line, subagent_events
from .transcript_line import SUBAGENT_METADATA, TranscriptLine
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
    uuids = [parse_text(entry.get("uuid")) for entry in line.entries]
    return bool(uuids) and all(uuid and uuid.lower() in native_ids for uuid in uuids)


def _digest(line: TranscriptLine) -> bytes:
    return blake2b(line.data(), digest_size=16).digest()


class SubagentThreads:
    """Collect the subagents whose transcripts a session's events carry."""

    def __init__(self) -> None:
        self._session = TranscriptSummary()  # the calls that started subagents
        self._subagents: dict[str, TranscriptSummary] = {}  # by the subagent's path
        self._metadata: dict[str, Entry] = {}  # by the subagent's path

    def add_event(self, event: Event) -> None:
        """Add the next stored event."""
        entry = (line_info(event) or {}).get("entry") or {}
        transcript_summary.add_subagent(self._session, entry, event.body, event.seq)
        for _, path in subagent_events([event]):
            if is_deletion_marker(event.body):
                self._subagents.pop(path, None)
            else:
                self._add_entry(path, event.body)

    def _add_entry(self, path: str, body: AnyBody) -> None:
        summary = self._subagents.setdefault(path, TranscriptSummary())
        if not isinstance(body, Foreign) or not isinstance(body.raw, dict):
            return
        if body.raw.get("type") == SUBAGENT_METADATA:
            self._metadata[path] = body.raw
        at = transcript_summary.add_entry(summary, body.raw)
        usage.add_usage(summary, body.raw, at, inherited=False)

    def threads(self) -> dict[str, Thread]:
        """Return the threads by the paths of their transcripts, in the order of their start."""
        threads = {
            path: subagent_threads.thread_from_summary(
                agent_id_from_path(path), self._metadata.get(path, {}), summary, self._session
            )
            for path, summary in self._subagents.items()
        }
        return dict(sorted(threads.items(), key=lambda item: subagent_threads.start_order(item[1])))

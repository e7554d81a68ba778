"""What a session's history holds of transcripts: which lines are here already, and which agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from segue.model.event import Event, Foreign, ToolCall, ToolResult, Usage
from segue.model.session import Session, Thread
from segue.sources.claude.events.translator import usage
from segue.sources.claude.format.jsonl import Entry

from . import event_codec
from .event_codec import Line


class Here:
    """What of a session's transcripts is in its history already: lines by what they come to."""

    def __init__(self, session: Session) -> None:
        self.ids: set[str] = set()
        self._native: set[str] = set()
        self._lines: dict[str, Counter[bytes]] = {"": Counter()}
        self._exported: Counter[bytes] = Counter()  # lines as an export has them, where they differ
        self._tellings = event_codec.Telling(session, joined=False), event_codec.Telling(session)

    def take(self, event: Event) -> None:
        self.ids.add(event.id)
        if event_codec.carried(event) is None:
            self._native.add(event.id)
        self._note(*(telling.take(event) for telling in self._tellings))
        for _, path in event_codec.of_agents([event]):
            if event_codec.is_end(event.body):
                self._lines.pop(path, None)
            else:
                found = self._lines.setdefault(path, Counter())
                found[_mark(event_codec.line_of(event.body, event_codec.carried(event) or {}))] += 1

    def end(self) -> None:
        self._note(*(telling.rest() for telling in self._tellings))

    def _note(self, lines: Iterable[Line], joined: Iterable[Line]) -> None:
        for line, exported in zip(lines, joined, strict=True):
            self._lines[""][_mark(line)] += 1
            if exported != line:
                self._exported[_mark(exported)] += 1

    def beyond(self, path: str, lines: Iterable[Line]) -> Iterator[Line]:
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

    def _was_told(self, line: Line) -> bool:
        """Whether Claude Code said it to us, too, so that its event is here and no line of it."""
        uuids = [event_codec.text_of(entry.get("uuid")) for entry in line.entries]
        return bool(uuids) and all(uuid and uuid.lower() in self._native for uuid in uuids)


def _mark(line: Line) -> bytes:
    return blake2b(line.data(), digest_size=16).digest()


class Threads:
    """The agents whose transcripts a session's history keeps, as its events are taken."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}
        self._started: dict[str, int] = {}
        self._paths: dict[str, Entry] = {}  # and what is told of each
        self._times: dict[str, tuple[int, int]] = {}
        self._spent: dict[str, dict[str, Usage]] = {}  # by path and response

    def take(self, event: Event) -> None:
        body = event.body
        if isinstance(body, ToolCall):
            self._calls[body.call_id] = event.seq
        elif isinstance(body, ToolResult):
            told = ((event_codec.carried(event) or {}).get("entry") or {}).get("toolUseResult")
            if isinstance(told, dict) and (agent := event_codec.text_of(told.get("agentId"))):
                self._started[agent] = self._calls.get(body.call_id, event.seq)
        for _, path in event_codec.of_agents([event]):
            if event_codec.is_end(body):
                self._paths.pop(path, None)
                continue
            about = self._paths.setdefault(path, {})
            self._times[path] = self._times.get(path, (event.at, 0))[0], event.at
            if isinstance(body, Foreign) and isinstance(body.raw, dict):
                about.update(body.raw if body.raw.get("type") == event_codec.ABOUT else {})
                message = body.raw.get("message")
                if isinstance(message, dict) and isinstance(message.get("usage"), dict):
                    spent = self._spent.setdefault(path, {})
                    spent[str(message.get("id"))] = usage(message["usage"])

    def found(self) -> dict[str, Thread]:
        """By the path of its transcript, in the order of their beginning."""
        threads = {path: self._thread(path, about) for path, about in self._paths.items()}
        return dict(sorted(threads.items(), key=lambda each: (each[1].seq or 0, each[1].id)))

    def _thread(self, path: str, about: Entry) -> Thread:
        id = path.rpartition("/")[2].removeprefix("agent-")
        seq = self._started.get(id) or self._calls.get(
            event_codec.text_of(about.get("toolUseId")) or ""
        )
        parent = event_codec.text_of(about.get("parentAgentId"))
        kind, title = (
            event_codec.text_of(about.get("agentType")),
            event_codec.text_of(about.get("description")),
        )
        begun, ended = self._times[path]
        spent = sum(self._spent.get(path, {}).values(), Usage())
        return Thread(id, seq, parent, kind, title, begun, ended, spent)

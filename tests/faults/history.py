"""What clients did with a store, as they reported it, and whether the store agrees.

The checks know nothing of how segue works: they compare the acknowledged operations, with the times
at which each began and ended, with the events that are stored in the end.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from segue.model.event import Event, StatusChanged


@dataclass
class Operation:
    """An operation of a client; without `ended`, it may have taken effect or not."""

    do: str
    session: str
    id: str
    begun: float
    ended: float | None = None
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def is_acknowledged(self) -> bool:
        return self.ended is not None


def read_history(reports: Iterable[dict[str, Any]]) -> list[Operation]:
    """Return the operations of reports, which may be those of several processes."""
    operations: dict[str, Operation] = {}
    for line in reports:
        if line["says"] == "begun":
            operations[line["number"]] = Operation(
                line["do"], line["session"], line["id"], line["at"]
            )
        elif line["says"] == "ok":
            operation = operations[line["number"]]
            operation.ended, operation.result = line["at"], line
    return list(operations.values())


def find_problems(history: Sequence[Operation], stored: Mapping[str, Sequence[Event]]) -> list[str]:
    """Return every way in which the stored events of sessions contradict a history."""
    return [
        *_lost_or_repeated(history, stored),
        *_stale_reads(history),
        *_false_reads(history, stored),
        *_incomplete_lists(history),
        *(problem for id, events in stored.items() for problem in _gaps(id, events)),
        *(problem for id, events in stored.items() for problem in _overlaps(id, events)),
    ]


def _lost_or_repeated(
    history: Sequence[Operation], stored: Mapping[str, Sequence[Event]]
) -> Iterable[str]:
    """Every acknowledged event is stored exactly once, any other one at most once."""
    counts = Counter(event.id for events in stored.values() for event in events)
    seqs = {(id, event.id): event.seq for id, events in stored.items() for event in events}
    cancels: dict[str, float] = defaultdict(float)  # when the last cancel of a session ended
    for operation in history:
        if operation.do == "cancel":
            ended = float("inf") if operation.ended is None else operation.ended
            cancels[operation.session] = max(cancels[operation.session], ended)
    for operation in history:
        if counts[operation.id] > 1:
            yield f"{operation.do} {operation.id} is stored {counts[operation.id]} times"
        if not operation.is_acknowledged:
            continue
        if "created" in operation.result and operation.id not in stored:
            yield f"session {operation.id} is lost"
        if "seq" in operation.result:
            seq = seqs.get((operation.session, operation.id))
            if seq != operation.result["seq"]:
                yield f"event {operation.id} has seq {seq}, not {operation.result['seq']}"
        withdrawn = cancels[operation.session] > operation.begun
        if "prompted" in operation.result and not counts[operation.id] and not withdrawn:
            yield f"prompt {operation.id} never began"


def _stale_reads(history: Sequence[Operation]) -> Iterable[str]:
    """A read sees what was acknowledged before it began, and a later append follows it."""
    last_seqs = _LastSeqs(history)
    for operation in history:
        session, result = operation.session, operation.result
        if "seq" not in result and "last_seq" not in result:
            continue
        known = last_seqs.before(session, operation.begun)
        if result.get("last_seq", known) < known:
            yield f"a read of {session} misses event {known}"
        if result.get("seq", known + 1) <= known:
            yield f"{session}: event {result['seq']} was stored after event {known}"


class _LastSeqs:
    """The highest seq of each session that was acknowledged before a time."""

    def __init__(self, history: Sequence[Operation]) -> None:
        acknowledged: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for operation in history:
            seq = operation.result.get("seq", operation.result.get("last_seq"))
            if seq is not None and operation.ended is not None:
                acknowledged[operation.session].append((operation.ended, seq))
        self._times: dict[str, list[float]] = {}
        self._seqs: dict[str, list[int]] = {}
        for session, entries in acknowledged.items():
            entries.sort()
            self._times[session] = [ended for ended, _ in entries]
            self._seqs[session] = list(accumulate((seq for _, seq in entries), max))

    def before(self, session: str, time: float) -> int:
        count = bisect_left(self._times.get(session, []), time)
        return self._seqs[session][count - 1] if count else 0


def _false_reads(
    history: Sequence[Operation], stored: Mapping[str, Sequence[Event]]
) -> Iterable[str]:
    """Every event that was read is stored in the end, with the same number."""
    ids = {id: [event.id for event in events] for id, events in stored.items()}
    for read in history:
        for seq, event in read.result.get("events", ()):
            if ids.get(read.session, [])[seq - 1 : seq] != [event]:
                yield f"{read.session}: {event} was read as event {seq} and is not stored as that"


def _incomplete_lists(history: Sequence[Operation]) -> Iterable[str]:
    """All pages together have every session that was created before the first page."""
    created = [operation for operation in history if "created" in operation.result]
    for listing in history:
        if "listed" not in listing.result:
            continue
        older = {
            operation.id
            for operation in created
            if operation.ended is not None and operation.ended < listing.begun
        }
        for id in older - set(listing.result["listed"]):
            yield f"a list that began at {listing.begun:.3f} misses session {id}"


def _gaps(session: str, events: Sequence[Event]) -> Iterable[str]:
    """Events are numbered from 1 without gaps, in the order in which they are read."""
    for seq, event in enumerate(events, 1):
        if event.seq != seq:
            yield f"{session}: event {event.seq} is in place {seq}"
            return


def _overlaps(session: str, events: Sequence[Event]) -> Iterable[str]:
    """One turn runs at a time and once, and each event of a turn is stored while it runs."""
    open_turn: str | None = None
    ended: set[str | None] = set()
    for event in events:
        body = event.body
        if isinstance(body, StatusChanged):
            if body.status == "running":
                if open_turn not in (None, body.turn):
                    yield f"{session}: {body.turn} begins at {event.seq} while {open_turn} runs"
                if body.turn in ended:
                    yield f"{session}: {body.turn} runs again at {event.seq}"
                open_turn = body.turn
            elif body.status == "idle" and body.stop_reason != "requires_action":
                if body.turn != open_turn:
                    yield f"{session}: {body.turn} ends at {event.seq} while {open_turn} runs"
                ended.add(open_turn)
                open_turn = None
        elif (turn := getattr(body, "turn", None)) is not None and turn != open_turn:
            yield f"{session}: {event.type} {event.seq} of {turn} while {open_turn} runs"
    if open_turn is not None:
        yield f"{session}: {open_turn} never ends"

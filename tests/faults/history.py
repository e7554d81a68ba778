"""What clients did with a store, as they reported it, and whether the store agrees.

The checks know nothing of how segue works: they compare the acknowledged operations, with the times
at which each began and ended, with the events that are stored in the end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
        *_incomplete_lists(history),
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
    """A read sees what was acknowledged before it began."""
    appends = [operation for operation in history if "seq" in operation.result]
    for read in history:
        if "last_seq" not in read.result:
            continue
        for append in appends:
            is_older = append.ended is not None and append.ended < read.begun
            is_missed = append.result["seq"] > read.result["last_seq"]
            if append.session == read.session and is_older and is_missed:
                yield f"a read of {read.session} misses event {append.result['seq']}"


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
            yield f"{session}: event {event.seq} of {turn} while {open_turn} runs"
    if open_turn is not None:
        yield f"{session}: {open_turn} never ends"

"""Validate export files: every line against the format, and every reference between lines.

The file is read line by line. Of the events, only ids are kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from segue.model import projection
from segue.model.errors import SegueError
from segue.model.event import AgentRef, ConfigChanged, Created, Event
from segue.model.principal import LOCAL
from segue.model.requests.spans import begun_request
from segue.model.session import Session

from . import export_file
from .export_file import Header, InvalidLine

# The interfaces of segue. Another tool's transcript may lack what its lines refer to.
_INTERFACES = frozenset({"acp", "ahp", "cli", "demo", "python", "rest", "web"})
# The field with which an event of a type defines an id; "" stands for the event's own id.
_DEFINES = {
    "tool_call": "call_id",
    "permission_asked": "ask_id",
    "model_asked": "",
    "outcome_defined": "outcome_id",
}
# The field with which an event of a type refers to an earlier event, and the type of that event.
_REFERS = {
    "tool_call_changed": ("call_id", "tool_call"),
    "tool_result": ("call_id", "tool_call"),
    "permission_answered": ("ask_id", "permission_asked"),
    "model_called": ("asked", "model_asked"),
    "outcome_evaluated": ("outcome_id", "outcome_defined"),
}
# Fields that any event may have with the id of another event, which may follow it, or of a request:
# the first prompt of a turn, or a request to a model.
_BELONGS = ("turn", "request")
_OWNERS = frozenset({"user_message", "outcome_defined", "model_asked", "model_called"})
# Fields of the session row that follow from the events of any version.
_COUNTS = ("last_seq", "messages", "turns", "errors")


class ValidFile(NamedTuple):
    """A valid export file.

    `dangling` counts references that lead nowhere: in events that a fork or another tool copied,
    and to agents that are not in the file.
    """

    version: int
    session: str
    events: int
    dangling: int


def validate(
    lines: Iterable[bytes], on_event: Callable[[int], None] = lambda count: None
) -> ValidFile:
    """Check an export file; `on_event` is called with the number of events so far.

    Raises InvalidLine for the first line that is not valid, and InvalidInput for a file that has
    no lines or a newer version.
    """
    numbers = _LineNumbers(lines)
    header, events = export_file.read(numbers)
    first_line = numbers.current
    references = _References(header)
    if header.version > 2:
        _check_agents(header, first_line)
    session: Session | None = None
    for event in events:
        session = _project(session, header, event, numbers.current)
        references.check(event, numbers.current)
        on_event(event.seq)
    references.check_expected()
    if session is not None and header.version > 1:
        _check_summary(header, session, first_line)
    return ValidFile(
        version=header.version,
        session=header.session.id,
        events=0 if session is None else session.last_seq,
        dangling=references.dangling,
    )


class _LineNumbers:
    """Iterate over lines; `current` is the number of the last one."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.current = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.current += 1
            yield line


def _project(session: Session | None, header: Header, event: Event, line: int) -> Session:
    try:
        if session is None:
            return projection.start(LOCAL.workspace, header.session.id, event)
        return projection.apply(session, event)
    except SegueError as error:
        raise InvalidLine(line, error.message, "body.type", event.type) from None


def _check_summary(header: Header, projected: Session, line: int) -> None:
    row, names = header.session, _COUNTS if header.version == 2 else (*_COUNTS, "usage")
    for name in names:
        value, expected = getattr(row, name), getattr(projected, name)
        if value != expected:
            problem = f"the events give {export_file.shorten(expected)}"
            raise InvalidLine(line, problem, f"session.{name}", value)


def _check_agents(header: Header, line: int) -> None:
    """Raise InvalidLine if the header lacks a version of an agent before the newest one."""
    versions: dict[str, list[int]] = {}
    for record in header.agents:
        versions.setdefault(record.id, []).append(record.version)
    for record in header.agents:
        numbers = sorted(versions[record.id])
        built_in = record.created_at is None and record.version == 2
        first = 2 if built_in and numbers[0] == 2 else 1
        if record.version == numbers[0] and numbers != [*range(first, first + len(numbers))]:
            problem = "the file does not have all versions of this agent, each once"
            raise InvalidLine(line, problem, "agents", record.id)


class _References:
    """The ids that events have defined, and those of events that are still to come."""

    def __init__(self, header: Header) -> None:
        self.dangling = 0
        self._own = header.interface in _INTERFACES
        self._agents = {(record.id, record.version) for record in header.agents}
        self._agent_ids = {record.id for record in header.agents}
        self._has_agents = header.version > 2  # agents that older files name may be built in
        self._inherited = 0  # the last event that a fork copied
        self._events: set[str] = set()
        self._defined: dict[str, set[str]] = {type: set() for type in _DEFINES}
        self._owners: set[str] = set()
        # Ids of events that must follow, with the line and the field that named each first.
        self._expected: dict[str, tuple[int, str]] = {}

    def check(self, event: Event, line: int) -> None:
        """Check the references of an event to others, and remember its own ids."""
        type, body = event.type, event.body
        if event.id in self._events:
            raise InvalidLine(line, "an earlier event has this id", "id", event.id)
        self._events.add(event.id)
        if isinstance(body, Created) and body.fork is not None:
            self._inherited = body.fork.seq
        own = self._own and event.seq > self._inherited
        if isinstance(body, Created | ConfigChanged) and isinstance(body.agent, AgentRef):
            self._check_agent(body.agent, line)
        if type in _DEFINES:
            name = _DEFINES[type]
            self._defined[type].add(getattr(body, name) if name else event.id)
        if (request := begun_request(body)) is not None:
            self._defined["model_asked"].add(request)
            self._owners.add(request)
        if type in _REFERS:
            name, target = _REFERS[type]
            id = getattr(body, name)
            if id is not None and id not in self._defined[target]:
                if own:
                    is_request = target == "model_asked"
                    problem = f"no earlier {'request' if is_request else target} has this id"
                    raise InvalidLine(line, problem, f"body.{name}", id)
                self.dangling += 1
        was_expected = self._expected.pop(event.id, None) is not None
        if was_expected or type in _OWNERS:
            self._owners.add(event.id)
        for name in _BELONGS:
            id = getattr(body, name, None)
            if id is None or id == event.id or id in self._owners:
                continue
            if own:
                self._expected.setdefault(id, (line, f"body.{name}"))
            else:
                self._owners.add(id)

    def _check_agent(self, agent: AgentRef, line: int) -> None:
        if not self._has_agents or (agent.id, agent.version) in self._agents:
            return
        if agent.id in self._agent_ids:
            later = (agent.id, agent.version + 1) in self._agents
            if later and agent.version == 1:
                return  # the first version of a built-in agent
            problem = "the header does not have this version of the agent"
            raise InvalidLine(line, problem, "body.agent.version", agent.version)
        self.dangling += 1

    def check_expected(self) -> None:
        """Raise InvalidLine if an event that others belong to is not in the file."""
        for id, (line, path) in self._expected.items():
            raise InvalidLine(line, "no event of the session has this id", path, id)

"""Hypothesis strategies for random histories."""

from typing import Any

from hypothesis import strategies as st

from segue.model import projection
from segue.model.content import as_content
from segue.model.errors import IllegalTransition
from segue.model.event import (
    AgentMessage,
    AnyBody,
    ConfigChanged,
    Created,
    Event,
    Failed,
    InfoChanged,
    ModelCalled,
    OutcomeDefined,
    OutcomeEvaluated,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.lifecycle import STATUSES
from segue.model.session import Session

SECOND = 1_000_000
HELLO = UserMessage(content=as_content("hello"))
names = st.sampled_from(("a", "b"))
bodies: st.SearchStrategy[AnyBody] = st.one_of(
    st.just(HELLO),
    st.just(AgentMessage(content=as_content("hi"))),
    st.builds(ToolCall, call_id=names, name=names),
    st.builds(ToolResult, call_id=names),
    st.builds(PermissionAsked, ask_id=names, title=names, options=st.just(())),
    st.builds(PermissionAnswered, ask_id=names),
    st.builds(
        InfoChanged, title=st.none() | names, by=st.sampled_from(("person", "agent", "auto"))
    ),
    st.builds(InfoChanged, tag=st.none() | names, archived=st.booleans(), deleted=st.booleans()),
    st.builds(InfoChanged, metadata=st.dictionaries(names, st.none() | names)),
    st.builds(ConfigChanged, mode=names, options=st.dictionaries(names, names)),
    st.builds(StatusChanged, status=st.sampled_from(STATUSES), turn=st.none() | names),
    st.builds(ModelCalled, usage=st.builds(Usage, input_tokens=st.integers(0, 9))),
    st.builds(Failed, message=names),
    st.builds(OutcomeDefined, outcome_id=names, description=names),
    st.builds(
        OutcomeEvaluated,
        outcome_id=names,
        iteration=st.integers(0, 3),
        result=st.sampled_from(("running", "satisfied")),
    ),
)


def number_events(*timed_bodies: tuple[int, AnyBody]) -> list[Event]:
    """Return events with a seq; each body comes with its time in seconds."""
    return [
        Event(seq=seq, id=str(seq), at=seconds * SECOND, body=body)
        for seq, (seconds, body) in enumerate(timed_bodies, 1)
    ]


def session_row(*timed_bodies: tuple[int, AnyBody], created: Any = None) -> Session:
    """Return the row of a session that is created at 0 and then gets these events."""
    return projection.project(
        "w", "i", number_events((0, created or Created(cwd="/")), *timed_bodies)
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Generate valid histories whose times are not always in order."""
    events = number_events((draw(st.integers(0, 9)), Created(cwd="/")))
    session = projection.project("w", "i", events)
    for body in draw(st.lists(bodies, max_size=25)):
        at = draw(st.integers(0, 9)) * SECOND
        event = Event(seq=len(events) + 1, id=str(len(events)), at=at, body=body)
        try:
            session = projection.apply(session, event)
        except IllegalTransition:
            continue
        events.append(event)
    return events

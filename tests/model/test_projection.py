import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model import projection
from segue.model.errors import InvalidInput
from segue.model.event import (
    AgentMessage,
    AgentRef,
    ConfigChanged,
    Created,
    Event,
    Failed,
    ForkPoint,
    InfoChanged,
    ModelCalled,
    OutcomeDefined,
    OutcomeEvaluated,
    StatusChanged,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from tests.model.histories import HELLO, SECOND, histories, numbered, row


@given(histories(), st.data())
def test_folding_a_part_and_then_the_rest_is_folding_all(
    events: list[Event], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(events)))
    session = projection.project("w", "i", events[:cut])
    for event in events[cut:]:
        session = projection.apply(session, event)
    assert session == projection.project("w", "i", events)


@given(histories())
def test_a_row_says_what_its_events_say(events: list[Event]) -> None:
    session = projection.project("w", "i", events)
    said = [event.body for event in events]
    assert session.last_seq == len(events)
    assert session.created_at == events[0].at
    assert session.updated_at == max(event.at for event in events)
    assert session.created_at <= session.active_at <= session.updated_at
    assert session.messages == sum(isinstance(b, UserMessage | AgentMessage) for b in said)
    assert session.errors == sum(isinstance(b, Failed) for b in said)
    spent = [b.usage for b in said if isinstance(b, ModelCalled)]
    assert session.usage == sum(spent, Usage())
    named = [b.usage for b in said if isinstance(b, ModelCalled) and b.model is not None]
    assert sum(session.models.values(), Usage()) == sum(named, Usage())
    assert sum(session.days.values()) == session.messages
    steps = [b.status for b in said if isinstance(b, StatusChanged)]
    assert session.status == (steps[-1] if steps else "idle")
    assert (session.running_since is not None) == (session.status == "running")


@given(histories())
def test_what_is_open_was_begun_and_not_ended(events: list[Event]) -> None:
    session = projection.project("w", "i", events)
    calls: list[str] = []
    for event in events:
        match event.body:
            case ToolCall(call_id=call) if call not in calls:
                calls.append(call)
            case ToolResult(call_id=call) if call in calls:
                calls.remove(call)
    assert session.open_calls == tuple(calls)


@given(histories())
def test_a_title_made_automatically_never_replaces_a_persons(events: list[Event]) -> None:
    title, by = None, None
    for event in events:
        match event.body:
            case InfoChanged(title=str() | None as new, by=who):
                if who != "auto" or by != "person":
                    title, by = new, who
    session = projection.project("w", "i", events)
    assert (session.title, session.title_by) == (title, by)


def test_a_title_that_a_person_cleared_stays_cleared() -> None:
    auto = InfoChanged(title="auto", by="auto")
    session = row((1, InfoChanged(title="mine")), (2, InfoChanged(title=None)), (3, auto))
    assert session.title is None
    assert row((1, auto), (2, InfoChanged(title="mine")), (3, auto)).title == "mine"
    assert row((1, auto), (2, InfoChanged(title="better", by="auto"))).title == "better"


# Times.


def test_the_conversation_is_activity_and_housekeeping_is_not() -> None:
    session = row((5, HELLO), (9, InfoChanged(title="A", archived=True)), (10, ConfigChanged()))
    assert (session.active_at, session.updated_at) == (5 * SECOND, 10 * SECOND)


def test_shelves_keep_the_time_of_the_first_mark() -> None:
    archive, restore = InfoChanged(archived=True), InfoChanged(archived=False)
    assert row((1, archive), (2, archive)).archived_at == SECOND
    assert row((1, archive), (2, restore), (3, archive)).archived_at == 3 * SECOND
    assert row((1, InfoChanged(deleted=True)), (2, InfoChanged(deleted=True))).deleted_at == SECOND


def test_running_time_is_the_sum_of_the_turns() -> None:
    run, rest = StatusChanged(status="running"), StatusChanged(status="idle")
    session = row((1, run), (4, rest), (10, run))
    assert session.active_seconds(now=15 * SECOND) == 3 + 5
    assert session.active_seconds(now=0) == 3
    retry = StatusChanged(status="rescheduling")
    assert row((1, run), (3, run), (4, retry), (9, run), (10, rest)).running_time == 4 * SECOND


def test_a_turn_lasts_until_it_stops_for_good() -> None:
    begin = StatusChanged(status="running", turn="t")
    ask = StatusChanged(status="idle", stop_reason="requires_action", pending=("ask",))
    waiting = row((1, begin), (2, ask))
    assert (waiting.turn, waiting.turns, waiting.pending) == ("t", 1, ("ask",))
    ended = row((1, begin), (2, ask), (3, begin), (4, StatusChanged(status="idle")))
    assert (ended.turn, ended.turns, ended.pending) == (None, 1, ())
    other = StatusChanged(status="running", turn="u")
    assert row((1, begin), (2, StatusChanged(status="idle")), (3, other)).turns == 2


@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_termination_freezes_the_duration(events: list[Event], one: int, two: int) -> None:
    session = projection.project("w", "i", events)
    spans = {session.duration_seconds(at * SECOND) for at in (one, two)}
    if session.status == "terminated":
        assert session.terminated_at is not None
        assert spans == {max(0, session.terminated_at - session.created_at) / 1e6}
    else:
        assert session.duration_seconds(session.created_at + 7 * SECOND) == 7


def test_an_end_is_said_once_and_keeps_its_time() -> None:
    end = StatusChanged(status="terminated")
    session = row((3, StatusChanged(status="running", turn="t")), (5, end), (9, end))
    assert session.terminated_at == 5 * SECOND
    assert session.running_time == 2 * SECOND
    assert session.turn is None
    assert session.active_seconds(now=100 * SECOND) == 2


# Forks.


@given(histories(), st.data())
def test_a_fork_has_spent_and_run_nothing_of_what_it_took_over(
    events: list[Event], data: st.DataObject
) -> None:
    upto = data.draw(st.integers(1, len(events)))
    created = Created(cwd="/", fork=ForkPoint(session="parent", seq=upto))
    child = [Event(seq=1, id="c", at=100 * SECOND, body=created), *events[1:upto]]
    session = projection.project("w", "child", child)
    assert session.usage == Usage()
    assert (session.models, session.days) == ({}, {})
    assert session.running_time == 0
    assert session.created_at == session.active_at == 100 * SECOND


def test_a_fork_spends_and_runs_from_where_it_begins() -> None:
    spend = ModelCalled(usage=Usage(input_tokens=10))
    created = Created(cwd="/", fork=ForkPoint(session="parent", seq=3))
    run, rest = StatusChanged(status="running"), StatusChanged(status="idle")
    events = [
        Event(seq=1, id="1", at=100 * SECOND, body=created),
        Event(seq=2, id="2", at=1 * SECOND, body=run),
        Event(seq=3, id="3", at=2 * SECOND, body=spend),
        Event(seq=4, id="4", at=104 * SECOND, body=spend),
        Event(seq=5, id="5", at=105 * SECOND, body=rest),
    ]
    session = projection.project("w", "child", events)
    assert session.usage.input_tokens == 10
    assert session.running_time == 5 * SECOND


# The rest of the row.


def test_creation_gives_the_row_all_it_was_made_with() -> None:
    created = Created(
        cwd="/link", real_cwd="/real", roots=("/r",), origin="acp", source="claude",
        native_id="n", agent=AgentRef(id="a"), environment_id="e", deployment_id="d",
        memory_store_ids=("m",), vault_ids=("v",), resources=({"r": 1},), metadata={"k": "v"},
        git_branch="main", fork=ForkPoint(session="s", seq=2), extra={"rest": {}},
    )  # fmt: skip
    session = row(created=created)
    for name in set(Created.__struct_fields__) - {"thread"}:
        assert getattr(session, name) == getattr(created, name), name
    assert session.directory == "/real"


def test_metadata_is_patched_key_by_key() -> None:
    first = InfoChanged(metadata={"a": "1", "b": "2"})
    session = row((1, first), (2, InfoChanged(metadata={"a": None, "c": "3"})))
    assert session.metadata == {"b": "2", "c": "3"}


def test_config_says_only_what_changed() -> None:
    first = ConfigChanged(mode="plan", options={"a": 1, "b": 2}, roots=("/r",))
    session = row((1, first), (2, ConfigChanged(options={"b": 3}, git_branch="dev")))
    assert (session.mode, session.options, session.roots) == ("plan", {"a": 1, "b": 3}, ("/r",))
    assert session.git_branch == "dev"
    assert row((1, first), (2, ConfigChanged(mode=None))).mode is None
    assert row((1, first), (2, ConfigChanged(cwd="/elsewhere"))).directory == "/elsewhere"


def test_outcomes_move_with_their_evaluations() -> None:
    defined = OutcomeDefined(outcome_id="o", description="do it")
    running = OutcomeEvaluated(outcome_id="o", iteration=1, result="running")
    done = OutcomeEvaluated(
        outcome_id="o", iteration=2, result="satisfied", usage=Usage(output_tokens=4)
    )
    (outcome,) = row((1, defined), (2, running)).outcomes
    assert (outcome.result, outcome.completed_at) == ("running", None)
    session = row((1, defined), (2, running), (3, done))
    (outcome,) = session.outcomes
    assert (outcome.result, outcome.iteration, outcome.completed_at) == ("satisfied", 2, 3 * SECOND)
    assert session.usage.output_tokens == 0  # the requests themselves were counted


def test_a_history_begins_with_its_creation_and_has_no_other() -> None:
    with pytest.raises(InvalidInput):
        projection.project("w", "i", [])
    with pytest.raises(InvalidInput):
        projection.project("w", "i", numbered((0, HELLO)))
    with pytest.raises(InvalidInput):
        row((1, Created(cwd="/")))

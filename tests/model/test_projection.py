"""Compute the session row from events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

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
from tests.model.histories import HELLO, SECOND, histories, number_events, session_row


@given(histories(), st.data())
def test_applying_events_one_by_one_equals_projecting_them_all(
    events: list[Event], data: st.DataObject
) -> None:
    split = data.draw(st.integers(1, len(events)))
    session = projection.project("w", "i", events[:split])
    for event in events[split:]:
        session = projection.apply(session, event)
    assert session == projection.project("w", "i", events)


@given(histories())
def test_row_agrees_with_its_events(events: list[Event]) -> None:
    session = projection.project("w", "i", events)
    bodies = [event.body for event in events]
    assert session.last_seq == len(events)
    assert session.created_at == events[0].at
    assert session.updated_at == max(event.at for event in events)
    assert session.created_at <= session.active_at <= session.updated_at
    assert session.messages == sum(isinstance(b, UserMessage | AgentMessage) for b in bodies)
    assert session.errors == sum(isinstance(b, Failed) for b in bodies)
    usages = [b.usage for b in bodies if isinstance(b, ModelCalled)]
    assert session.usage == sum(usages, Usage())
    usages_with_model = [
        b.usage for b in bodies if isinstance(b, ModelCalled) and b.model is not None
    ]
    assert sum(session.models.values(), Usage()) == sum(usages_with_model, Usage())
    assert sum(session.days.values()) == session.messages
    statuses = [b.status for b in bodies if isinstance(b, StatusChanged)]
    assert session.status == (statuses[-1] if statuses else "idle")
    assert (session.running_since is not None) == (session.status == "running")


def test_every_tool_call_is_counted_once() -> None:
    call = ToolCall(call_id="a", name="bash")
    bodies = [call, ToolCall(call_id="a", name="bash", title="again"), ToolResult(call_id="a")]
    bodies.append(ToolCall(call_id="b", name="read"))
    assert session_row(*((1, body) for body in bodies)).tool_calls == 2
    before = replace(session_row(), tool_calls=None)  # as older versions have written it
    event = Event(seq=2, id="e", at=before.updated_at, body=call)
    assert projection.apply(before, event).tool_calls is None


def test_the_model_that_was_used_last_is_the_last_one() -> None:
    calls = [ModelCalled(model=model, usage=Usage(input_tokens=1)) for model in "aba"]
    row = session_row(*((1, call) for call in calls))
    assert list(row.models) == ["b", "a"] and row.models["a"].input_tokens == 2


def test_cost_is_full_if_every_token_has_a_price() -> None:
    priced = ModelCalled(model="a", usage=Usage(input_tokens=5, cost=3, estimated_cost=3))
    reported = ModelCalled(usage=Usage(cost=3))
    tokens = ModelCalled(usage=Usage(input_tokens=1))
    unpriced = ModelCalled(model="b", usage=Usage(input_tokens=1))
    for calls, full in (
        ([], True),
        ([priced], True),
        ([reported, tokens], True),  # an agent reports the cost of the whole session
        ([tokens], False),
        ([priced, tokens], False),
        ([priced, unpriced], False),
        ([unpriced], False),
    ):
        assert session_row(*((1, call) for call in calls)).has_full_cost == full, calls


@given(histories())
def test_open_calls_are_those_without_a_result(events: list[Event]) -> None:
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
def test_automatic_title_never_replaces_a_users_title(events: list[Event]) -> None:
    title, by = None, None
    for event in events:
        match event.body:
            case InfoChanged(title=str() | None as new, by=author):
                if author != "auto" or by != "person":
                    title, by = new, author
    session = projection.project("w", "i", events)
    assert (session.title, session.title_by) == (title, by)


def test_title_that_a_user_cleared_stays_cleared() -> None:
    auto = InfoChanged(title="auto", by="auto")
    session = session_row((1, InfoChanged(title="mine")), (2, InfoChanged(title=None)), (3, auto))
    assert session.title is None
    assert session_row((1, auto), (2, InfoChanged(title="mine")), (3, auto)).title == "mine"
    assert session_row((1, auto), (2, InfoChanged(title="better", by="auto"))).title == "better"


# Times.


def test_messages_change_active_at_and_edits_do_not() -> None:
    session = session_row(
        (5, HELLO), (9, InfoChanged(title="A", archived=True)), (10, ConfigChanged())
    )
    assert (session.active_at, session.updated_at) == (5 * SECOND, 10 * SECOND)


def test_archive_and_trash_keep_the_first_time() -> None:
    archive, restore = InfoChanged(archived=True), InfoChanged(archived=False)
    assert session_row((1, archive), (2, archive)).archived_at == SECOND
    assert session_row((1, archive), (2, restore), (3, archive)).archived_at == 3 * SECOND
    assert (
        session_row((1, InfoChanged(deleted=True)), (2, InfoChanged(deleted=True))).deleted_at
        == SECOND
    )


def test_running_time_is_the_sum_of_all_turns() -> None:
    run, stop = StatusChanged(status="running"), StatusChanged(status="idle")
    session = session_row((1, run), (4, stop), (10, run))
    assert session.active_seconds(now=15 * SECOND) == 3 + 5
    assert session.active_seconds(now=0) == 3
    reschedule = StatusChanged(status="rescheduling")
    assert (
        session_row((1, run), (3, run), (4, reschedule), (9, run), (10, stop)).running_time
        == 4 * SECOND
    )


def test_turn_that_waits_for_an_answer_is_not_over() -> None:
    start = StatusChanged(status="running", turn="t")
    ask = StatusChanged(status="idle", stop_reason="requires_action", pending=("ask",))
    waiting = session_row((1, start), (2, ask))
    assert (waiting.turn, waiting.turns, waiting.pending) == ("t", 1, ("ask",))
    ended = session_row((1, start), (2, ask), (3, start), (4, StatusChanged(status="idle")))
    assert (ended.turn, ended.turns, ended.pending) == (None, 1, ())
    other = StatusChanged(status="running", turn="u")
    assert session_row((1, start), (2, StatusChanged(status="idle")), (3, other)).turns == 2


@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_termination_freezes_the_duration(events: list[Event], first: int, second: int) -> None:
    session = projection.project("w", "i", events)
    durations = {session.duration_seconds(seconds * SECOND) for seconds in (first, second)}
    if session.status == "terminated":
        assert session.terminated_at is not None
        assert durations == {max(0, session.terminated_at - session.created_at) / 1e6}
    else:
        assert session.duration_seconds(session.created_at + 7 * SECOND) == 7


def test_terminated_session_keeps_the_first_termination_time() -> None:
    end = StatusChanged(status="terminated")
    session = session_row((3, StatusChanged(status="running", turn="t")), (5, end), (9, end))
    assert session.terminated_at == 5 * SECOND
    assert session.running_time == 2 * SECOND
    assert session.turn is None
    assert session.active_seconds(now=100 * SECOND) == 2


# Forks.


@given(histories(), st.data())
def test_copied_events_do_not_count_for_a_fork(events: list[Event], data: st.DataObject) -> None:
    fork_seq = data.draw(st.integers(1, len(events)))
    created = Created(cwd="/", fork=ForkPoint(session="parent", seq=fork_seq))
    child = [Event(seq=1, id="c", at=100 * SECOND, body=created), *events[1:fork_seq]]
    session = projection.project("w", "child", child)
    assert session.usage == Usage()
    assert (session.models, session.days) == ({}, {})
    assert session.running_time == 0
    assert session.created_at == session.active_at == 100 * SECOND


def test_fork_counts_usage_and_time_from_its_start() -> None:
    call_model = ModelCalled(usage=Usage(input_tokens=10))
    created = Created(cwd="/", fork=ForkPoint(session="parent", seq=3))
    run, stop = StatusChanged(status="running"), StatusChanged(status="idle")
    events = [
        Event(seq=1, id="1", at=100 * SECOND, body=created),
        Event(seq=2, id="2", at=1 * SECOND, body=run),
        Event(seq=3, id="3", at=2 * SECOND, body=call_model),
        Event(seq=4, id="4", at=104 * SECOND, body=call_model),
        Event(seq=5, id="5", at=105 * SECOND, body=stop),
    ]
    session = projection.project("w", "child", events)
    assert session.usage.input_tokens == 10
    assert session.running_time == 5 * SECOND


# Other fields.


def test_row_has_all_fields_of_the_created_event() -> None:
    created = Created(
        cwd="/link", real_cwd="/real", roots=("/r",), origin="acp", source="claude",
        native_id="n", agent=AgentRef(id="a"), environment_id="e", deployment_id="d",
        memory_store_ids=("m",), vault_ids=("v",), resources=({"r": 1},), metadata={"k": "v"},
        git_branch="main", fork=ForkPoint(session="s", seq=2), extra={"rest": {}},
        by_key=True,
    )  # fmt: skip
    session = session_row(created=created)
    for name in set(Created.__struct_fields__) - {"thread", "by_key"}:
        assert getattr(session, name) == getattr(created, name), name
    assert session.agent_by_key
    assert session.directory == "/real"


def test_metadata_is_patched_by_key() -> None:
    first = InfoChanged(metadata={"a": "1", "b": "2"})
    session = session_row((1, first), (2, InfoChanged(metadata={"a": None, "c": "3"})))
    assert session.metadata == {"b": "2", "c": "3"}


def test_config_event_changes_only_its_fields() -> None:
    first = ConfigChanged(mode="plan", options={"a": 1, "b": 2}, roots=("/r",))
    session = session_row((1, first), (2, ConfigChanged(options={"b": 3}, git_branch="dev")))
    assert (session.mode, session.options, session.roots) == ("plan", {"a": 1, "b": 3}, ("/r",))
    assert session.git_branch == "dev"
    assert session_row((1, first), (2, ConfigChanged(mode=None))).mode is None
    assert session_row((1, first), (2, ConfigChanged(cwd="/elsewhere"))).directory == "/elsewhere"


def test_evaluation_updates_its_outcome() -> None:
    defined = OutcomeDefined(outcome_id="o", description="do it")
    running = OutcomeEvaluated(outcome_id="o", iteration=1, result="running")
    done = OutcomeEvaluated(
        outcome_id="o", iteration=2, result="satisfied", usage=Usage(output_tokens=4)
    )
    (outcome,) = session_row((1, defined), (2, running)).outcomes
    assert (outcome.result, outcome.completed_at) == ("running", None)
    session = session_row((1, defined), (2, running), (3, done))
    (outcome,) = session.outcomes
    assert (outcome.result, outcome.iteration, outcome.completed_at) == ("satisfied", 2, 3 * SECOND)
    assert session.usage.output_tokens is None  # the model requests already count


def test_history_needs_exactly_one_created_event_at_its_start() -> None:
    with pytest.raises(InvalidInput):
        projection.project("w", "i", [])
    with pytest.raises(InvalidInput):
        projection.project("w", "i", number_events((0, HELLO)))
    with pytest.raises(InvalidInput):
        session_row((1, Created(cwd="/")))

"""Filter sessions by a query."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.model.errors import InvalidInput
from segue.model.event import AgentRef
from segue.model.query import Position, Query, matches, position
from segue.model.session import Session

ROW = Session(
    id="i", workspace="w", cwd="/link", real_cwd="/real", created_at=100, active_at=200,
    updated_at=300, last_seq=1, tag="t", owner="claude", agent=AgentRef(id="a", version=2),
    deployment_id="d", memory_store_ids=("m", "n"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("passes", "fails"),
    [
        ({"directories": ("/real",)}, {"directories": ("/link",)}),
        ({"directories": ("/x", "/real")}, {"directories": ("/real/below",)}),
        ({"agent_id": "a"}, {"agent_id": "b"}),
        ({"agent_id": "a", "agent_version": 2}, {"agent_id": "a", "agent_version": 1}),
        ({"created_gt": 99}, {"created_gt": 100}),
        ({"created_gte": 100}, {"created_gte": 101}),
        ({"created_lt": 101}, {"created_lt": 100}),
        ({"created_lte": 100}, {"created_lte": 99}),
        ({"created_gt": 0, "created_gte": 100}, {"created_gt": 0, "created_gte": 101}),
        ({"active_after": 199}, {"active_after": 200}),
        ({"statuses": ("idle",)}, {"statuses": ("running",)}),
        ({"statuses": ("running", "idle")}, {"statuses": ("running", "terminated")}),
        ({"deployment_id": "d"}, {"deployment_id": "e"}),
        ({"memory_store_id": "n"}, {"memory_store_id": "o"}),
        ({"tag": "t"}, {"tag": "T"}),
        ({"source": "claude"}, {"source": "segue"}),
        ({"archived": "include"}, {"archived": "only"}),
        ({}, {"trash": True}),
    ],
)
def test_filter_matches_only_sessions_with_its_value(
    passes: dict[str, Any], fails: dict[str, Any]
) -> None:
    assert matches(Query(**passes), ROW)
    assert not matches(Query(**fails), ROW)


def test_session_without_a_field_matches_no_filter_on_it() -> None:
    session_without_fields = replace(
        ROW, agent=None, tag=None, deployment_id=None, memory_store_ids=()
    )
    queries = [
        Query(agent_id="a"),
        Query(tag="t"),
        Query(deployment_id="d"),
        Query(memory_store_id="m"),
    ]
    assert all(
        matches(query, ROW) and not matches(query, session_without_fields) for query in queries
    )


@pytest.mark.parametrize(
    ("row", "expected_lists"),
    [
        (ROW, {"exclude", "include"}),
        (replace(ROW, archived_at=5), {"include", "only"}),
        (replace(ROW, deleted_at=5), {"trash"}),
        (replace(ROW, archived_at=5, deleted_at=5), {"trash"}),
    ],
)
def test_state_decides_which_lists_show_a_session(row: Session, expected_lists: set[str]) -> None:
    lists: dict[str, Query] = {
        "exclude": Query(),
        "include": Query(archived="include"),
        "only": Query(archived="only"),
        "trash": Query(trash=True),
    }
    assert {name for name, query in lists.items() if matches(query, row)} == expected_lists


def test_archived_session_can_count_as_another_status() -> None:
    archived = replace(ROW, archived_at=5)
    ended = Query(archived="include", statuses=("terminated",), archived_as="terminated")
    idle = Query(archived="include", statuses=("idle",), archived_as="terminated")
    assert matches(ended, archived)
    assert not matches(idle, archived)
    assert matches(idle, ROW)
    assert not matches(ended, ROW)


bounds = st.none() | st.integers(-3, 3)


@given(bounds, bounds, bounds, bounds, st.integers(-5, 5))
def test_created_bounds_combine_all_four_limits(
    gt: int | None, gte: int | None, lt: int | None, lte: int | None, at: int
) -> None:
    query = Query(created_gt=gt, created_gte=gte, created_lt=lt, created_lte=lte)
    inside = (
        (gt is None or at > gt)
        and (gte is None or at >= gte)
        and (lt is None or at < lt)
        and (lte is None or at <= lte)
    )
    assert matches(query, replace(ROW, created_at=at)) == inside
    low, high = query.created_bounds()
    assert ((low is None or at >= low) and (high is None or at <= high)) == inside


def test_position_has_the_time_of_its_order_and_the_id() -> None:
    assert position(ROW, "active") == Position(200, "i")
    assert position(ROW, "created") == Position(100, "i")


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"limit": -1}, {"statuses": ("sleeping",)}])
def test_invalid_query_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Query(**arguments)

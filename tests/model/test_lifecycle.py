"""Check the table of status transitions."""

import itertools

import pytest

from segue.model.errors import IllegalTransition
from segue.model.lifecycle import STATUSES, TRANSITIONS, Status, check_transition


@pytest.mark.parametrize(("before", "after"), [*itertools.product(STATUSES, STATUSES)])
def test_transition_is_allowed_if_the_table_has_it(before: Status, after: Status) -> None:
    if after in TRANSITIONS[before]:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"{before} cannot become {after}"):
            check_transition(before, after)


def test_table_has_every_status() -> None:
    assert set(TRANSITIONS) == set(STATUSES) == set().union(*TRANSITIONS.values())


def test_any_status_may_be_repeated() -> None:
    assert all(status in TRANSITIONS[status] for status in STATUSES)


def test_terminated_session_stays_terminated() -> None:
    assert TRANSITIONS["terminated"] == {"terminated"}


def test_only_a_running_session_is_rescheduled() -> None:
    assert [s for s in STATUSES if "rescheduling" in TRANSITIONS[s] and s != "rescheduling"] == [
        "running"
    ]


def test_every_other_status_can_become_idle_or_terminated() -> None:
    for status in ("idle", "running", "rescheduling"):
        assert {"idle", "terminated"} <= TRANSITIONS[status]

import itertools

import pytest

from segue.model.errors import IllegalTransition
from segue.model.lifecycle import STATUSES, TRANSITIONS, Status, check_transition


@pytest.mark.parametrize(("before", "after"), [*itertools.product(STATUSES, STATUSES)])
def test_a_step_is_allowed_if_the_table_has_it(before: Status, after: Status) -> None:
    if after in TRANSITIONS[before]:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"{before} cannot become {after}"):
            check_transition(before, after)


def test_the_table_knows_every_status() -> None:
    assert set(TRANSITIONS) == set(STATUSES) == set().union(*TRANSITIONS.values())


def test_any_status_may_be_said_again() -> None:
    assert all(status in TRANSITIONS[status] for status in STATUSES)


def test_what_has_terminated_stays_so() -> None:
    assert TRANSITIONS["terminated"] == {"terminated"}


def test_only_a_running_session_is_rescheduled() -> None:
    assert [s for s in STATUSES if "rescheduling" in TRANSITIONS[s] and s != "rescheduling"] == [
        "running"
    ]


def test_everything_else_can_rest_and_can_end() -> None:
    for status in ("idle", "running", "rescheduling"):
        assert {"idle", "terminated"} <= TRANSITIONS[status]

"""Choose which combinations of parameters the default tier runs.

Some tests run the same steps for each protocol version, screen or database, with a real process or
browser each time. The default tier runs one sample of them; `bootstrap.py test --full` runs all.
"""

from typing import Any

import pytest

# The values of parameters that the default tier keeps, by module or by test. A module's other
# tests, and parameters that are not listed, are not affected.
SAMPLES: dict[str, dict[str, set[Any]]] = {
    "tests/agents/acp/test_agent.py": {"version": {2}},
    "tests/agents/acp/test_agent.py"
    "::test_an_agent_process_stores_the_same_events_as_the_built_in_agent": {"version": {1, 2}},
    "tests/claude/test_index.py::test_worker_processes_build_the_same_index": {
        "own": {0},
        "held": {0},
    },
    "tests/claude/test_mirror.py::test_several_processes_append_to_one_session": {
        "run": {"sqlite"}
    },
    "tests/clients/test_official.py": {"name": {"TypeScript 2.4.0, version 2", "Python 0.12.1"}},
    "tests/clients/test_rest.py": {
        "version": {"2.10.0", "1.10.0"},
        "name": {"managed-agents-streaming-deltas-manual.py"},
    },
    "tests/faults/test_crowd.py": {"sessions": {1}},
    # Processes create one PostgreSQL store at once in tests/store/test_postgres.py, too.
    "tests/faults/test_opening.py::test_eight_processes_create_the_same_store_at_once": {
        "make_locations": {"sqlite"}
    },
    "tests/faults/test_interrupted_reads.py": {"make_locations": {"sqlite"}},
    "tests/faults/test_recovery.py::test_a_turn_killed_while_it_waits_is_closed"
    "_and_the_next_prompt_runs": {"make_locations": {"sqlite"}},
    "tests/faults/test_sleep.py"
    "::test_a_process_suspended_past_its_lease_writes_nothing_when_it_wakes": {
        "make_locations": {"postgres"}
    },
    "tests/faults/test_recovery.py::test_turn_killed_at_any_step_leaves_an_idle_session": {
        "make_locations": {"sqlite"}
    },
    "tests/faults/test_sleep.py::test_suspended_process_continues_a_turn_that_no_other_took_over": {
        "make_locations": {"postgres"}
    },
    "tests/faults/test_sleep.py"
    "::test_turn_longer_than_its_lease_is_not_recovered_while_its_process_lives": {
        "make_locations": {"sqlite"}
    },
    "tests/faults/test_waiting_turns.py": {"make_locations": {"sqlite"}, "how": {"SIGKILL"}},
    # Three parallel calls need a permission, a custom tool's result and another permission.
    "tests/faults/test_waiting_turns.py::test_answers_resume_a_turn_whose_process_has_ended": {
        "kind": {"self-hosted tool", "three parallel calls"}
    },
    "tests/faults/test_waiting_turns.py::test_cancel_ends_a_waiting_turn_of_a_dead_process": {
        "make_locations": {"postgres"}
    },
    "tests/faults/test_waiting_turns.py"
    "::test_process_that_stops_just_when_a_turn_begins_to_wait_leaves_it_stored": {
        "how": {"drain", "close"}
    },
    "tests/faults/test_waiting_turns.py"
    "::test_waiting_turn_that_needs_its_client_is_closed_with_the_reason": {
        "how": {"SIGKILL", "drain"}
    },
    "tests/faults/test_workers.py": {"database": {"sqlite"}},
    # One that writes a file, and one that writes a directory and an index.
    "tests/hub/test_continuing.py::test_killed_writer_leaves_no_half_session": {
        "tool": {"codex", "kimi"}
    },
    "tests/interfaces/acp/test_author.py": {"version": {2}},
    "tests/interfaces/acp/test_external_agent.py": {"version": {2}, "child": {1, "echo"}},
    "tests/interfaces/acp/test_client_requests.py": {"version": {2}, "child": {1}},
    "tests/interfaces/acp/test_mcp.py": {"version": {2}},
    "tests/interfaces/acp/test_unstable.py": {"version": {2}},
    "tests/interfaces/acp/test_process.py": {"version": {1}},
    "tests/interfaces/acp/test_serve.py": {"version": {2}},
    "tests/interfaces/rest/test_budgets.py": {"database": {"sqlite"}},
    "tests/interfaces/web/test_browser.py": {"width": {"desktop"}, "scheme": {"light"}},
    "tests/interfaces/web/test_every_page.py": {"width": {"phone"}, "scheme": {"dark"}},
    "tests/interfaces/web/test_hostile_text.py": {"width": {"phone"}},
    "tests/interfaces/web/test_inserted_text.py": {"width": {"phone"}},
    "tests/interfaces/web/test_session_actions.py": {"width": {"desktop"}},
    "tests/interfaces/web/test_workers.py": {"options": {"postgres"}},
    "tests/interfaces/web/test_live.py": {"width": {"desktop"}},
    "tests/interfaces/web/test_jobs.py": {"width": set()},
    "tests/interfaces/web/test_jobs.py::test_see_and_answer_what_waits": {
        "width": {"phone"},
        "scheme": {"dark"},
    },
    "tests/interfaces/web/test_jobs.py::test_clean_up_many_sessions": {
        "width": {"desktop"},
        "scheme": {"light"},
    },
    "tests/interfaces/web/test_starting.py": {"width": {"desktop"}},
    "tests/interfaces/web/test_long_sessions.py": {
        "width": {"phone"},
        "messages": {400},
        "max_chunks": {8},
    },
    "tests/peers/test_claude_sdk.py": {"database": {"sqlite"}},
    # Processes create one PostgreSQL store at once in tests/store/test_postgres.py, too.
    "tests/server/test_first_start.py": {"database_options": {"sqlite"}},
}


def mark_long_combinations(items: list[pytest.Item]) -> None:
    """Mark the combinations that SAMPLES leaves out as `full`."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            module, test = item.nodeid.partition("::")[0], item.nodeid.partition("[")[0]
            selected = SAMPLES.get(module, {}) | SAMPLES.get(test, {})
            values = item.callspec.params
            if any(values[name] not in selected[name] for name in selected.keys() & values.keys()):
                item.add_marker(pytest.mark.full)

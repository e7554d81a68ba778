"""The checks of `segue acp-check`: each finds the fault that it is for, and no other."""

from typing import Any

import pytest

from segue.acp.conformance import Report, check_agent
from segue.acp.conformance.runner import MESSAGES
from segue.acp.conformance.session import CHECKS, Prompts
from tests.acp.simple_agent import simple_agent

PROMPTS = Prompts("short", "long")
FAULTS = [
    *((check.id, version) for check in CHECKS for version in check.versions),
    *((id, version) for id in MESSAGES for version in (1, 2)),
]
# Faults that also break what the named checks need.
ALSO = {
    "INIT-001": {"STREAM-002"},
    "NEW-001": {"LIST-004", "DELETE-001", "RESUME-003", "TITLE-001"},
    "PROMPT-001": {"STREAM-002", "CANCEL-001", "CANCEL-003", "CLOSE-003"},
    "LIST-001": {"LIST-003", "LIST-004", "TITLE-001"},
    "LIST-004": {"TITLE-001"},
    "CANCEL-001": {"CANCEL-002", "CANCEL-003", "CLOSE-003"},
    "CLOSE-001": {"CLOSE-002"},
}


async def run(fault: str | None, version: int, only: list[str]) -> Report:
    return await check_agent(
        simple_agent(fault), versions=[version], timeout=3, prompts=PROMPTS, only=only
    )


@pytest.mark.parametrize("version", [1, 2])
async def test_agent_without_faults_passes_every_check(version: int) -> None:
    report = await run(None, version, [])
    wrong = [result for result in report.results if result.outcome in ("failed", "warning")]
    assert wrong == []
    assert [result.check for result in report.results if result.outcome == "skipped"] == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("deletes", [True, False])
async def test_checks_delete_their_sessions_or_say_how_many_are_left(
    version: int, deletes: bool
) -> None:
    stored: dict[str, dict[str, Any]] = {}
    connect = simple_agent(None if deletes else "no delete", stored)
    report = await check_agent(
        connect, versions=[version], timeout=3, prompts=PROMPTS, only=["PROMPT", "FORK", "DELETE"]
    )
    assert report.failures == []
    assert report.sessions_left == len(stored)
    assert bool(stored) is not deletes
    assert ("keeps" in report.to_text()) is not deletes


@pytest.mark.parametrize(
    ("check", "version"),
    FAULTS,
    ids=str,
)
async def test_each_check_finds_its_fault(check: str, version: int) -> None:
    report = await run(check, version, [check, "PROMPT-001"])
    outcomes = {
        result.check: result.outcome
        for result in report.results
        if result.outcome in ("failed", "warning")
    }
    assert set(outcomes) - ALSO.get(check, set()) == {check}, report.to_text()
    level = next((rule.level for rule in CHECKS if rule.id == check), "must")
    assert outcomes[check] == ("failed" if level == "must" else "warning")


def test_checks_name_their_rules_and_have_unique_ids() -> None:
    for version in (1, 2):
        ids = [check.id for check in CHECKS if version in check.versions]
        assert len(set(ids)) == len(ids)
    assert all(len(check.rule) > 15 for check in CHECKS)


async def test_report_counts_and_explains() -> None:
    report = await run("LIST-002", 1, ["LIST"])
    (failure,) = report.failures
    assert failure.check == "LIST-002" and "got" in failure.detail
    assert "FAIL  LIST-002" in report.to_text() and failure.detail in report.to_text()
    assert '"failed": 1' in report.to_json()

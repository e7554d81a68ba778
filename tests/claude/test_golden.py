"""Nine homes of versions 0.2.126 to 2.1.325: segue.claude answers as the TypeScript SDK does.

Where the Python SDK answers otherwise, a test's name says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from segue import claude
from segue.claude import SDKSessionInfo
from tests.claude.entries import VERSIONS

Golden = dict[str, Any]
NAMES = {
    "session_id": "sessionId",
    "summary": "summary",
    "last_modified": "lastModified",
    "file_size": "fileSize",
    "custom_title": "customTitle",
    "first_prompt": "firstPrompt",
    "git_branch": "gitBranch",
    "cwd": "cwd",
    "tag": "tag",
    "created_at": "createdAt",
    "archived": "archived",
}


@pytest.fixture
def use(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda version: monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(homes / version))


def golden(homes: Path, version: str, sdk: str) -> Golden:
    answers: Golden = json.loads((homes / "golden" / f"{version}.{sdk}.json").read_text())
    return answers


def typescript(info: SDKSessionInfo) -> dict[str, Any]:
    return {NAMES[name]: value for name, value in asdict(info).items() if value is not None}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("limit", [None, 1000])
def test_list_equals_the_list_of_the_typescript_sdk(
    homes: Path, use: Callable[[str], None], version: str, limit: int | None
) -> None:
    use(version)
    expected = golden(homes, version, "ts")["list"]
    assert [typescript(info) for info in claude.list_sessions(limit=limit)] == expected
    for row in expected:
        info = claude.get_session_info(row["sessionId"])
        assert info is not None
        assert typescript(info) == row


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_are_slices_of_the_list(use: Callable[[str], None], version: str) -> None:
    use(version)
    sessions = claude.list_sessions()
    assert [*claude.list_sessions(limit=2), *claude.list_sessions(offset=2)] == sessions
    assert claude.list_sessions(limit=3, offset=1) == sessions[1:4]


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_equal_those_of_the_typescript_sdk(
    homes: Path, use: Callable[[str], None], version: str
) -> None:
    use(version)
    for id, expected in golden(homes, version, "ts")["msgs"].items():
        messages = claude.get_session_messages(id)
        assert [[message.type, message.uuid] for message in messages] == expected
        assert messages == [*claude.get_session_messages(id, limit=3), *messages[3:]]
        assert claude.get_session_messages(id, offset=2, limit=2) == messages[2:4]


@pytest.mark.parametrize("version", VERSIONS)
def test_subagents_equal_those_of_the_typescript_sdk(
    homes: Path, use: Callable[[str], None], version: str
) -> None:
    use(version)
    for id, expected in golden(homes, version, "ts")["sub"].items():
        assert claude.list_subagents(id) == expected
        for agent in expected:
            assert claude.get_subagent_messages(id, agent)


def differences(homes: Path, version: str) -> tuple[set[str], set[str], set[str]]:
    """Ids that only TypeScript lists, fields that differ, and sessions with other messages."""
    from_typescript, from_python = golden(homes, version, "ts"), golden(homes, version, "py")
    rows = {row["session_id"]: row for row in from_python["list"]}
    unlisted = {row["sessionId"] for row in from_typescript["list"]} - set(rows)
    fields = {
        name
        for row in from_typescript["list"]
        if row["sessionId"] in rows
        for name, other in NAMES.items()
        if name != "archived" and rows[row["sessionId"]][name] != row.get(other)
    }
    messages = {
        id
        for id, conversation in from_python["msgs"].items()
        if conversation != from_typescript["msgs"][id]
    }
    return unlisted, fields, messages


@pytest.mark.parametrize("version", ["1.0.128", "2.0.0", "2.0.76", "2.1.19"])
def test_python_sdk_does_not_list_a_session_that_begins_with_an_image(
    homes: Path, use: Callable[[str], None], version: str
) -> None:
    unlisted, _, _ = differences(homes, version)
    use(version)
    assert [claude.get_session_info(id).summary for id in unlisted] == ["Image"]  # type: ignore[union-attr] # they are listed


@pytest.mark.parametrize("version", ["0.2.126", "1.0.30", "2.1.112", "2.1.325", "sdkts-v2-2.1.141"])
def test_python_sdk_lists_the_same_sessions_otherwise(homes: Path, version: str) -> None:
    assert differences(homes, version)[0] == set()


@pytest.mark.parametrize("version", VERSIONS)
def test_python_sdk_truncates_file_times_that_typescript_rounds(homes: Path, version: str) -> None:
    assert differences(homes, version)[1] <= {"last_modified"}


@pytest.mark.parametrize("version", VERSIONS)
def test_python_sdk_loses_preserved_messages(homes: Path, version: str) -> None:
    expected = {"63cd8742-f8c1-4e6b-adf1-76da0754a48d"} if version == "2.1.325" else set()
    assert differences(homes, version)[2] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_python_sdk_has_the_same_order_and_subagents_of_listed_sessions(
    homes: Path, version: str
) -> None:
    from_typescript, from_python = golden(homes, version, "ts"), golden(homes, version, "py")
    listed = [row["session_id"] for row in from_python["list"]]
    assert [
        row["sessionId"] for row in from_typescript["list"] if row["sessionId"] in listed
    ] == listed
    assert {
        id: agents for id, agents in from_typescript["sub"].items() if id in listed
    } == from_python["sub"]
    assert set(from_typescript["msgs"]) - set(from_python["msgs"]) == differences(homes, version)[0]

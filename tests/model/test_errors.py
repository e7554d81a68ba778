"""Removing locations on the server from messages."""

import pytest

from segue.model.errors import AgentFailed, InvalidInput, StoreError, StoreFull, without_locations


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("cannot open /var/lib/segue/segue.db: denied", "cannot open (path): denied"),
        ("[Errno 2] No such file: '/opt/my agents/x'", "[Errno 2] No such file: (path)"),
        ("cannot read ~/.claude/x.jsonl", "cannot read (path)"),
        (
            "the model at http://10.0.0.5:11434/v1 cannot be reached: refused",
            "the model at (address) cannot be reached: refused",
        ),
        (
            "Cannot connect to host llm.internal:8080 ssl:default",
            "Cannot connect to host (address) ssl:default",
        ),
        ("Connect call failed ('127.0.0.1', 5432)", "Connect call failed ('(address)', 5432)"),
        ("[::1]:5432 and fe80::1 failed", "(address) and (address) failed"),
        ("postgresql://me:secret@db/segue failed", "(address) failed"),
    ],
)
def test_paths_and_addresses_are_removed_from_a_message(message: str, expected: str) -> None:
    assert without_locations(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        "boom",
        "RuntimeError: the agent is broken",
        "overloaded (HTTP 529) (try 1 of 3; trying again in 2 s)",
        "read/write failed at 12:30",
        "and/or, 3/4, version 1.2.3",
        "KeyError: 'name'",
    ],
)
def test_a_message_without_locations_is_not_changed(message: str) -> None:
    assert without_locations(message) is None


def test_only_the_local_user_gets_the_message_of_a_store_error() -> None:
    for error in (StoreError("failed: /data/segue.db"), StoreFull("full: /data/segue.db")):
        assert "/data" in error.message_for(local=True)
        assert "/data" not in error.message_for(local=False)


def test_an_error_without_a_remote_message_is_the_same_for_all() -> None:
    assert InvalidInput("title: too long").message_for(local=False) == "title: too long"
    assert AgentFailed("it refused").message_for(local=False) == "it refused"
    failed = AgentFailed("/opt/agent could not be started: not found")
    assert failed.message_for(local=False) == "(path) could not be started: not found"
    assert failed.message_for(local=True) == "/opt/agent could not be started: not found"

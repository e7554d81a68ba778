"""The schema check of the harness accepts valid messages only."""

import pytest

from tests.interfaces.acp.schema import check


def update(**body: object) -> dict[str, object]:
    params = {"sessionId": "s", "update": body}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


GOOD = [
    (1, update(sessionUpdate="session_info_update", title=None), None),
    (1, {"jsonrpc": "2.0", "id": 1, "result": {}}, "session/close"),
    (2, update(sessionUpdate="state_update", state="idle", stopReason="end_turn"), None),
    (2, {"jsonrpc": "2.0", "id": 1, "result": {"messageId": "m"}}, "session/prompt"),
    (2, {"jsonrpc": "2.0", "id": 1, "result": None}, "session/load"),
    (2, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}, None),
]
BAD = [
    ("a variant without its field", 2, update(sessionUpdate="agent_message", content=[]), None),
    ("a field of another type", 1, update(sessionUpdate="session_info_update", title=3), None),
    ("an unknown field", 1, update(sessionUpdate="session_info_update", name="x"), None),
    ("a variant of the other version", 1, update(sessionUpdate="state_update", state="x"), None),
    ("a time without a zone", 2, update(sessionUpdate="session_info_update", updatedAt="x"), None),
    ("a null result", 1, {"jsonrpc": "2.0", "id": 1, "result": None}, "session/close"),
    ("another method's result", 2, {"jsonrpc": "2.0", "id": 1, "result": {}}, "session/prompt"),
    ("an answer to nothing", 1, {"jsonrpc": "2.0", "id": 1, "result": {}}, None),
    (
        "an extra field next to the result",
        1,
        {"jsonrpc": "2.0", "id": 1, "result": {}, "x": 1},
        "x",
    ),
    ("an unknown method", 2, {"jsonrpc": "2.0", "id": 1, "method": "fs/read", "params": {}}, None),
    ("a method of the other version", 2, {"jsonrpc": "2.0", "id": 1, "result": {}}, "logout"),
]


@pytest.mark.parametrize(("version", "message", "answers"), GOOD)
def test_valid_messages_pass_the_schema(version: int, message: object, answers: str | None) -> None:
    check(version, message, answers)


@pytest.mark.parametrize(("why", "version", "message", "answers"), BAD, ids=lambda each: str(each))
def test_invalid_messages_fail_the_schema(
    why: str, version: int, message: object, answers: str | None
) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check(version, message, answers)

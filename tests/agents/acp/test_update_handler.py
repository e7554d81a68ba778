"""Convert the updates of ACP agents to events."""

from typing import Any

import pytest

from segue.agents.acp.event_collector import EventCollector, HistoryRecorder
from segue.agents.acp.update_handler import UpdateHandler
from segue.model.event import ToolResult
from segue.model.session import Session

SESSION = Session(
    id="s", workspace="w", cwd="/", created_at=1, active_at=1, updated_at=1, last_seq=1
)


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({"exit_code": 0, "stdout": ""}, 0),
        ({"exitCode": 7}, 7),
        ({"exitCode": "7"}, None),
        ({"exitCode": True}, None),
        ("text", None),
        (None, None),
    ],
)
async def test_result_has_the_exit_code_that_the_agent_reports(
    output: Any, code: int | None
) -> None:
    recorder = HistoryRecorder()
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls", "status": "completed"}
    handler = UpdateHandler(EventCollector(SESSION, recorder))
    await handler.on_update({**update, "rawOutput": output})
    bodies = [draft.body for draft in recorder.drafts]
    (result,) = [body for body in bodies if isinstance(body, ToolResult)]
    assert (result.output, result.exit_code) == (output, code)

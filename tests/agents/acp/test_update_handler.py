"""Convert the updates of ACP agents to events."""

from typing import Any

import pytest

from segue.agents.acp.event_collector import EventCollector, HistoryRecorder
from segue.agents.acp.update_handler import UpdateHandler
from segue.model.content import ResourceLink, plain_text
from segue.model.event import AgentMessage, ToolResult
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


@pytest.mark.parametrize("annotations", [{"audience": "user"}, {"priority": "high"}, [1]])
async def test_text_with_malformed_annotations_is_kept(annotations: Any) -> None:
    recorder = HistoryRecorder()
    handler = UpdateHandler(EventCollector(SESSION, recorder))
    block = {"type": "text", "text": "Done.", "annotations": annotations}
    await handler.on_update({"sessionUpdate": "agent_message_chunk", "content": block})
    icons = [{"src": "https://example.com/a.png", "sizes": "48x48"}]
    link = {"type": "resource_link", "name": "a", "uri": "file:///a", "icons": icons}
    content = [{"type": "content", "content": link}, {"type": "content", "content": {**block}}]
    await handler.on_update(
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "ls",
            "status": "completed",
            "content": [*content, {"type": "content", "content": {"type": "text", "text": 7}}],
        }
    )
    await handler.finish()
    bodies = [draft.body for draft in recorder.drafts]
    (message,) = [body for body in bodies if isinstance(body, AgentMessage)]
    assert (plain_text(message.content), message.content[0].extra) == ("Done.", {})
    (result,) = [body for body in bodies if isinstance(body, ToolResult)]
    assert isinstance(result.content[0], ResourceLink)
    assert (len(result.content), plain_text(result.content[1:])) == (2, "Done.")

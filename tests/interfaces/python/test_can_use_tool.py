"""can_use_tool answers permission requests, as in Claude's Agent SDK."""

from pathlib import Path
from typing import Any

import pytest

import segue
from segue.model.errors import InvalidInput
from segue.model.principal import LOCAL
from tests.agents.provider import Use
from tests.interfaces.python.model_session import (
    WRITE,
    Environment,
    PermissionResultAllow,
    PermissionResultDeny,
    last_message,
    with_open_hub,
)


@with_open_hub
async def test_a_tool_runs_with_the_updated_input(environment: Environment) -> None:
    seen: list[Any] = []

    async def ask(name: str, tool_input: dict[str, Any], context: Any) -> Any:
        seen.append((name, tool_input, context.tool_use_id, context.title))
        return PermissionResultAllow(updated_input={**tool_input, "file_path": "b", "content": "y"})

    environment.script([WRITE])
    result = await environment.run(can_use_tool=ask)
    assert not (environment.cwd / "a").exists() and (environment.cwd / "b").read_text() == "y"
    ((name, tool_input, call, title),) = seen
    assert (name, tool_input, title) == ("Write", WRITE.input, "Write a")
    (event,) = await environment.events(result, "tool_call")
    assert call == event.call_id
    (answered,) = await environment.events(result, "permission_answered")
    assert answered.input == {"file_path": "b", "content": "y"}


async def test_the_demo_agent_uses_the_updated_input(tmp_path: Path) -> None:
    async def ask(name: str, tool_input: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow(updated_input={"path": "b", "content": "y"})

    await segue.prompt(
        "/write a x", model="demo", cwd=tmp_path, store=tmp_path / "data", can_use_tool=ask
    )
    assert not (tmp_path / "a").exists() and (tmp_path / "b").read_text() == "y\n"


@with_open_hub
async def test_the_model_learns_that_an_updated_input_is_invalid(environment: Environment) -> None:
    async def ask(name: str, tool_input: Any, context: Any) -> Any:
        return {"behavior": "allow", "updatedInput": {"path": "b"}}

    environment.script([WRITE])
    await environment.run(can_use_tool=ask)
    assert list(environment.cwd.iterdir()) == []
    assert "invalid arguments" in last_message(environment.provider.requests[1])


@with_open_hub
async def test_the_model_learns_why_a_call_is_denied(environment: Environment) -> None:
    async def ask(name: str, tool_input: Any, context: Any) -> Any:
        return PermissionResultDeny(message="the garden is closed")

    environment.script([WRITE])
    result = await environment.run(can_use_tool=ask)
    assert "the garden is closed" in last_message(environment.provider.requests[1])
    assert [denial["tool_name"] for denial in result.permission_denials] == ["write"]


@with_open_hub
async def test_a_denial_may_end_the_turn(environment: Environment) -> None:
    async def ask(name: str, tool_input: Any, context: Any) -> Any:
        return PermissionResultDeny(message="enough", interrupt=True)

    environment.script([WRITE])
    result = await environment.run(can_use_tool=ask)
    assert result.stop_reason == "cancelled" and len(environment.provider.requests) == 1


@with_open_hub
async def test_a_suggested_rule_stops_further_requests(environment: Environment) -> None:
    asked: list[str] = []

    async def ask(name: str, tool_input: Any, context: Any) -> Any:
        asked.append(name)
        return PermissionResultAllow(updated_permissions=context.suggestions)

    environment.script([WRITE], [WRITE], [Use("bash", {"command": "true"})])
    await environment.run(can_use_tool=ask)
    assert asked == ["Write", "Bash"]


@with_open_hub
async def test_an_answer_may_allow_several_tools(environment: Environment) -> None:
    asked: list[str] = []

    async def ask(name: str, tool_input: Any, context: Any) -> Any:
        asked.append(name)
        rules = [[{"toolName": name}] for name in ("Write", "Bash")]
        updates = [{"type": "addRules", "behavior": "allow", "rules": rule} for rule in rules]
        return PermissionResultAllow(updated_permissions=updates)

    environment.script([WRITE], [WRITE], [Use("bash", {"command": "true"})])
    await environment.run(can_use_tool=ask)
    assert asked == ["Write"]


@pytest.mark.parametrize(
    "update",
    [
        {"type": "addRules", "behavior": "deny", "rules": [{"toolName": "Bash"}]},
        {
            "type": "addRules",
            "behavior": "allow",
            "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}],
        },
        {
            "type": "addRules",
            "behavior": "allow",
            "destination": "userSettings",
            "rules": [{"toolName": "Bash"}],
        },
        {"type": "addDirectories", "directories": ["/"]},
    ],
)
@with_open_hub
async def test_an_unsupported_permission_update_fails_and_runs_no_tool(
    environment: Environment, update: dict[str, Any]
) -> None:
    async def ask(name: str, tool_input: Any, context: Any) -> Any:
        return PermissionResultAllow(updated_permissions=[update])

    environment.script([WRITE])
    with pytest.raises(InvalidInput, match="updated_permissions"):
        await environment.run(can_use_tool=ask)
    assert list(environment.cwd.iterdir()) == []


@with_open_hub
async def test_an_answer_may_set_the_mode(environment: Environment) -> None:
    asked: list[str] = []

    async def ask(name: str, tool_input: Any, context: Any) -> Any:
        asked.append(name)
        mode = {"type": "setMode", "mode": "acceptEdits"}
        return PermissionResultAllow(updated_permissions=[mode])

    environment.script([WRITE], [WRITE])
    result = await environment.run(can_use_tool=ask)
    assert asked == ["Write"]
    assert (await environment.hub.sessions.get(LOCAL, result.session_id)).mode == "acceptEdits"


@with_open_hub
async def test_a_malformed_answer_refuses_the_call(environment: Environment) -> None:
    async def ask(name: str, tool_input: Any) -> Any:
        return "yes"

    environment.script([WRITE])
    with pytest.raises(InvalidInput, match="can_use_tool answers"):
        await environment.run(can_use_tool=ask)
    assert list(environment.cwd.iterdir()) == []

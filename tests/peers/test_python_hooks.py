"""Programs with the real SDK's own types: its hooks and permissions, in sessions of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import segue
from tests.agents.provider import Provider, Use

pytestmark = pytest.mark.full


async def test_hooks_accept_the_types_of_the_sdk(
    claude_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(claude_program.parent.parent.parent))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    import claude_agent_sdk as sdk

    async def ask(name: str, arguments: dict[str, Any], context: Any) -> Any:
        assert context.suggestions[0].rules[0].tool_name == name == "Write"
        changed = {**arguments, "content": "changed"}
        rule = sdk.types.PermissionRuleValue(tool_name="Bash")
        update = sdk.types.PermissionUpdate(
            type="addRules", rules=[rule], behavior="allow", destination="session"
        )
        return sdk.PermissionResultAllow(updated_input=changed, updated_permissions=[update])

    async def guard(input: Any, tool_use_id: str | None, context: Any) -> Any:
        denied = {"permissionDecision": "deny", "permissionDecisionReason": "no touching"}
        if "touch" in input["tool_input"]["command"]:
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **denied}}
        return {}

    async with Provider() as provider:
        provider.scripts = [
            [Use("write", {"file_path": "a", "content": "x"})],
            [Use("bash", {"command": "touch b"}), Use("bash", {"command": "echo well"})],
        ]
        async with await segue.open_hub(tmp_path / "data") as hub:
            await hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
            await hub.config.set("local", "model.base_url", provider.url)
            result = await segue.prompt(
                "Go",
                model="claude-sonnet-4-6",
                cwd=tmp_path,
                store=hub,
                can_use_tool=ask,
                hooks={"PreToolUse": [sdk.HookMatcher(matcher="Bash", hooks=[guard])]},
            )
    assert result.subtype == "success" and result.permission_denials == []
    assert (tmp_path / "a").read_text() == "changed" and not (tmp_path / "b").exists()
    last_message = str(provider.requests[-1]["messages"][-1])
    assert "no touching" in last_message and "well" in last_message

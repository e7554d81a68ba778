"""Unstable messages that segue itself supports: system prompts, the login's state, usage."""

import json

import pytest

from tests.agents.provider import Provider
from tests.interfaces.acp.harness import is_idle
from tests.interfaces.acp.testbed import AcpTestbed

TEXT = [{"type": "text", "text": "Answer in verse."}]


@pytest.mark.parametrize("mode", ["append", "override"])
async def test_system_prompt_reaches_the_model(
    testbed: AcpTestbed, version: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    cwd = str(testbed.directory)
    async with Provider() as provider:
        async with testbed.hub() as hub:
            await hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
            await hub.config.set("local", "model.base_url", provider.url)
        async with testbed.connect_in_process(version) as client:
            prompt = {"mode": mode, "content": TEXT}
            params = {"cwd": cwd, "mcpServers": [], "systemPrompt": prompt}
            id = (await client.request("session/new", params))["sessionId"]
            before = len(client.log)
            answer = await client.request("session/prompt", client.prompt_params(id, "hello"))
            if version == 2:
                answer = (await client.wait_for_update(is_idle, before, session=id)).body
            assert await client.request("session/close", {"sessionId": id}) == {}
            resumed = {
                **params,
                "sessionId": id,
                "systemPrompt": {"mode": mode, "content": [{"type": "text", "text": "In prose."}]},
            }
            await client.request("session/resume", resumed)
            await client.run_prompt(id, "again")
    first, second = (json.dumps(request["system"]) for request in provider.requests)
    assert "Answer in verse." in first and "In prose." in second and "verse" not in second
    assert ("You are a capable assistant" in first) == (mode == "append")
    assert answer["usage"]["totalTokens"] == (
        answer["usage"]["inputTokens"] + answer["usage"]["outputTokens"]
    )


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        ({"mode": "prepend", "content": TEXT}, "systemPrompt.mode"),
        ({"mode": "append", "content": []}, "systemPrompt.content"),
        ({"mode": "append", "content": [{"type": "image"}]}, "systemPrompt.content[0]"),
        ({"content": TEXT}, "systemPrompt"),
        ({"mode": "append", "content": TEXT}, "no model is configured"),
    ],
)
async def test_system_prompt_that_cannot_be_followed_is_refused(
    testbed: AcpTestbed, prompt: dict[str, object], field: str
) -> None:
    async with testbed.connect_in_process(1) as client:
        params = {"cwd": "/", "mcpServers": [], "systemPrompt": prompt}
        error = await client.request_error("session/new", params)
        assert field in error.message
        assert (await client.request("session/list", {}))["sessions"] == []


async def test_state_of_the_login_is_reported(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        assert await client.request("auth/status", {}) == {"state": "not_required"}
        await client.request("logout" if version == 1 else "auth/logout", {})
        assert await client.request("auth/status", {}) == {"state": "unauthenticated"}

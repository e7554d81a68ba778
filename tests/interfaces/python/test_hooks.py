"""can_use_tool, hooks and env with the types of Claude's Agent SDK and a model on loopback."""

import asyncio
import sys
import textwrap
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.agents.base.turn_hooks import HOOKS_KEY
from segue.hub import Hub
from segue.model.errors import InvalidInput, NoAgent
from segue.model.event import ConfigChanged
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore
from tests.agents.provider import Provider, Say, Use, Wait

MODEL = "claude-sonnet-4-6"


@dataclass
class PermissionResultAllow:
    """Like the SDK's dataclass; segue reads only the field names."""

    behavior: str = "allow"
    updated_input: dict[str, Any] | None = None
    updated_permissions: list[Any] | None = None


@dataclass
class PermissionResultDeny:
    behavior: str = "deny"
    message: str = ""
    interrupt: bool = False


@dataclass
class HookMatcher:
    matcher: str | None = None
    hooks: list[Any] = field(default_factory=list)
    timeout: float | None = None


class Environment:
    """A hub, a model provider and a working directory for sessions."""

    def __init__(self, home: Path) -> None:
        self.provider = Provider()
        self.hub = Hub(MemoryStore(), home)
        self.cwd = home / "cwd"
        self.cwd.mkdir()

    def script(self, *scripts: Any) -> None:
        """Set the next answers of the model."""
        self.provider.scripts += scripts

    async def run(self, text: str = "Go", **options: Any) -> Any:
        """Return the result of a prompt."""
        async with asyncio.timeout(120):  # only a failing test takes this long
            return await segue.prompt(text, model=MODEL, cwd=self.cwd, store=self.hub, **options)

    async def events(self, result: Any, *types: str) -> list[Any]:
        events = await self.hub.history.events(LOCAL, result.session_id, types=list(types))
        return [event.body for event in events]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return Environment(tmp_path)


def with_open_hub(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    """Run a test while the environment's hub and provider are open."""

    @wraps(test)
    async def run(environment: Environment, **more: Any) -> None:
        async with environment.provider, environment.hub as hub:
            await hub.config.set("local", "model", f"anthropic:{MODEL}")
            await hub.config.set("local", "model.base_url", environment.provider.url)
            await test(environment=environment, **more)

    return run


WRITE = Use("write", {"file_path": "a", "content": "x"})


def last_message(request: dict[str, Any]) -> str:
    """Return the last message that the model received."""
    return str(request["messages"][-1]["content"])


# can_use_tool


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


# hooks


def specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


@with_open_hub
async def test_a_hook_denies_a_call_that_the_mode_allows(environment: Environment) -> None:
    seen: list[Any] = []

    async def guard(input: Any, tool_use_id: Any, context: Any) -> Any:
        seen.append((dict(input), tool_use_id, context))
        return specific(
            "PreToolUse", permissionDecision="deny", permissionDecisionReason="not on Sundays"
        )

    environment.script([WRITE, Use("glob", {"pattern": "*"})])
    result = await environment.run(
        permission_mode="bypassPermissions",
        hooks={"PreToolUse": [HookMatcher("Write|Edit", [guard])]},
    )
    assert list(environment.cwd.iterdir()) == []
    assert "not on Sundays" in last_message(environment.provider.requests[1])
    ((input, id, context),) = seen  # the matcher leaves out glob
    call, _ = await environment.events(result, "tool_call")
    assert input == {
        "hook_event_name": "PreToolUse",
        "session_id": result.session_id,
        "transcript_path": "",
        "cwd": str(environment.cwd),
        "permission_mode": "bypassPermissions",
        "tool_name": "Write",
        "tool_input": WRITE.input,
        "tool_use_id": id,
    }
    assert id == call.call_id and context == {"signal": None}
    assert [result.status for result in await environment.events(result, "tool_result")] == [
        "failed",
        "completed",
    ]


@with_open_hub
async def test_hooks_change_the_input_of_a_tool_one_after_the_other(
    environment: Environment,
) -> None:
    async def first(input: Any, *_: Any) -> Any:
        return specific("PreToolUse", updatedInput={**input["tool_input"], "file_path": "b"})

    async def second(input: Any, *_: Any) -> Any:
        tool_input = input["tool_input"]
        return specific(
            "PreToolUse", permissionDecision="allow", updatedInput={**tool_input, "content": "y"}
        )

    environment.script([WRITE])
    result = await environment.run(hooks={"PreToolUse": [{"hooks": [first]}, {"hooks": [second]}]})
    assert (environment.cwd / "b").read_text() == "y" and not (environment.cwd / "a").exists()
    (call,) = await environment.events(result, "tool_call")
    assert call.input == {"file_path": "b", "content": "y"}
    assert call.extra["hooked"] == {"input": WRITE.input}
    assert await environment.events(result, "permission_asked") == []


@with_open_hub
async def test_a_hook_can_require_permission(environment: Environment) -> None:
    asked: list[str] = []

    async def ask(name: str, tool_input: Any) -> bool:
        asked.append(name)
        return True

    async def careful(*_: Any) -> Any:
        return specific("PreToolUse", permissionDecision="ask")

    hooks = {"PreToolUse": [HookMatcher(None, [careful])]}
    search = Use("glob", {"pattern": "*"})  # needs no permission otherwise
    environment.script([search])
    await environment.run(can_use_tool=ask, hooks=hooks)
    assert asked == ["glob"]
    environment.script([search])
    result = await environment.run(
        can_use_tool=ask, hooks=hooks, permission_mode="bypassPermissions"
    )
    assert asked == ["glob"]  # bypassPermissions refuses without a request
    assert [result.status for result in await environment.events(result, "tool_result")] == [
        "failed"
    ]


@pytest.mark.parametrize("timeout", [None, 0.01])
@with_open_hub
async def test_a_failing_hook_refuses_the_call(
    environment: Environment, timeout: float | None
) -> None:
    async def broken(*_: Any) -> Any:
        if timeout is not None:
            await asyncio.sleep(60)
        raise LookupError("oops")

    environment.script([WRITE])
    matcher = HookMatcher(None, [broken], timeout)
    await environment.run(permission_mode="acceptEdits", hooks={"PreToolUse": [matcher]})
    assert list(environment.cwd.iterdir()) == []
    message = "longer than 0.01 s" if timeout else "LookupError: oops"
    assert message in last_message(environment.provider.requests[1])


@with_open_hub
async def test_a_hook_with_an_invalid_input_refuses_the_call(environment: Environment) -> None:
    async def hook(*_: Any) -> Any:
        return specific("PreToolUse", permissionDecision="allow", updatedInput=["a"])

    environment.script([WRITE])
    result = await environment.run(hooks={"PreToolUse": [HookMatcher(None, [hook])]})
    assert not result.is_error and list(environment.cwd.iterdir()) == []
    assert "updatedInput ['a'], which is not a dict" in last_message(
        environment.provider.requests[1]
    )


@with_open_hub
async def test_a_hook_that_changes_its_own_input_does_not_change_the_call(
    environment: Environment,
) -> None:
    async def hook(input: Any, *_: Any) -> Any:
        input["tool_input"]["file_path"] = "b"
        return {}

    environment.script([WRITE])
    hooks = {"PreToolUse": [HookMatcher(None, [hook])]}
    result = await environment.run(permission_mode="acceptEdits", hooks=hooks)
    assert [path.name for path in environment.cwd.iterdir()] == ["a"]
    (call,) = await environment.events(result, "tool_call")
    assert call.input == WRITE.input


@with_open_hub
async def test_a_hook_stops_the_turn(environment: Environment) -> None:
    async def stop(*_: Any) -> Any:
        return {"continue_": False, "stopReason": "that is enough"}

    environment.script([WRITE])
    result = await environment.run(
        permission_mode="acceptEdits", hooks={"PreToolUse": [HookMatcher(None, [stop])]}
    )
    assert result.stop_reason == "cancelled" and len(environment.provider.requests) == 1
    assert list(environment.cwd.iterdir()) == []


@with_open_hub
async def test_hooks_see_and_change_results(environment: Environment) -> None:
    seen: list[Any] = []

    async def after(input: Any, *_: Any) -> Any:
        seen.append((input["hook_event_name"], input.get("tool_response"), input.get("error")))
        if input["tool_name"] == "Read":
            return specific("PostToolUse", updatedToolOutput="nothing to see")
        return specific(input["hook_event_name"], additionalContext="the weather is fine")

    (environment.cwd / "secret").write_text("swordfish")
    environment.script(
        [
            Use("read", {"file_path": "secret"}),
            Use("glob", {"pattern": "*"}),
            Use("read", {"file_path": "gone"}),
        ]
    )
    both = [HookMatcher(None, [after])]
    hooks = {"PostToolUse": both, "PostToolUseFailure": [HookMatcher("Glob", [after])]}
    result = await environment.run(hooks=hooks)
    assert [event for event, _, _ in seen] == ["PostToolUse", "PostToolUse"]
    assert "swordfish" in seen[0][1] and "secret" in seen[1][1]
    received = last_message(environment.provider.requests[1])
    assert "nothing to see" in received and "swordfish" not in received
    assert "the weather is fine" in str(environment.provider.requests[1])
    assert "swordfish" not in str(await environment.events(result, "tool_result"))


@with_open_hub
async def test_hooks_apply_to_functions_of_the_program(environment: Environment) -> None:
    called: list[str] = []

    def weather(city: str) -> str:
        called.append(city)
        return "rain"

    async def guard(input: Any, *_: Any) -> Any:
        if input["tool_input"]["city"] == "Atlantis":
            return {"decision": "block", "reason": "it sank"}
        return specific("PreToolUse", updatedInput={"city": "Bergen"})

    async def after(input: Any, *_: Any) -> Any:
        return specific("PostToolUse", additionalContext=f"it is {input['tool_response']} again")

    environment.script([Use("weather", {"city": "Oslo"}), Use("weather", {"city": "Atlantis"})])
    await environment.run(
        tools=[weather],
        hooks={
            "PreToolUse": [HookMatcher("weather", [guard])],
            "PostToolUse": [HookMatcher("weather", [after])],
        },
    )
    assert called == ["Bergen"]
    received = str(environment.provider.requests[1])
    assert "it sank" in received and "it is rain again" in received


@with_open_hub
async def test_hooks_can_add_to_a_prompt_or_block_it(environment: Environment) -> None:
    async def check_prompt(input: Any, *_: Any) -> Any:
        if "password" in input["prompt"]:
            return {"decision": "block", "reason": "no secrets here"}
        return specific("UserPromptSubmit", additionalContext="today is Monday")

    hooks = {"UserPromptSubmit": [HookMatcher(None, [check_prompt])]}
    result = await environment.run("What day is it?", hooks=hooks)
    assert result.result == "done"
    (request,) = environment.provider.requests
    assert "today is Monday" in str(request)
    with pytest.raises(InvalidInput, match="no secrets here"):
        await environment.run("my password is swordfish", hooks=hooks)
    assert len(environment.provider.requests) == 1


@with_open_hub
async def test_a_stop_hook_can_make_the_agent_continue(environment: Environment) -> None:
    continued: list[bool] = []

    async def stopping(input: Any, *_: Any) -> Any:
        continued.append(input["stop_hook_active"])
        return {} if continued[-1] else {"decision": "block", "reason": "the tests still fail"}

    environment.script([Say("All done.")], [Say("Now it is.")])
    result = await environment.run(hooks={"Stop": [HookMatcher(None, [stopping])]})
    assert continued == [False, True] and result.result == "Now it is."
    assert "the tests still fail" in str(environment.provider.requests[1])


@with_open_hub
async def test_a_hook_runs_before_a_compaction(environment: Environment) -> None:
    triggers: list[str] = []

    async def compacting(input: Any, *_: Any) -> Any:
        triggers.append(input["trigger"])
        return {}

    await environment.hub.config.set("local", "model.context", "10000")
    environment.provider.input_tokens = 9000
    environment.script([Use("glob", {"pattern": "*"})], [Say("THE SUMMARY")])
    await environment.run(hooks={"PreCompact": [HookMatcher(None, [compacting])]})
    assert triggers == ["auto"]


@pytest.mark.parametrize("calls", [1, 2])
@with_open_hub
async def test_a_hook_that_fails_after_the_call_fails_the_turn(
    environment: Environment, calls: int
) -> None:
    async def broken(*_: Any) -> Any:
        raise LookupError("oops")

    environment.script([Use("glob", {"pattern": "*"})] * calls)
    result = await environment.run(hooks={"PostToolUse": [HookMatcher(None, [broken])]})
    assert result.is_error and "a hook for PostToolUse failed" in result.errors[-1]


@with_open_hub
async def test_closing_withdraws_a_waiting_prompt_with_hooks(environment: Environment) -> None:
    async def hook(*_: Any) -> Any:
        return {}

    hooks = {"Stop": [HookMatcher(None, [hook])]}
    session = segue.create_session(
        model=MODEL, cwd=environment.cwd, store=environment.hub, hooks=hooks
    )
    id = session.session_id
    async with asyncio.timeout(60):
        environment.script([wait := Wait()])
        await session.send("One")
        await wait.reached.wait()
        await session.send("Two")
        assert len(await environment.hub.turns.queued(LOCAL, id)) == 1
        await session.close()
        assert await environment.hub.turns.queued(LOCAL, id) == []


@with_open_hub
async def test_a_turn_with_hooks_does_not_run_in_another_process(environment: Environment) -> None:
    with pytest.raises(NoAgent, match="hooks"):
        await environment.hub.agents.from_spec(
            LOCAL, {"kind": "default", HOOKS_KEY: "another process's"}
        )


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"SubagentStop": []}, "unknown event 'SubagentStop'; known events are PreToolUse"),
        ({"PreToolUse": [HookMatcher("(", [print])]}, "is not a valid pattern"),
        ({"PreToolUse": [print]}, "needs matchers"),
    ],
)
def test_invalid_hooks_are_refused_at_once(hooks: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        segue.create_session(model=MODEL, hooks=hooks)
    assert message in str(refused.value)
    with pytest.raises(InvalidInput, match="demo"):
        segue.create_session(model="demo", hooks={"Stop": [HookMatcher(None, [print])]})


# env


@with_open_hub
async def test_commands_and_mcp_servers_get_the_variables(
    environment: Environment, tmp_path: Path
) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        textwrap.dedent("""
            import os
            from mcp.server import MCPServer

            server = MCPServer("little")

            @server.tool()
            def colour() -> str:
                return "MCP has " + os.environ["COLOUR"] + os.environ["SHAPE"]

            server.run("stdio")
        """)
    )
    servers = {
        "little": {
            "command": sys.executable,
            "args": [str(server)],
            "env": {"SHAPE": "round"},
        }
    }
    environment.script(
        [Use("bash", {"command": "echo bash has $COLOUR"}), Use("little__colour", {})]
    )
    result = await environment.run(
        env={"COLOUR": "teal", "SHAPE": "square"},
        mcp_servers=servers,
        permission_mode="bypassPermissions",
    )
    received = last_message(environment.provider.requests[1])
    assert "bash has teal" in received and "MCP has tealround" in received
    # The variables are not stored, and a turn without them has a shell without them.
    environment.script([Use("bash", {"command": "echo bash has $COLOUR."})])
    await environment.hub.editor.configure(
        LOCAL, result.session_id, ConfigChanged(mode="bypassPermissions")
    )
    await environment.hub.turns.run(LOCAL, result.session_id, "Again")
    assert "bash has ." in last_message(environment.provider.requests[-1])
    history = [event async for event in environment.hub.history.read(LOCAL, result.session_id)]
    assert not any("square" in str(event.body) for event in history)


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A": 1}, {"A B": "c"}])
def test_invalid_variables_are_refused(env: Any) -> None:
    with pytest.raises(InvalidInput, match="env"):
        segue.create_session(model=MODEL, env=env)

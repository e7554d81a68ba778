"""can_use_tool, hooks and env in the shapes of Claude's Agent SDK, with a model on loopback."""

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
from segue.agents.turn_hooks import HOOKS_KEY
from segue.hub import Hub
from segue.model.errors import InvalidInput, NoAgent
from segue.model.event import ConfigChanged
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore
from tests.agents.provider import Provider, Say, Use, Wait

MODEL = "claude-sonnet-4-6"


@dataclass
class PermissionResultAllow:
    """As the SDK's are: dataclasses, of which only the names count here."""

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


class Place:
    """A hub with a provider, and a directory for sessions."""

    def __init__(self, home: Path) -> None:
        self.provider = Provider()
        self.hub = Hub(MemoryStore(), home)
        self.cwd = home / "cwd"
        self.cwd.mkdir()

    def answers(self, *scripts: Any) -> None:
        self.provider.scripts += scripts

    async def run(self, text: str = "Go", **options: Any) -> Any:
        """The result of a prompt."""
        async with asyncio.timeout(120):  # only a test that fails comes near it
            return await segue.prompt(text, model=MODEL, cwd=self.cwd, store=self.hub, **options)

    async def events(self, result: Any, *types: str) -> list[Any]:
        found = await self.hub.events(LOCAL, result.session_id, types=list(types))
        return [event.body for event in found]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return Place(tmp_path)


def inside(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    """A test in a place that is open."""

    @wraps(test)
    async def run(place: Place, **more: Any) -> None:
        async with place.provider, place.hub as hub:
            await hub.config.set("local", "model", f"anthropic:{MODEL}")
            await hub.config.set("local", "model.base_url", place.provider.url)
            await test(place=place, **more)

    return run


WRITE = Use("write", {"file_path": "a", "content": "x"})


def told(request: dict[str, Any]) -> str:
    """What the model was told last."""
    return str(request["messages"][-1]["content"])


# can_use_tool


@inside
async def test_what_is_allowed_with_another_input_is_done_with_that(place: Place) -> None:
    seen: list[Any] = []

    async def ask(name: str, given: dict[str, Any], context: Any) -> Any:
        seen.append((name, given, context.tool_use_id, context.title))
        return PermissionResultAllow(updated_input={**given, "file_path": "b", "content": "y"})

    place.answers([WRITE])
    result = await place.run(can_use_tool=ask)
    assert not (place.cwd / "a").exists() and (place.cwd / "b").read_text() == "y"
    ((name, given, call, title),) = seen
    assert (name, given, title) == ("Write", WRITE.input, "Write a")
    (event,) = await place.events(result, "tool_call")
    assert call == event.call_id
    (answered,) = await place.events(result, "permission_answered")
    assert answered.input == {"file_path": "b", "content": "y"}


async def test_the_demo_agent_does_it_too(tmp_path: Path) -> None:
    async def ask(name: str, given: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow(updated_input={"path": "b", "content": "y"})

    await segue.prompt(
        "/write a x", model="demo", cwd=tmp_path, store=tmp_path / "data", can_use_tool=ask
    )
    assert not (tmp_path / "a").exists() and (tmp_path / "b").read_text() == "y\n"


@inside
async def test_an_input_that_does_not_fit_is_told_to_the_model(place: Place) -> None:
    async def ask(name: str, given: Any, context: Any) -> Any:
        return {"behavior": "allow", "updatedInput": {"path": "b"}}

    place.answers([WRITE])
    await place.run(can_use_tool=ask)
    assert list(place.cwd.iterdir()) == []
    assert "do not fit" in told(place.provider.requests[1])


@inside
async def test_why_something_is_denied_is_told_to_the_model(place: Place) -> None:
    async def ask(name: str, given: Any, context: Any) -> Any:
        return PermissionResultDeny(message="the garden is closed")

    place.answers([WRITE])
    result = await place.run(can_use_tool=ask)
    assert "the garden is closed" in told(place.provider.requests[1])
    assert [each["tool_name"] for each in result.permission_denials] == ["write"]


@inside
async def test_a_denial_may_end_the_turn(place: Place) -> None:
    async def ask(name: str, given: Any, context: Any) -> Any:
        return PermissionResultDeny(message="enough", interrupt=True)

    place.answers([WRITE])
    result = await place.run(can_use_tool=ask)
    assert result.stop_reason == "cancelled" and len(place.provider.requests) == 1


@inside
async def test_what_a_suggestion_allows_is_not_asked_again(place: Place) -> None:
    asked: list[str] = []

    async def ask(name: str, given: Any, context: Any) -> Any:
        asked.append(name)
        return PermissionResultAllow(updated_permissions=context.suggestions)

    place.answers([WRITE], [WRITE], [Use("bash", {"command": "true"})])
    await place.run(can_use_tool=ask)
    assert asked == ["Write", "Bash"]


@inside
async def test_an_answer_may_allow_several_tools(place: Place) -> None:
    asked: list[str] = []

    async def ask(name: str, given: Any, context: Any) -> Any:
        asked.append(name)
        rules = [[{"toolName": each}] for each in ("Write", "Bash")]
        updates = [{"type": "addRules", "behavior": "allow", "rules": each} for each in rules]
        return PermissionResultAllow(updated_permissions=updates)

    place.answers([WRITE], [WRITE], [Use("bash", {"command": "true"})])
    await place.run(can_use_tool=ask)
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
@inside
async def test_what_cannot_be_kept_is_refused_and_nothing_is_done(
    place: Place, update: dict[str, Any]
) -> None:
    async def ask(name: str, given: Any, context: Any) -> Any:
        return PermissionResultAllow(updated_permissions=[update])

    place.answers([WRITE])
    with pytest.raises(InvalidInput, match="updated_permissions"):
        await place.run(can_use_tool=ask)
    assert list(place.cwd.iterdir()) == []


@inside
async def test_an_answer_may_set_the_mode(place: Place) -> None:
    asked: list[str] = []

    async def ask(name: str, given: Any, context: Any) -> Any:
        asked.append(name)
        mode = {"type": "setMode", "mode": "acceptEdits"}
        return PermissionResultAllow(updated_permissions=[mode])

    place.answers([WRITE], [WRITE])
    result = await place.run(can_use_tool=ask)
    assert asked == ["Write"]
    assert (await place.hub.get(LOCAL, result.session_id)).mode == "acceptEdits"


@inside
async def test_an_answer_that_is_none_refuses(place: Place) -> None:
    async def ask(name: str, given: Any) -> Any:
        return "yes"

    place.answers([WRITE])
    with pytest.raises(InvalidInput, match="can_use_tool answers"):
        await place.run(can_use_tool=ask)
    assert list(place.cwd.iterdir()) == []


# hooks


def specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


@inside
async def test_a_hook_denies_what_a_mode_would_allow(place: Place) -> None:
    seen: list[Any] = []

    async def guard(input: Any, tool_use_id: Any, context: Any) -> Any:
        seen.append((dict(input), tool_use_id, context))
        return specific(
            "PreToolUse", permissionDecision="deny", permissionDecisionReason="not on Sundays"
        )

    place.answers([WRITE, Use("glob", {"pattern": "*"})])
    result = await place.run(
        permission_mode="bypassPermissions",
        hooks={"PreToolUse": [HookMatcher("Write|Edit", [guard])]},
    )
    assert list(place.cwd.iterdir()) == []
    assert "not on Sundays" in told(place.provider.requests[1])
    ((input, id, context),) = seen  # glob is no business of its
    call, _ = await place.events(result, "tool_call")
    assert input == {
        "hook_event_name": "PreToolUse",
        "session_id": result.session_id,
        "transcript_path": "",
        "cwd": str(place.cwd),
        "permission_mode": "bypassPermissions",
        "tool_name": "Write",
        "tool_input": WRITE.input,
        "tool_use_id": id,
    }
    assert id == call.call_id and context == {"signal": None}
    assert [each.status for each in await place.events(result, "tool_result")] == [
        "failed",
        "completed",
    ]


@inside
async def test_hooks_change_what_a_tool_is_given_one_after_the_other(place: Place) -> None:
    async def first(input: Any, *_: Any) -> Any:
        return specific("PreToolUse", updatedInput={**input["tool_input"], "file_path": "b"})

    async def second(input: Any, *_: Any) -> Any:
        given = input["tool_input"]
        return specific(
            "PreToolUse", permissionDecision="allow", updatedInput={**given, "content": "y"}
        )

    place.answers([WRITE])
    result = await place.run(hooks={"PreToolUse": [{"hooks": [first]}, {"hooks": [second]}]})
    assert (place.cwd / "b").read_text() == "y" and not (place.cwd / "a").exists()
    (call,) = await place.events(result, "tool_call")
    assert call.input == {"file_path": "b", "content": "y"}
    assert call.extra["hooked"] == {"input": WRITE.input}
    assert await place.events(result, "permission_asked") == []


@inside
async def test_a_hook_may_have_somebody_asked(place: Place) -> None:
    asked: list[str] = []

    async def ask(name: str, given: Any) -> bool:
        asked.append(name)
        return True

    async def careful(*_: Any) -> Any:
        return specific("PreToolUse", permissionDecision="ask")

    hooks = {"PreToolUse": [HookMatcher(None, [careful])]}
    look = Use("glob", {"pattern": "*"})  # of which nobody is asked otherwise
    place.answers([look])
    await place.run(can_use_tool=ask, hooks=hooks)
    assert asked == ["glob"]
    place.answers([look])
    result = await place.run(can_use_tool=ask, hooks=hooks, permission_mode="bypassPermissions")
    assert asked == ["glob"]  # in a mode in which nobody is
    assert [each.status for each in await place.events(result, "tool_result")] == ["failed"]


@pytest.mark.parametrize("timeout", [None, 0.01])
@inside
async def test_a_hook_that_fails_lets_nothing_through(place: Place, timeout: float | None) -> None:
    async def broken(*_: Any) -> Any:
        if timeout is not None:
            await asyncio.sleep(60)
        raise LookupError("oops")

    place.answers([WRITE])
    matcher = HookMatcher(None, [broken], timeout)
    await place.run(permission_mode="acceptEdits", hooks={"PreToolUse": [matcher]})
    assert list(place.cwd.iterdir()) == []
    why = "longer than 0.01 s" if timeout else "LookupError: oops"
    assert why in told(place.provider.requests[1])


@inside
async def test_a_hook_that_gives_a_tool_what_is_none_lets_nothing_through(place: Place) -> None:
    async def hook(*_: Any) -> Any:
        return specific("PreToolUse", permissionDecision="allow", updatedInput=["a"])

    place.answers([WRITE])
    result = await place.run(hooks={"PreToolUse": [HookMatcher(None, [hook])]})
    assert not result.is_error and list(place.cwd.iterdir()) == []
    assert "updatedInput ['a'] is no dict" in told(place.provider.requests[1])


@inside
async def test_what_a_hook_is_told_is_not_what_the_tool_is_given(place: Place) -> None:
    async def hook(told: Any, *_: Any) -> Any:
        told["tool_input"]["file_path"] = "b"
        return {}

    place.answers([WRITE])
    hooks = {"PreToolUse": [HookMatcher(None, [hook])]}
    result = await place.run(permission_mode="acceptEdits", hooks=hooks)
    assert [each.name for each in place.cwd.iterdir()] == ["a"]
    (call,) = await place.events(result, "tool_call")
    assert call.input == WRITE.input


@inside
async def test_a_hook_stops_the_turn(place: Place) -> None:
    async def stop(*_: Any) -> Any:
        return {"continue_": False, "stopReason": "that is enough"}

    place.answers([WRITE])
    result = await place.run(
        permission_mode="acceptEdits", hooks={"PreToolUse": [HookMatcher(None, [stop])]}
    )
    assert result.stop_reason == "cancelled" and len(place.provider.requests) == 1
    assert list(place.cwd.iterdir()) == []


@inside
async def test_hooks_see_results_and_add_to_them(place: Place) -> None:
    seen: list[Any] = []

    async def after(input: Any, *_: Any) -> Any:
        seen.append((input["hook_event_name"], input.get("tool_response"), input.get("error")))
        if input["tool_name"] == "Read":
            return specific("PostToolUse", updatedToolOutput="nothing to see")
        return specific(input["hook_event_name"], additionalContext="the weather is fine")

    (place.cwd / "secret").write_text("swordfish")
    place.answers(
        [
            Use("read", {"file_path": "secret"}),
            Use("glob", {"pattern": "*"}),
            Use("read", {"file_path": "gone"}),
        ]
    )
    both = [HookMatcher(None, [after])]
    hooks = {"PostToolUse": both, "PostToolUseFailure": [HookMatcher("Glob", [after])]}
    result = await place.run(hooks=hooks)
    assert [each[0] for each in seen] == ["PostToolUse", "PostToolUse"]
    assert "swordfish" in seen[0][1] and "secret" in seen[1][1]
    heard = told(place.provider.requests[1])
    assert "nothing to see" in heard and "swordfish" not in heard
    assert "the weather is fine" in str(place.provider.requests[1])
    assert "swordfish" not in str(await place.events(result, "tool_result"))


@inside
async def test_functions_of_the_program_are_watched_over_too(place: Place) -> None:
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

    place.answers([Use("weather", {"city": "Oslo"}), Use("weather", {"city": "Atlantis"})])
    await place.run(
        tools=[weather],
        hooks={
            "PreToolUse": [HookMatcher("weather", [guard])],
            "PostToolUse": [HookMatcher("weather", [after])],
        },
    )
    assert called == ["Bergen"]
    heard = str(place.provider.requests[1])
    assert "it sank" in heard and "it is rain again" in heard


@inside
async def test_hooks_hear_prompts_first(place: Place) -> None:
    async def prompted(input: Any, *_: Any) -> Any:
        if "password" in input["prompt"]:
            return {"decision": "block", "reason": "no secrets here"}
        return specific("UserPromptSubmit", additionalContext="today is Monday")

    hooks = {"UserPromptSubmit": [HookMatcher(None, [prompted])]}
    result = await place.run("What day is it?", hooks=hooks)
    assert result.result == "done"
    (request,) = place.provider.requests
    assert "today is Monday" in str(request)
    with pytest.raises(InvalidInput, match="no secrets here"):
        await place.run("my password is swordfish", hooks=hooks)
    assert len(place.provider.requests) == 1


@inside
async def test_a_hook_at_the_end_may_have_the_agent_go_on(place: Place) -> None:
    again: list[bool] = []

    async def stopping(input: Any, *_: Any) -> Any:
        again.append(input["stop_hook_active"])
        return {} if again[-1] else {"decision": "block", "reason": "the tests still fail"}

    place.answers([Say("All done.")], [Say("Now it is.")])
    result = await place.run(hooks={"Stop": [HookMatcher(None, [stopping])]})
    assert again == [False, True] and result.result == "Now it is."
    assert "the tests still fail" in str(place.provider.requests[1])


@inside
async def test_a_hook_hears_that_the_memory_is_shortened(place: Place) -> None:
    triggers: list[str] = []

    async def compacting(input: Any, *_: Any) -> Any:
        triggers.append(input["trigger"])
        return {}

    await place.hub.config.set("local", "model.context", "10000")
    place.provider.input_tokens = 9000
    place.answers([Use("glob", {"pattern": "*"})], [Say("THE SUMMARY")])
    await place.run(hooks={"PreCompact": [HookMatcher(None, [compacting])]})
    assert triggers == ["auto"]


@pytest.mark.parametrize("calls", [1, 2])
@inside
async def test_a_hook_that_fails_after_the_fact_fails_the_turn(place: Place, calls: int) -> None:
    async def broken(*_: Any) -> Any:
        raise LookupError("oops")

    place.answers([Use("glob", {"pattern": "*"})] * calls)
    result = await place.run(hooks={"PostToolUse": [HookMatcher(None, [broken])]})
    assert result.is_error and "a hook for PostToolUse failed" in result.errors[-1]


@inside
async def test_a_prompt_with_hooks_that_has_not_begun_goes_with_its_program(place: Place) -> None:
    async def hook(*_: Any) -> Any:
        return {}

    hooks = {"Stop": [HookMatcher(None, [hook])]}
    session = segue.create_session(model=MODEL, cwd=place.cwd, store=place.hub, hooks=hooks)
    id = session.session_id
    async with asyncio.timeout(60):
        place.answers([wait := Wait()])
        await session.send("One")
        await wait.reached.wait()
        await session.send("Two")
        assert len(await place.hub.waiting(LOCAL, id)) == 1
        await session.close()
        assert await place.hub.waiting(LOCAL, id) == []


@inside
async def test_a_turn_with_hooks_runs_nowhere_else(place: Place) -> None:
    with pytest.raises(NoAgent, match="hooks"):
        await place.hub.agent(LOCAL, {"kind": "default", HOOKS_KEY: "another process's"})


@pytest.mark.parametrize(
    ("hooks", "why"),
    [
        ({"SubagentStop": []}, "there is no 'SubagentStop' here; there are PreToolUse"),
        ({"PreToolUse": [HookMatcher("(", [print])]}, "is no pattern"),
        ({"PreToolUse": [print]}, "needs matchers"),
    ],
)
def test_hooks_that_cannot_be_are_refused_at_once(hooks: Any, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        segue.create_session(model=MODEL, hooks=hooks)
    assert why in str(refused.value)
    with pytest.raises(InvalidInput, match="demo"):
        segue.create_session(model="demo", hooks={"Stop": [HookMatcher(None, [print])]})


# env


@inside
async def test_programs_of_tools_have_the_variables_that_are_given(
    place: Place, tmp_path: Path
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
    place.answers([Use("bash", {"command": "echo bash has $COLOUR"}), Use("little__colour", {})])
    result = await place.run(
        env={"COLOUR": "teal", "SHAPE": "square"},
        mcp_servers=servers,
        permission_mode="bypassPermissions",
    )
    heard = told(place.provider.requests[1])
    assert "bash has teal" in heard and "MCP has tealround" in heard
    # Nothing of it is kept, and who goes on without it has a shell without it.
    place.answers([Use("bash", {"command": "echo bash has $COLOUR."})])
    await place.hub.configure(LOCAL, result.session_id, ConfigChanged(mode="bypassPermissions"))
    await place.hub.run(LOCAL, result.session_id, "Again")
    assert "bash has ." in told(place.provider.requests[-1])
    history = [event async for event in place.hub.history(LOCAL, result.session_id)]
    assert not any("square" in str(event.body) for event in history)


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A": 1}, {"A B": "c"}])
def test_variables_that_cannot_be_are_refused(env: Any) -> None:
    with pytest.raises(InvalidInput, match="env"):
        segue.create_session(model=MODEL, env=env)

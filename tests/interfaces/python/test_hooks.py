"""Hooks run around the turns of a program, as in Claude's Agent SDK."""

import asyncio
from typing import Any

import pytest

import segue
from segue.agents.base.turn_hooks import HOOKS_KEY
from segue.model.errors import InvalidInput, NoAgent
from segue.model.principal import LOCAL
from tests.agents.provider import Say, Use, Wait
from tests.interfaces.python.model_session import (
    MODEL,
    WRITE,
    Environment,
    HookMatcher,
    last_message,
    with_open_hub,
)


def specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


async def no_opinion(*_: Any) -> None:
    return None


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
    assert "updatedInput must be dict, not ['a']" in last_message(environment.provider.requests[1])


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
        ({"PreToolUse": [HookMatcher("(", [no_opinion])]}, "is not a valid pattern"),
        ({"PreToolUse": [HookMatcher(None, [print])]}, "needs async functions"),
        ({"Stop": [{"matchr": "Bash", "hooks": [no_opinion]}]}, "unknown field 'matchr'"),
        ({"Stop": [{"hooks": [no_opinion], "timeout": 0}]}, "more than 0 seconds, not 0"),
        ({"PreToolUse": [print]}, "needs matchers"),
    ],
)
def test_invalid_hooks_are_refused_at_once(hooks: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        segue.create_session(model=MODEL, hooks=hooks)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"hooks": {"Stop": [HookMatcher(None, [no_opinion])]}},
        {"system_prompt": "Be brief."},
        {"append_system_prompt": "Be brief."},
        {"max_turns": 2},
        {"allowed_tools": ["Write"]},
        {"disallowed_tools": ["Write"]},
        {"disallowed_tools": ["Bash(git:*)"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_the_demo_agent_refuses_what_it_cannot_honour(options: Any) -> None:
    (name,) = options
    with pytest.raises(InvalidInput, match=f"^{name} does not work with the model demo"):
        segue.create_session(model="demo", **options)


@pytest.mark.parametrize("more", [{}, {"disallowed_tools": ["Bash(git:*)"]}])
def test_function_in_place_of_matchers_is_refused(more: dict[str, Any]) -> None:
    async def hook(*values: Any) -> dict[str, Any]:
        return {}

    with pytest.raises(InvalidInput, match="PreToolUse must be a list of matchers"):
        segue.create_session(model=MODEL, hooks={"PreToolUse": hook}, **more)


@pytest.mark.parametrize(
    "answer",
    [
        {"frob": 1},
        specific("PreToolUse", permisionDecision="deny"),
        specific("PreToolUse", permissionDecision="Deny"),
        {"decision": "blocked"},
        {"continue_": "no"},
        {"hookSpecificOutput": "deny"},
        "deny",
        False,
    ],
    ids=str,
)
@with_open_hub
async def test_an_answer_that_is_not_understood_refuses_the_call(
    environment: Environment, answer: Any
) -> None:
    async def guard(*_: Any) -> Any:
        return answer

    environment.script([WRITE])
    await environment.run(
        permission_mode="bypassPermissions", hooks={"PreToolUse": [{"hooks": [guard]}]}
    )
    assert list(environment.cwd.iterdir()) == []
    assert "a hook for PreToolUse failed" in last_message(environment.provider.requests[1])


@pytest.mark.parametrize("answer", [None, {}, {"suppressOutput": True, "decision": None}], ids=str)
@with_open_hub
async def test_a_hook_without_an_opinion_leaves_the_call_to_the_mode(
    environment: Environment, answer: Any
) -> None:
    async def guard(*_: Any) -> Any:
        return answer

    environment.script([WRITE])
    await environment.run(
        permission_mode="bypassPermissions", hooks={"PreToolUse": [{"hooks": [guard]}]}
    )
    assert [path.name for path in environment.cwd.iterdir()] == ["a"]

"""The options of sessions: checked when they are given, and enforced."""

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import segue
from segue import sync
from segue.interfaces.python.command_rules import CommandRules, command_rule
from segue.interfaces.python.options import PERMISSION_MODES, Options
from segue.interfaces.python.subagents import subagents
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import ToolCall
from segue.model.principal import LOCAL
from tests.agents.provider import Say, Use
from tests.interfaces.python.model_session import (
    MODEL,
    WRITE,
    Environment,
    last_message,
    with_open_hub,
)

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
HELPER = {"description": "Reads files", "prompt": "I am the helper."}
OUTPUT_FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"system_prompt": {"type": "preset"}}, "system_prompt must be a string"),
        ({"append_system_prompt": 1}, "append_system_prompt must be a string"),
        ({"max_turns": "3"}, "max_turns must be a whole number"),
        ({"max_turns": True}, "max_turns must be a whole number"),
        ({"max_budget_usd": "1"}, "max_budget_usd must be a number"),
        ({"max_budget_usd": 0}, "max_budget_usd must be more than 0"),
        ({"allowed_tools": "Bash"}, "allowed_tools must be a list of names"),
        ({"allowed_tools": [1]}, "allowed_tools must be a list of names"),
        ({"allowed_tools": ["Read(./src/**)"]}, "only Bash has rules"),
        ({"allowed_tools": ["Bash(*)"]}, "is not a rule"),
        ({"mcp_servers": []}, "mcp_servers must be a mapping"),
        ({"can_use_tool": 1}, "can_use_tool must be a function"),
        ({"tools": ["x"]}, "tools must be a list of functions"),
        ({"permission_mode": "always"}, "permission_mode 'always' is not one of"),
        ({"thinking": "hard"}, "thinking 'hard' is not one of"),
        ({"add_dirs": ["/no/such/place"]}, "add_dirs: there is no directory /no/such/place"),
        ({"include_partial_messages": "yes"}, "include_partial_messages must be True or False"),
        ({"output_format": {"type": "text"}}, "output_format must be"),
        ({"cwd": 5}, "cwd must be a directory, not 5"),
        ({"cwd": ""}, "cwd must be a directory, not ''"),
        ({"store": 5}, "store must be a directory, a database URL, a Store or a Hub"),
        ({"tools": [lambda text: text]}, "has no name; define it with def"),
        ({"allowed_tools": ["mcp__"]}, "there is no tool 'mcp__'"),
        ({"mcp_servers": {"a": {"command": "x", "args": "-v"}}}, "args must be a list of strings"),
        ({"mcp_servers": {"a": {"command": "x", "args": 1}}}, "args must be a list of strings"),
        ({"mcp_servers": {"a": {"command": "x", "env": {"N": 1}}}}, "env must be a mapping of"),
        ({"mcp_servers": {"a": {"command": "x", "cmd": "y"}}}, "has the unknown field 'cmd'"),
        ({"mcp_servers": {"a": {"command": ""}}}, "needs a command"),
        ({"mcp_servers": {"a": {"type": "sse", "command": "x"}}}, "needs a command"),
        ({"mcp_servers": {"a": {"type": "http", "url": "ftp://x"}}}, "is not an http or https URL"),
        ({"mcp_servers": {"a": {"type": "http", "url": "http://x", "key": "k"}}}, "field 'key'"),
        ({"hooks": {"Stop": 1}}, "hooks: Stop must be a list of matchers, not 1"),
        ({"env": {"A": "a\0b"}}, "env: the value of A contains a NUL character"),
        ({"output_format": {**OUTPUT_FORMAT, "strict": True}}, "output_format must be"),
        ({"hooks": {"Stop": [{"matcher": 1, "hooks": [print]}]}}, "a matcher must be a string"),
        ({"setting_sources": []}, "unknown option 'setting_sources'"),
        ({"agents": ["x"]}, "agents must be a mapping"),
        ({"agents": {"a": {"prompt": "p"}}}, "agents: a needs a description"),
        ({"agents": {"a": {**HELPER, "tools": ["Nothing"]}}}, "there is no tool 'Nothing'"),
        ({"agents": {"a": {**HELPER, "tools": "Bash"}}}, "must be a list of names"),
        ({"agents": {"a": {**HELPER, "model": "best"}}}, "the model 'best' of a is not a model"),
        ({"agents": {"a": {**HELPER, "memory": "user"}}}, "a has the unknown field 'memory'"),
    ],
)
def test_bad_option_is_refused_when_it_is_given(options: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        segue.create_session(model=MODEL, **options)
    assert message in raised.value.message


def test_option_that_is_none_is_as_if_left_out() -> None:
    options: Any = dict.fromkeys(Options.__annotations__)
    segue.create_session(model=MODEL, **options)


def test_directory_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no directory /no/such/place"):
        segue.create_session(model="demo", cwd="/no/such/place")


@with_open_hub
async def test_title_directories_and_thinking_reach_the_session(environment: Environment) -> None:
    more = environment.cwd.parent / "more"
    more.mkdir()
    result = await environment.run(title="Mine", add_dirs=[more], thinking="low")
    session = await environment.hub.sessions.get(LOCAL, result.session_id)
    assert (session.title, session.roots) == ("Mine", (str(more),))
    (request,) = environment.provider.requests
    assert "low" in str(request) or "budget_tokens" in str(request)


@with_open_hub
async def test_turn_stops_when_the_budget_is_spent(environment: Environment) -> None:
    environment.script([Use("bash", {"command": "true"})], [Use("bash", {"command": "true"})])
    result = await environment.run(max_budget_usd=0.000001, permission_mode="bypassPermissions")
    assert (result.subtype, result.is_error) == ("error_max_budget_usd", True)
    assert len(environment.provider.requests) == 1


@with_open_hub
async def test_dont_ask_refuses_without_asking(environment: Environment) -> None:
    async def ask(name: str, tool_input: Any) -> bool:
        raise AssertionError("asked for a permission")

    environment.script([WRITE])
    result = await environment.run(permission_mode="dontAsk", can_use_tool=ask)
    assert not (environment.cwd / "a").exists()
    assert [denial["tool_name"] for denial in result.permission_denials] == ["write"]


async def test_unknown_provider_is_refused_before_the_session_exists(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no provider 'frob'"):
        async with segue.create_session(model="frob:x", store=tmp_path):
            raise AssertionError("the session was created")
    assert await segue.list_sessions(store=tmp_path) == []


@with_open_hub
async def test_rules_allow_and_forbid_commands(environment: Environment) -> None:
    environment.script(
        [Use("bash", {"command": "echo yes > made"}), Use("bash", {"command": "touch allowed"})],
        [Use("bash", {"command": "touch other; rm -f allowed"})],
    )
    result = await environment.run(
        allowed_tools=["Bash(touch:*)"],
        disallowed_tools=["Bash(rm:*)"],
        permission_mode="dontAsk",
    )
    assert sorted(path.name for path in environment.cwd.iterdir()) == ["allowed"]
    assert len(result.permission_denials) == 1  # the redirection; the hook denies the last one
    assert "Bash(rm:*) forbids it" in last_message(environment.provider.requests[-1])


@with_open_hub
async def test_answer_has_the_form_of_the_schema(environment: Environment) -> None:
    environment.script(
        [Use("StructuredOutput", {"days": 2})],
        [Use("StructuredOutput", {"city": "Oslo", "days": 2})],
    )
    result = await environment.run(output_format=OUTPUT_FORMAT)
    assert result.structured_output == {"city": "Oslo", "days": 2}
    assert result.subtype == "success"
    assert "'city' is a required property" in last_message(environment.provider.requests[1])


@with_open_hub
async def test_missing_structured_answer_is_an_error(environment: Environment) -> None:
    result = await environment.run(output_format=OUTPUT_FORMAT)
    assert result.subtype == "error_max_structured_output_retries"
    assert result.is_error and result.structured_output is None


@pytest.mark.parametrize(
    ("rule", "command", "allowed"),
    [
        ("Bash(git:*)", "git status", True),
        ("Bash(git:*)", "git", True),
        ("Bash(git:*)", "gitk", False),
        ("Bash(git *)", "git  log", True),
        ("Bash(npm test)", "npm test", True),
        ("Bash(npm test)", "npm test --watch", False),
        ("Bash(git:*)", "git status && rm -rf /", False),
        ("Bash(git:*)", "git log | sh", False),
        ("Bash(git:*)", "git log $(rm x)", False),
        ("Bash(git:*)", "git log `rm x`", False),
        ("Bash(git:*)", "git log\nrm x", False),
        ("Bash(git:*)", "git log > /etc/passwd", False),
        ("Bash(git:*)", "git log <(rm x)", False),
    ],
)
def test_rule_allows_only_one_simple_command(rule: str, command: str, allowed: bool) -> None:
    call = ToolCall(call_id="c", name="bash", kind="execute", input={"command": command})
    assert CommandRules([rule], []).allows(call) is allowed
    assert command_rule("Bash") is None


async def test_sync_functions_work_while_a_loop_runs(tmp_path: Path) -> None:
    result = sync.prompt("/say Hello", model="demo", cwd=tmp_path, store=tmp_path / "data")
    assert result.result == "Hello"
    with sync.create_session(model="demo", cwd=tmp_path, store=tmp_path / "data") as session:
        session.send("/say Again")
        assert [message.type for message in session.stream()][-1] == "result"
    assert len(sync.list_sessions(store=tmp_path / "data")) == 2


async def test_functions_search_archive_and_delete(tmp_path: Path) -> None:
    store = tmp_path / "data"
    result = await segue.prompt("/say a needle", model="demo", cwd=tmp_path, store=store)
    id = result.session_id
    (found,) = await segue.search_sessions("needle", store=store)
    assert (found.session.session_id, "needle" in found.snippet) == (id, True)
    assert await segue.search_sessions("needle", tmp_path / "other", store=store) == []
    await segue.archive_session(id, store=store)
    assert (await segue.list_sessions(store=store))[0].archived is True
    await segue.unarchive_session(id, tmp_path, store=store)
    assert await segue.get_session_info(id, tmp_path / "other", store=store) is None
    with pytest.raises(NotFound, match="is not of"):
        await segue.delete_session(id, tmp_path / "other", store=store)
    await segue.delete_session(id, store=store)
    assert await segue.list_sessions(store=store) == []
    with pytest.raises(NotFound):
        await segue.delete_session(id, store=store)


@with_open_hub
async def test_agents_get_delegated_work_with_their_own_prompt_and_tools(
    environment: Environment,
) -> None:
    (environment.cwd / "a").write_text("the content")
    helper = {**HELPER, "tools": ["Read", "double"], "model": "anthropic:claude-haiku-4-5"}

    def double(number: int) -> int:
        """Return twice the number."""
        return 2 * number

    def half(number: int) -> int:
        """Return a half of the number."""
        return number // 2

    environment.script(
        [Use("delegate", {"agent": "helper", "message": "Read a"})],
        [Use("read", {"file_path": "a"}), Use("double", {"number": 21})],
        [Say("It says so.")],
    )
    result = await environment.run(agents={"helper": helper}, tools=[double, half])
    first, second, third, last = environment.provider.requests
    assert "delegate" in {tool["name"] for tool in first["tools"]}
    assert {tool["name"] for tool in second["tools"]} == {"read", "double"}
    assert "I am the helper." in str(second["system"]) and second["model"] == "claude-haiku-4-5"
    assert "the content" in last_message(third) and "42" in last_message(third)
    assert "It says so." in last_message(last)
    assert (result.subtype, result.result) == ("success", "done")


@with_open_hub
async def test_rules_and_hooks_apply_to_agents_too(environment: Environment) -> None:
    environment.script(
        [Use("delegate", {"agent": "helper", "message": "Remove a"})],
        [Use("bash", {"command": "rm -f a"})],
        [Say("I could not.")],
    )
    await environment.run(
        agents={"helper": HELPER},
        disallowed_tools=["Bash(rm:*)"],
        permission_mode="bypassPermissions",
    )
    assert "Bash(rm:*) forbids it" in last_message(environment.provider.requests[2])


def test_the_tools_of_an_agent_may_be_any_iterable() -> None:
    listed, iterated = (
        subagents({"agents": {"helper": {**HELPER, "tools": tools}}})
        for tools in (["Read", "Grep"], iter(["Read", "Grep"]))
    )
    assert listed == iterated


@pytest.mark.parametrize("prompt", [3, None, ["Hello"], {"type": "text"}], ids=str)
async def test_a_prompt_of_another_type_is_refused(prompt: Any, tmp_path: Path) -> None:
    async with segue.create_session(model="demo", cwd=tmp_path, store=tmp_path / "data") as session:
        with pytest.raises(InvalidInput, match="a prompt must be a string or content blocks"):
            await session.send(prompt)


def test_the_type_of_the_permission_mode_names_every_mode() -> None:
    assert set(get_args(get_type_hints(Options)["permission_mode"])) == set(PERMISSION_MODES)

"""Tests of the model agent with the real clients and a scripted provider."""

import asyncio
from typing import Any

import pytest

from segue.hub.turns.running.turn_reader import EVENTS_PER_READ
from segue.model.content import Image, Text, as_content
from segue.model.event import AgentMessage, AgentRef, Compacted, ConfigChanged, Delta, Event
from segue.model.principal import LOCAL, Principal

from .conftest import TIMEOUT_SECONDS, ModelSetup, bodies_of, message_texts, requests_of
from .provider import Cut, Fail, Garbage, Provider, Say, Stop, Think, Use, Wait

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)

REMOTE_CALLER = Principal(workspace="local", key_id="key")


def results(request: dict[str, Any]) -> list[Any]:
    """Return the tool results in a request's last message."""
    return [b for b in request["messages"][-1]["content"] if b["type"] == "tool_result"]


async def test_an_answer_is_stored_with_its_usage(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Think("hm, so"), Say("Hello there.")])
        bodies = await setup.run_prompt("Hi")
    assert message_texts(bodies) == ["Hello there."]
    (thought,) = bodies_of(bodies, "agent_thought")
    assert thought.extra["model"]["signature"] == "signed"
    (message,) = bodies_of(bodies, "agent_message")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (10, 7)
    assert message.usage.cost == 10 * 3 + 7 * 15
    # One request: its first event says when it began, and no other event is about it.
    assert thought.request == message.request and thought.usage is None
    assert thought.asked_at is not None and message.asked_at is None
    assert bodies_of(bodies, "model_asked") == bodies_of(bodies, "model_called") == []
    (request,) = setup.provider.requests
    assert request["messages"][-1]["content"][-1]["text"] == "Hi"


async def test_followers_receive_deltas_before_the_message_is_complete(setup: ModelSetup) -> None:
    async with setup:
        wait = Wait()
        setup.add_scripts([Say("first half"), wait, Say(" and the rest")])
        session = await setup.session()
        seen = []
        await setup.hub.turns.submit(LOCAL, session.id, "Hi")
        async for item in setup.hub.history.follow(LOCAL, session.id, deltas=True):
            if isinstance(item, Delta):
                seen.append(item.text)
                if "".join(seen) == "first half":
                    wait.event.set()
            elif item.type == "agent_message":
                break
    assert "".join(seen) == "first half and the rest"


async def test_tool_results_are_sent_back_to_the_model(setup: ModelSetup) -> None:
    (setup.cwd / "a.txt").write_text("one\ntwo\n")
    async with setup:
        setup.add_scripts([Use("read", {"file_path": "a.txt"})], [Say("It has two lines.")])
        bodies = await setup.run_prompt("How long is a.txt?")
    (call,), (result,) = bodies_of(bodies, "tool_call"), bodies_of(bodies, "tool_result")
    assert (call.name, call.kind, call.input) == ("read", "read", {"file_path": "a.txt"})
    assert result.content[0].text == "     1\tone\n     2\ttwo"
    assert message_texts(bodies) == ["It has two lines."]
    _, second = setup.provider.requests
    assert results(second)[0]["content"] == [{"type": "text", "text": "     1\tone\n     2\ttwo"}]


async def test_several_calls_of_one_answer_run_in_order(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts(
            [
                Say("Both."),
                Use("write", {"file_path": "n/a.txt", "content": "x"}),
                Use("edit", {"file_path": "n/a.txt", "old_string": "x", "new_string": "y"}),
            ]
        )
        bodies = await setup.run_prompt("Go")
    assert (setup.cwd / "n" / "a.txt").read_text() == "y"
    assert [body.status for body in bodies_of(bodies, "tool_result")] == ["completed", "completed"]
    order = [body.__struct_config__.tag for body in bodies]
    first = order.index("agent_message")
    assert order[first : first + 3] == ["agent_message", "tool_call", "tool_call"]
    usages = [body.usage for body in bodies[first : first + 3]]
    assert usages[:2] == [None, None] and usages[2].output_tokens == 7


async def test_the_next_turn_sends_the_whole_conversation(setup: ModelSetup) -> None:
    (setup.cwd / "a.txt").write_text("one")
    async with setup:
        setup.add_scripts([Think("look"), Use("read", {"file_path": "a.txt"})], [Say("One.")])
        session = await setup.session()
        await setup.run_prompt("First", session)
        picture = [Text(text="And this?"), Image(data=PIXEL)]
        await setup.hub.turns.run(LOCAL, session.id, picture)
    prompt, answered, result, done, again = setup.provider.requests[-1]["messages"]
    assert [m["role"] for m in (prompt, answered, result, done, again)] == [
        *("user", "assistant", "user", "assistant", "user")
    ]
    thought, call = answered["content"]
    assert (thought["thinking"], thought["signature"]) == ("look", "signed")
    assert call["id"] == result["content"][0]["tool_use_id"]
    assert done["content"][0]["text"] == "One."
    assert [block["type"] for block in again["content"]] == ["text", "image"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Use("nothing", {}), "no tool 'nothing'"),
        (Use("read", {}), "file_path"),
        (Use("read", {"file_path": 5}), "str"),
        (Use("read", {"file_path": "a", "more": 1}), "more"),
        (Use("read", None, raw='{"file_path": '), "not valid JSON"),
    ],
)
async def test_an_invalid_call_returns_a_failed_result_to_the_model(
    setup: ModelSetup, step: Use, message: str
) -> None:
    async with setup:
        setup.add_scripts([step])
        bodies = await setup.run_prompt("Go")
    (result,) = bodies_of(bodies, "tool_result")
    assert result.status == "failed" and message in result.content[0].text
    assert results(setup.provider.requests[1])[0]["is_error"] is True
    assert message_texts(bodies) == ["done"]


async def spec(setup: ModelSetup, **overrides: Any) -> AgentRef:
    """Return the built-in agent with other settings."""
    ref = await setup.hub.records.built_in_agent("local")
    return AgentRef(id=ref.id, overrides=overrides)


@pytest.mark.parametrize(
    ("fail", "code"),
    [
        (Fail(529), "model_overloaded_error"),
        (Fail(429, "rate_limit_error", "Slow down"), "model_rate_limited_error"),
        (Fail(500, "api_error", "Oops"), "model_request_failed_error"),
    ],
)
async def test_a_request_to_an_overloaded_model_is_retried_and_reported(
    setup: ModelSetup, fail: Fail, code: str
) -> None:
    async with setup:
        setup.add_scripts([fail], [fail], [Say("At last.")])
        session = await setup.session(agent=await spec(setup, backoff=0.01))
        bodies = await setup.run_prompt("Hi", session)
    assert [(body.code, body.retry) for body in bodies_of(bodies, "failed")] == [
        (code, "retrying")
    ] * 2
    statuses = [body.status for body in bodies_of(bodies, "status_changed")]
    assert statuses == ["running", *(["rescheduling", "running"] * 2), "idle"]
    assert bodies[-1].stop_reason == "end_turn" and message_texts(bodies) == ["At last."]


async def test_retries_are_limited(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts(*[[Fail(529)]] * 3)
        session = await setup.session(agent=await spec(setup, backoff=0.01, retries=2))
        bodies = await setup.run_prompt("Hi", session)
    assert [body.retry for body in bodies_of(bodies, "failed")] == [
        "retrying",
        "retrying",
        "exhausted",
    ]
    assert bodies[-1].stop_reason == "error"
    assert len(setup.provider.requests) == 3


@pytest.mark.parametrize(
    "fail",
    [
        Fail(401, "authentication_error", "invalid x-api-key"),
        Fail(400, "invalid_request_error", "no such thing"),
        Fail(529, headers={"x-should-retry": "false"}),
        Fail(429, "rate_limit_error", "come back tomorrow", {"retry-after": "86400"}),
    ],
)
async def test_permanent_errors_are_not_retried(setup: ModelSetup, fail: Fail) -> None:
    async with setup:
        setup.add_scripts([fail])
        bodies = await setup.run_prompt("Hi")
    (failed,) = bodies_of(bodies, "failed")
    assert fail.message in failed.message and failed.retry == "terminal"
    assert bodies[-1].stop_reason == "error" and len(setup.provider.requests) == 1


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-6", "ollama:qwen3"])
async def test_a_refused_local_connection_is_retried_twice_and_names_the_address(
    setup: ModelSetup, model: str
) -> None:
    async with setup:
        url = await _unused_address()
        await setup.hub.config.set("local", "model", model)
        secret = url.replace("//", "//me:plugh77@")
        await setup.hub.config.set("local", "model.base_url", secret)
        session = await setup.session(agent=await spec(setup, backoff=0.01))
        bodies = await setup.run_prompt("Hi", session)
    assert "plugh77" not in str(bodies)
    *tries, last = bodies_of(bodies, "failed")
    assert [body.retry for body in tries] == ["retrying"] * 2 and last.retry == "exhausted"
    assert f"the model at {url}" in last.message and "refused" in last.message
    assert "is its server running" in last.message and "tried 3 times" in last.message
    assert "try 1 of 3; trying again" in tries[0].message
    statuses = [body.status for body in bodies_of(bodies, "status_changed")]
    assert statuses == ["running", *(["rescheduling", "running"] * 2), "idle"]


async def test_an_unknown_host_name_is_tried_as_often_as_a_refused_local_connection(
    setup: ModelSetup,
) -> None:
    async with setup:
        await setup.hub.config.set("local", "model.base_url", "http://model.invalid")
        session = await setup.session(agent=await spec(setup, backoff=0.01))
        bodies = await setup.run_prompt("Hi", session)
    *tries, last = bodies_of(bodies, "failed")
    assert len(tries) == 2 and "tried 3 times" in last.message


async def test_a_server_that_starts_during_the_retries_answers(setup: ModelSetup) -> None:
    async with setup:
        url = await _unused_address()
        await setup.hub.config.set("local", "model.base_url", url)
        session = await setup.session()
        turn = await setup.hub.turns.submit(LOCAL, session.id, "Hi")
        async for item in setup.hub.history.follow(LOCAL, session.id):
            if isinstance(item, Event) and item.type == "failed":
                break
        async with Provider(port=int(url.rpartition(":")[2])) as late:
            assert await setup.hub.turns.wait(LOCAL, session.id, turn) == "end_turn"
    assert len(late.requests) == 1


async def test_repeatedly_broken_connections_are_reported_with_the_address(
    setup: ModelSetup,
) -> None:
    async with setup:
        setup.add_scripts(*[[Cut()]] * 2)
        session = await setup.session(agent=await spec(setup, backoff=0.01, retries=1))
        bodies = await setup.run_prompt("Hi", session)
    _, last = bodies_of(bodies, "failed")
    assert setup.provider.url in last.message and "tried 2 times" in last.message


async def _unused_address() -> str:
    """Return an address of this machine where no server listens."""
    async with Provider() as provider:
        return provider.url


@pytest.mark.parametrize("broken", [Cut(), Garbage()])
async def test_a_broken_answer_is_stored_as_partial_and_requested_again(
    setup: ModelSetup, broken: Any
) -> None:
    async with setup:
        setup.add_scripts([Say("It was a dark"), broken], [Say("It was a bright day.")])
        session = await setup.session(agent=await spec(setup, backoff=0.01))
        bodies = await setup.run_prompt("Tell", session)
        await setup.run_prompt("More", session)
    assert message_texts(bodies) == ["It was a dark", "It was a bright day."]
    assert [body.partial for body in bodies_of(bodies, "agent_message")] == [True, False]
    texts = [m["content"][0]["text"] for m in setup.provider.requests[-1]["messages"]]
    assert texts == ["Tell", "It was a bright day.", "More"]


async def test_an_incomplete_tool_call_does_not_run(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Use("write", {"file_path": "a", "content": "x"}), Stop("max_tokens")])
        bodies = await setup.run_prompt("Go")
    assert bodies_of(bodies, "tool_call") == [] and not (setup.cwd / "a").exists()
    assert bodies[-1].stop_reason == "max_tokens"


async def test_a_refusal_is_the_stop_reason_of_the_turn(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Say("No."), Stop("refusal")])
        bodies = await setup.run_prompt("Do evil")
    assert bodies[-1].stop_reason == "refusal"


async def test_the_requests_of_a_turn_are_limited(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts(*[[Use("glob", {"pattern": "*"})]] * 5)
        session = await setup.session(agent=await spec(setup, max_turns=2))
        bodies = await setup.run_prompt("Go", session)
    assert bodies[-1].stop_reason == "max_turn_requests"
    assert len(setup.provider.requests) == 2


async def test_a_prompt_sent_during_a_turn_joins_the_next_request(setup: ModelSetup) -> None:
    async with setup:
        wait = Wait()
        setup.add_scripts([wait, Use("glob", {"pattern": "*"})])
        session = await setup.session()
        turn = await setup.hub.turns.submit(LOCAL, session.id, "Go")
        await wait.reached.wait()
        await setup.hub.turns.submit(LOCAL, session.id, "And hurry")
        wait.event.set()
        assert await setup.hub.turns.wait(LOCAL, session.id, turn) == "end_turn"
    last = setup.provider.requests[-1]["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text"]
    assert last[1]["text"] == "And hurry"
    assert len(setup.provider.requests) == 2


async def test_a_conversation_that_fills_the_context_is_compacted(setup: ModelSetup) -> None:
    async with setup:
        await setup.hub.config.set("local", "model.context", "10000")
        setup.provider.input_tokens = 9000
        setup.add_scripts([Say("Once upon a time.")], [Say("THE SUMMARY")], [Say("And so on.")])
        session = await setup.session()
        await setup.run_prompt("Begin", session)
        setup.provider.input_tokens = 100
        bodies = await setup.run_prompt("Continue", session)
        history = [event async for event in setup.hub.history.read(LOCAL, session.id)]
    (compacted,) = bodies_of(bodies, "compacted")
    assert compacted.tokens_before > 8000
    _, summary_request, next_request = setup.provider.requests
    assert "summary" in summary_request["messages"][-1]["content"][-1]["text"]
    (only,) = next_request["messages"]
    assert "THE SUMMARY" in only["content"][0]["text"] and "Continue" in only["content"][0]["text"]
    assert message_texts(bodies) == ["And so on."]
    assert message_texts([event.body for event in history]) == ["Once upon a time.", "And so on."]


async def test_events_before_a_compaction_are_not_read_again(
    setup: ModelSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read = setup.hub.store, 0
    events = store.events

    async def count_events(*args: Any, **kwargs: Any) -> list[Event]:
        nonlocal read
        page = await events(*args, **kwargs)
        read += len(page)
        return page

    async with setup:
        session = await setup.session()
        long = [
            AgentMessage(content=as_content(f"old {number}"))
            for number in range(3 * EVENTS_PER_READ)
        ]
        bodies = [*long, Compacted(summary=as_content("IN SHORT")), AgentMessage(content=())]
        await store.change("local", session.id, lambda _: bodies)
        monkeypatch.setattr(store, "events", count_events)
        assert await setup.hub.turns.run(LOCAL, session.id, "Continue") == "end_turn"
        history, read = read, 0
        await setup.hub.turns.run(LOCAL, session.id, "And on")
    first, second = (request["messages"] for request in setup.provider.requests)
    assert "IN SHORT" in str(first) and "old" not in str(first)
    assert "IN SHORT" in str(second) and "done" in str(second)
    assert 0 < history <= EVENTS_PER_READ + 20 and 0 < read <= EVENTS_PER_READ + 40


async def test_a_context_error_of_the_provider_triggers_a_compaction(setup: ModelSetup) -> None:
    context_full = Fail(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")
    async with setup:
        setup.add_scripts([Say("One.")], [context_full], [Say("SUM")], [Say("Two.")])
        session = await setup.session()
        await setup.run_prompt("First", session)
        bodies = await setup.run_prompt("Second", session)
    assert len(bodies_of(bodies, "compacted")) == 1 and message_texts(bodies) == ["Two."]
    # Every request has an end event, also the one that exceeded the context.
    assert [end.is_error for end in requests_of(bodies)] == [True, False, False]


@pytest.mark.parametrize("model", ["openai-chat:local", "ollama:qwen3"])
async def test_openai_compatible_servers_answer(
    setup: ModelSetup, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (setup.cwd / "a.txt").write_text("one")
    async with setup:
        await setup.hub.config.set("local", "model", model)
        await setup.hub.config.set("local", "model.base_url", f"{setup.provider.url}/v1")
        setup.add_scripts([Say("I look."), Use("read", {"file_path": "a.txt"})], [Say("One.")])
        bodies = await setup.run_prompt("What is in a.txt?")
    assert message_texts(bodies) == ["I look.", "One."]
    assert bodies_of(bodies, "tool_result")[0].content[0].text == "     1\tone"
    assert [end.usage.output_tokens for end in requests_of(bodies)] == [7, 7]
    roles = [message["role"] for message in setup.provider.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


async def test_the_responses_api_streams_thoughts_texts_and_tool_calls(
    setup: ModelSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (setup.cwd / "a.txt").write_text("one")
    async with setup:
        await setup.hub.config.set("local", "model", "openai:gpt-5")
        await setup.hub.config.set("local", "model.base_url", f"{setup.provider.url}/v1")
        setup.add_scripts(
            [Think("I look."), Use("read", {"file_path": "a.txt"})], [Say("It says one.")]
        )
        bodies = await setup.run_prompt("What is in a.txt?")
    (thought,) = bodies_of(bodies, "agent_thought")
    assert thought.content[0].text == "I look."
    assert bodies_of(bodies, "tool_result")[0].content[0].text == "     1\tone"
    assert message_texts(bodies) == ["It says one."]
    sent = setup.provider.requests[1]["input"]
    kinds = ["reasoning", "function_call", "function_call_output"]
    assert [item.get("type") for item in sent[-3:]] == kinds
    assert sent[-3]["encrypted_content"] == "signed"


async def test_the_settings_of_the_sessions_agent_reach_the_model(setup: ModelSetup) -> None:
    async with setup:
        tools = [
            {
                "type": "agent_toolset_20260401",
                "default_config": {"enabled": False},
                "configs": [{"name": "read", "enabled": True}],
            }
        ]
        own = await spec(
            setup, system="You are a pirate.", model={"id": "claude-opus-4-8"}, tools=tools
        )
        await setup.run_prompt("Hi", await setup.session(agent=own))
    (request,) = setup.provider.requests
    assert request["model"] == "claude-opus-4-8"
    assert request["system"][0]["text"].startswith("You are a pirate.")
    assert [tool["name"] for tool in request["tools"]] == ["read"]


async def test_the_demo_agent_answers_if_no_model_is_configured(setup: ModelSetup) -> None:
    async with setup:
        await setup.hub.config.unset("local", "model")
        bodies = await setup.run_prompt("Hi")
    assert "no model is configured" in message_texts(bodies)[0]
    assert setup.provider.requests == []


async def test_lone_surrogates_and_nuls_in_the_history_are_sent(setup: ModelSetup) -> None:
    async with setup:
        session = await setup.session()
        await setup.run_prompt("a lone \ud83d surrogate and a \0", session)
        bodies = await setup.run_prompt("Continue", session)
    assert message_texts(bodies) == ["done"]


@pytest.mark.parametrize(
    ("mode", "name", "arguments", "asked", "status"),
    [
        ("default", "write", {"file_path": "a", "content": "x"}, True, "completed"),
        ("default", "glob", {"pattern": "*"}, False, "completed"),
        ("acceptEdits", "write", {"file_path": "a", "content": "x"}, False, "completed"),
        ("acceptEdits", "bash", {"command": "true"}, True, "completed"),
        ("plan", "write", {"file_path": "a", "content": "x"}, False, "failed"),
        ("plan", "glob", {"pattern": "*"}, False, "completed"),
        ("bypassPermissions", "bash", {"command": "true"}, False, "completed"),
    ],
)
async def test_the_mode_decides_which_calls_need_permission(
    setup: ModelSetup, mode: str, name: str, arguments: Any, asked: bool, status: str
) -> None:
    async with setup:
        setup.add_scripts([Use(name, arguments)])
        session = await setup.session()
        await setup.hub.editor.configure(LOCAL, session.id, ConfigChanged(mode=mode))
        bodies = await setup.run_prompt("Go", session)
    assert bool(bodies_of(bodies, "permission_asked")) is asked
    assert [body.status for body in bodies_of(bodies, "tool_result")] == [status]


@pytest.mark.parametrize(
    ("policy", "asked"), [("always_allow", False), ("always_ask", True), ("auto", True)]
)
async def test_the_policy_decides_which_calls_need_permission(
    setup: ModelSetup, policy: str, asked: bool
) -> None:
    tools = [
        {
            "type": "agent_toolset_20260401",
            "default_config": {"permission_policy": {"type": policy}},
        }
    ]
    async with setup:
        setup.add_scripts([Use("write", {"file_path": "a", "content": "x"})])
        session = await setup.session(agent=await spec(setup, tools=tools))
        bodies = await setup.run_prompt("Go", session)
    assert bool(bodies_of(bodies, "permission_asked")) is asked


async def test_a_refused_call_does_not_run_and_the_model_receives_the_reason(
    setup: ModelSetup,
) -> None:
    async with setup:
        setup.add_scripts([Use("write", {"file_path": "a", "content": "x"})])
        bodies = await setup.run_prompt("Go", answer="reject")
    assert not (setup.cwd / "a").exists()
    assert "did not allow" in results(setup.provider.requests[1])[0]["content"][0]["text"]
    assert bodies_of(bodies, "tool_result")[0].status == "failed"


async def test_an_always_allowed_tool_asks_once_per_session(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts(*[[Use("write", {"file_path": "a", "content": "x"})]] * 2)
        session = await setup.session()
        bodies = await setup.run_prompt("Go", session, answer="allow_always")
        setup.add_scripts([Use("write", {"file_path": "b", "content": "x"})])
        bodies += await setup.run_prompt("Again", session)
        setup.add_scripts([Use("bash", {"command": "true"})])
        other = await setup.run_prompt("And run it", session)
    assert len(bodies_of(bodies, "permission_asked")) == 1
    assert len(bodies_of(other, "permission_asked")) == 1


async def test_permission_requests_of_one_answer_are_made_together(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Use("bash", {"command": "true"}), Use("bash", {"command": "echo two"})])
        session = await setup.session()
        await setup.hub.turns.submit(LOCAL, session.id, "Go")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for item in setup.hub.history.follow(LOCAL, session.id):
                assert isinstance(item, Event)
                if len(getattr(item.body, "pending", ())) == 2:
                    break
        open_asks = (await setup.hub.sessions.get(LOCAL, session.id)).open_asks
        for ask in reversed(open_asks):
            await setup.hub.turns.answer(LOCAL, session.id, ask, "allow")
        bodies = await setup.collect_events(session.id, 0)
    assert [body.content[0].text for body in bodies_of(bodies, "tool_result")] == [
        "(no output)",
        "two\n",
    ]


async def test_a_remote_callers_prompt_restricts_the_tools(setup: ModelSetup) -> None:
    """This holds for the caller's own turn, and for a turn of the local user that it joins."""
    secret = setup.cwd.parent / "secret.txt"
    secret.write_text("SECRET")
    read_secret = [Use("bash", {"command": f"cat {secret}"})]
    async with setup:
        setup.add_scripts(read_secret)
        session = await setup.session()
        await setup.hub.editor.configure(LOCAL, session.id, ConfigChanged(mode="bypassPermissions"))
        local_bodies = await setup.run_prompt("Look", session)
        setup.add_scripts(read_secret)
        remote_bodies = await setup.run_prompt("Look", session, principal=REMOTE_CALLER)
        wait = Wait()
        setup.add_scripts([wait, Use("glob", {"pattern": "*"})], read_secret)
        seq = (await setup.hub.sessions.get(LOCAL, session.id)).last_seq
        await setup.hub.turns.submit(LOCAL, session.id, "Wait")
        await wait.reached.wait()
        await setup.hub.turns.submit(REMOTE_CALLER, session.id, "And look")
        wait.event.set()
        joined = await setup.collect_events(session.id, seq)
    assert bodies_of(local_bodies, "tool_result")[0].content[0].text == "SECRET"
    for bodies in (remote_bodies, joined):
        result = bodies_of(bodies, "tool_result")[-1]
        assert result.status == "failed" and "SECRET" not in result.content[0].text

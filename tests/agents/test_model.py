"""The model agent with the real clients, against a provider on a loopback address."""

import asyncio
from typing import Any

import pytest

from segue.hub.turns.runner import PAGE
from segue.model.content import Image, Text, as_content
from segue.model.event import AgentMessage, AgentRef, Compacted, ConfigChanged, Delta, Event
from segue.model.principal import LOCAL, Principal

from .conftest import PATIENCE, House, of, said
from .provider import Cut, Fail, Garbage, Provider, Say, Stop, Think, Use, Wait

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)

STRANGER = Principal(workspace="local", key_id="key")


def results(request: dict[str, Any]) -> list[Any]:
    """The tool results in a request's last message."""
    return [b for b in request["messages"][-1]["content"] if b["type"] == "tool_result"]


async def test_an_answer_is_streamed_stored_and_counted(house: House) -> None:
    async with house:
        house.answers([Think("hm, so"), Say("Hello there.")])
        bodies = await house.play("Hi")
    assert said(bodies) == ["Hello there."]
    (thought,) = of(bodies, "agent_thought")
    assert thought.extra["model"]["signature"] == "signed"
    (called,) = of(bodies, "model_called")
    assert (called.usage.input_tokens, called.usage.output_tokens) == (10, 7)
    assert called.usage.cost == 10 * 3 + 7 * 15
    (request,) = house.provider.requests
    assert request["messages"][-1]["content"][-1]["text"] == "Hi"


async def test_pieces_are_on_followers_screens_before_the_message_is_whole(house: House) -> None:
    async with house:
        wait = Wait()
        house.answers([Say("first half"), wait, Say(" and the rest")])
        session = await house.session()
        seen = []
        await house.hub.turns.submit(LOCAL, session.id, "Hi")
        async for item in house.hub.history.follow(LOCAL, session.id, deltas=True):
            if isinstance(item, Delta):
                seen.append(item.text)
                if "".join(seen) == "first half":
                    wait.event.set()
            elif item.type == "agent_message":
                break
    assert "".join(seen) == "first half and the rest"


async def test_tools_are_called_and_their_results_go_back(house: House) -> None:
    (house.place / "a.txt").write_text("one\ntwo\n")
    async with house:
        house.answers([Use("read", {"file_path": "a.txt"})], [Say("It has two lines.")])
        bodies = await house.play("How long is a.txt?")
    (call,), (result,) = of(bodies, "tool_call"), of(bodies, "tool_result")
    assert (call.name, call.kind, call.input) == ("read", "read", {"file_path": "a.txt"})
    assert result.content[0].text == "     1\tone\n     2\ttwo"
    assert said(bodies) == ["It has two lines."]
    _, second = house.provider.requests
    assert results(second)[0]["content"] == [{"type": "text", "text": "     1\tone\n     2\ttwo"}]


async def test_several_calls_of_one_answer_are_all_done_in_their_order(house: House) -> None:
    async with house:
        house.answers(
            [
                Say("Both."),
                Use("write", {"file_path": "n/a.txt", "content": "x"}),
                Use("edit", {"file_path": "n/a.txt", "old_string": "x", "new_string": "y"}),
            ]
        )
        bodies = await house.play("Go")
    assert (house.place / "n" / "a.txt").read_text() == "y"
    assert [body.status for body in of(bodies, "tool_result")] == ["completed", "completed"]
    order = [body.__struct_config__.tag for body in bodies]
    first = order.index("agent_message")
    assert order[first : first + 4] == ["agent_message", "tool_call", "tool_call", "model_called"]


async def test_the_next_turn_has_the_whole_conversation(house: House) -> None:
    (house.place / "a.txt").write_text("one")
    async with house:
        house.answers([Think("look"), Use("read", {"file_path": "a.txt"})], [Say("One.")])
        session = await house.session()
        await house.play("First", session)
        picture = [Text(text="And this?"), Image(data=PIXEL)]
        await house.hub.turns.run(LOCAL, session.id, picture)
    asked, answered, result, done, again = house.provider.requests[-1]["messages"]
    assert [m["role"] for m in (asked, answered, result, done, again)] == [
        *("user", "assistant", "user", "assistant", "user")
    ]
    thought, call = answered["content"]
    assert (thought["thinking"], thought["signature"]) == ("look", "signed")
    assert call["id"] == result["content"][0]["tool_use_id"]
    assert done["content"][0]["text"] == "One."
    assert [block["type"] for block in again["content"]] == ["text", "image"]


@pytest.mark.parametrize(
    ("step", "said_of_it"),
    [
        (Use("nothing", {}), "no tool 'nothing'"),
        (Use("read", {}), "file_path"),
        (Use("read", {"file_path": 5}), "str"),
        (Use("read", {"file_path": "a", "more": 1}), "more"),
        (Use("read", None, raw='{"file_path": '), "not valid JSON"),
    ],
)
async def test_a_call_that_cannot_be_is_a_failed_result_that_the_model_hears_of(
    house: House, step: Use, said_of_it: str
) -> None:
    async with house:
        house.answers([step])
        bodies = await house.play("Go")
    (result,) = of(bodies, "tool_result")
    assert result.status == "failed" and said_of_it in result.content[0].text
    assert results(house.provider.requests[1])[0]["is_error"] is True
    assert said(bodies) == ["done"]


async def spec(house: House, **overrides: Any) -> AgentRef:
    """The built-in agent, set up another way."""
    ref = await house.hub.records.built_in_agent("local")
    return AgentRef(id=ref.id, overrides=overrides)


@pytest.mark.parametrize(
    ("fail", "code"),
    [
        (Fail(529), "model_overloaded_error"),
        (Fail(429, "rate_limit_error", "Slow down"), "model_rate_limited_error"),
        (Fail(500, "api_error", "Oops"), "model_request_failed_error"),
    ],
)
async def test_an_overloaded_model_is_asked_again_and_the_session_says_so(
    house: House, fail: Fail, code: str
) -> None:
    async with house:
        house.answers([fail], [fail], [Say("At last.")])
        session = await house.session(agent=await spec(house, backoff=0.01))
        bodies = await house.play("Hi", session)
    assert [(body.code, body.retry) for body in of(bodies, "failed")] == [(code, "retrying")] * 2
    statuses = [body.status for body in of(bodies, "status_changed")]
    assert statuses == ["running", *(["rescheduling", "running"] * 2), "idle"]
    assert bodies[-1].stop_reason == "end_turn" and said(bodies) == ["At last."]


async def test_retries_come_to_an_end(house: House) -> None:
    async with house:
        house.answers(*[[Fail(529)]] * 3)
        session = await house.session(agent=await spec(house, backoff=0.01, retries=2))
        bodies = await house.play("Hi", session)
    assert [body.retry for body in of(bodies, "failed")] == ["retrying", "retrying", "exhausted"]
    assert bodies[-1].stop_reason == "error"
    assert len(house.provider.requests) == 3


@pytest.mark.parametrize(
    "fail",
    [
        Fail(401, "authentication_error", "invalid x-api-key"),
        Fail(400, "invalid_request_error", "no such thing"),
        Fail(529, headers={"x-should-retry": "false"}),
        Fail(429, "rate_limit_error", "come back tomorrow", {"retry-after": "86400"}),
    ],
)
async def test_what_will_not_get_better_is_not_asked_again(house: House, fail: Fail) -> None:
    async with house:
        house.answers([fail])
        bodies = await house.play("Hi")
    (failed,) = of(bodies, "failed")
    assert fail.message in failed.message and failed.retry == "terminal"
    assert bodies[-1].stop_reason == "error" and len(house.provider.requests) == 1


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-6", "ollama:qwen3"])
async def test_a_server_that_does_not_run_is_tried_a_few_times_and_named(
    house: House, model: str
) -> None:
    async with house:
        url = await _closed()
        await house.hub.config.set("local", "model", model)
        secret = url.replace("//", "//me:plugh77@")
        await house.hub.config.set("local", "model.base_url", secret)
        session = await house.session(agent=await spec(house, backoff=0.01))
        bodies = await house.play("Hi", session)
    assert "plugh77" not in str(bodies)
    *tries, last = of(bodies, "failed")
    assert [body.retry for body in tries] == ["retrying"] * 2 and last.retry == "exhausted"
    assert f"the model at {url}" in last.message and "refused" in last.message
    assert "is its server running" in last.message and "tried 3 times" in last.message
    assert "try 1 of 3; trying again" in tries[0].message
    statuses = [body.status for body in of(bodies, "status_changed")]
    assert statuses == ["running", *(["rescheduling", "running"] * 2), "idle"]


async def test_a_server_that_starts_meanwhile_answers(house: House) -> None:
    async with house:
        url = await _closed()
        await house.hub.config.set("local", "model.base_url", url)
        session = await house.session()
        turn = await house.hub.turns.submit(LOCAL, session.id, "Hi")
        async for item in house.hub.history.follow(LOCAL, session.id):
            if isinstance(item, Event) and item.type == "failed":
                break
        async with Provider(port=int(url.rpartition(":")[2])) as late:
            assert await house.hub.turns.wait(LOCAL, session.id, turn) == "end_turn"
    assert len(late.requests) == 1


async def test_a_connection_that_breaks_each_time_is_told_with_its_address(house: House) -> None:
    async with house:
        house.answers(*[[Cut()]] * 2)
        session = await house.session(agent=await spec(house, backoff=0.01, retries=1))
        bodies = await house.play("Hi", session)
    _, last = of(bodies, "failed")
    assert house.provider.url in last.message and "tried 2 times" in last.message


async def _closed() -> str:
    """An address of this machine where nothing listens."""
    async with Provider() as provider:
        return provider.url


@pytest.mark.parametrize("broken", [Cut(), Garbage()])
async def test_an_answer_that_breaks_off_is_kept_as_partial_and_asked_for_again(
    house: House, broken: Any
) -> None:
    async with house:
        house.answers([Say("It was a dark"), broken], [Say("It was a bright day.")])
        session = await house.session(agent=await spec(house, backoff=0.01))
        bodies = await house.play("Tell", session)
        await house.play("More", session)
    assert said(bodies) == ["It was a dark", "It was a bright day."]
    assert [body.partial for body in of(bodies, "agent_message")] == [True, False]
    told = [m["content"][0]["text"] for m in house.provider.requests[-1]["messages"]]
    assert told == ["Tell", "It was a bright day.", "More"]


async def test_a_tool_call_that_breaks_off_is_not_made(house: House) -> None:
    async with house:
        house.answers([Use("write", {"file_path": "a", "content": "x"}), Stop("max_tokens")])
        bodies = await house.play("Go")
    assert of(bodies, "tool_call") == [] and not (house.place / "a").exists()
    assert bodies[-1].stop_reason == "max_tokens"


async def test_a_refusal_ends_the_turn_as_one(house: House) -> None:
    async with house:
        house.answers([Say("No."), Stop("refusal")])
        bodies = await house.play("Do evil")
    assert bodies[-1].stop_reason == "refusal"


async def test_there_is_a_most_to_the_requests_of_a_turn(house: House) -> None:
    async with house:
        house.answers(*[[Use("glob", {"pattern": "*"})]] * 5)
        session = await house.session(agent=await spec(house, max_turns=2))
        bodies = await house.play("Go", session)
    assert bodies[-1].stop_reason == "max_turn_requests"
    assert len(house.provider.requests) == 2


async def test_what_is_said_meanwhile_joins_the_turn_before_the_next_request(house: House) -> None:
    async with house:
        wait = Wait()
        house.answers([wait, Use("glob", {"pattern": "*"})])
        session = await house.session()
        turn = await house.hub.turns.submit(LOCAL, session.id, "Go")
        await wait.reached.wait()
        await house.hub.turns.submit(LOCAL, session.id, "And hurry")
        wait.event.set()
        assert await house.hub.turns.wait(LOCAL, session.id, turn) == "end_turn"
    last = house.provider.requests[-1]["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text"]
    assert last[1]["text"] == "And hurry"
    assert len(house.provider.requests) == 2


async def test_a_conversation_that_outgrows_the_context_is_summed_up(house: House) -> None:
    async with house:
        await house.hub.config.set("local", "model.context", "10000")
        house.provider.input_tokens = 9000
        house.answers([Say("Once upon a time.")], [Say("THE SUMMARY")], [Say("And so on.")])
        session = await house.session()
        await house.play("Begin", session)
        house.provider.input_tokens = 100
        bodies = await house.play("Go on", session)
        history = [event async for event in house.hub.history.read(LOCAL, session.id)]
    (compacted,) = of(bodies, "compacted")
    assert compacted.tokens_before > 8000
    _, summing, going_on = house.provider.requests
    assert "summary" in summing["messages"][-1]["content"][-1]["text"]
    (only,) = going_on["messages"]
    assert "THE SUMMARY" in only["content"][0]["text"] and "Go on" in only["content"][0]["text"]
    assert said(bodies) == ["And so on."]
    assert said([event.body for event in history]) == ["Once upon a time.", "And so on."]


async def test_what_was_summed_up_is_not_read_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read = house.hub.store, 0
    events = store.events

    async def counted(*which: Any, **how: Any) -> list[Event]:
        nonlocal read
        found = await events(*which, **how)
        read += len(found)
        return found

    async with house:
        session = await house.session()
        long = [AgentMessage(content=as_content(f"old {number}")) for number in range(3 * PAGE)]
        told = [*long, Compacted(summary=as_content("IN SHORT")), AgentMessage(content=())]
        await store.change("local", session.id, lambda _: told)
        monkeypatch.setattr(store, "events", counted)
        assert await house.hub.turns.run(LOCAL, session.id, "Go on") == "end_turn"
        history, read = read, 0
        await house.hub.turns.run(LOCAL, session.id, "And on")
    first, second = (request["messages"] for request in house.provider.requests)
    assert "IN SHORT" in str(first) and "old" not in str(first)
    assert "IN SHORT" in str(second) and "done" in str(second)
    assert 0 < history <= PAGE + 20 and 0 < read <= PAGE + 40


async def test_a_provider_that_says_the_context_is_full_makes_room_for_itself(house: House) -> None:
    full = Fail(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")
    async with house:
        house.answers([Say("One.")], [full], [Say("SUM")], [Say("Two.")])
        session = await house.session()
        await house.play("First", session)
        bodies = await house.play("Second", session)
    assert len(of(bodies, "compacted")) == 1 and said(bodies) == ["Two."]
    # Every request has an end, the one for which there was no room too.
    assert [body.is_error for body in of(bodies, "model_called")] == [True, False, False]


@pytest.mark.parametrize("model", ["openai-chat:local", "ollama:qwen3"])
async def test_openai_compatible_servers_answer_as_well(
    house: House, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (house.place / "a.txt").write_text("one")
    async with house:
        await house.hub.config.set("local", "model", model)
        await house.hub.config.set("local", "model.base_url", f"{house.provider.url}/v1")
        house.answers([Say("I look."), Use("read", {"file_path": "a.txt"})], [Say("One.")])
        bodies = await house.play("What is in a.txt?")
    assert said(bodies) == ["I look.", "One."]
    assert of(bodies, "tool_result")[0].content[0].text == "     1\tone"
    assert of(bodies, "model_called")[0].usage.output_tokens == 7
    roles = [message["role"] for message in house.provider.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


async def test_the_session_s_own_agent_reaches_the_model(house: House) -> None:
    async with house:
        tools = [
            {
                "type": "agent_toolset_20260401",
                "default_config": {"enabled": False},
                "configs": [{"name": "read", "enabled": True}],
            }
        ]
        own = await spec(
            house, system="You are a pirate.", model={"id": "claude-opus-4-8"}, tools=tools
        )
        await house.play("Hi", await house.session(agent=own))
    (request,) = house.provider.requests
    assert request["model"] == "claude-opus-4-8"
    assert request["system"][0]["text"].startswith("You are a pirate.")
    assert [tool["name"] for tool in request["tools"]] == ["read"]


async def test_without_a_model_the_demo_agent_answers_and_says_so(house: House) -> None:
    async with house:
        await house.hub.config.unset("local", "model")
        bodies = await house.play("Hi")
    assert "no model is configured" in said(bodies)[0]
    assert house.provider.requests == []


async def test_odd_text_in_a_history_does_not_stop_it(house: House) -> None:
    async with house:
        session = await house.session()
        await house.play("a lone \ud83d surrogate and a \0", session)
        bodies = await house.play("Go on", session)
    assert said(bodies) == ["done"]


@pytest.mark.parametrize(
    ("mode", "name", "given", "asked", "status"),
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
async def test_modes_say_what_is_asked_first(
    house: House, mode: str, name: str, given: Any, asked: bool, status: str
) -> None:
    async with house:
        house.answers([Use(name, given)])
        session = await house.session()
        await house.hub.editor.configure(LOCAL, session.id, ConfigChanged(mode=mode))
        bodies = await house.play("Go", session)
    assert bool(of(bodies, "permission_asked")) is asked
    assert [body.status for body in of(bodies, "tool_result")] == [status]


@pytest.mark.parametrize(
    ("policy", "asked"), [("always_allow", False), ("always_ask", True), ("auto", True)]
)
async def test_policies_say_it_too(house: House, policy: str, asked: bool) -> None:
    tools = [
        {
            "type": "agent_toolset_20260401",
            "default_config": {"permission_policy": {"type": policy}},
        }
    ]
    async with house:
        house.answers([Use("write", {"file_path": "a", "content": "x"})])
        session = await house.session(agent=await spec(house, tools=tools))
        bodies = await house.play("Go", session)
    assert bool(of(bodies, "permission_asked")) is asked


async def test_a_refused_call_is_not_made_and_the_model_hears_why(house: House) -> None:
    async with house:
        house.answers([Use("write", {"file_path": "a", "content": "x"})])
        bodies = await house.play("Go", answer="reject")
    assert not (house.place / "a").exists()
    assert "did not allow" in results(house.provider.requests[1])[0]["content"][0]["text"]
    assert of(bodies, "tool_result")[0].status == "failed"


async def test_what_is_always_allowed_is_asked_once_in_a_session(house: House) -> None:
    async with house:
        house.answers(*[[Use("write", {"file_path": "a", "content": "x"})]] * 2)
        session = await house.session()
        bodies = await house.play("Go", session, answer="allow_always")
        house.answers([Use("write", {"file_path": "b", "content": "x"})])
        bodies += await house.play("Again", session)
        house.answers([Use("bash", {"command": "true"})])
        other = await house.play("And run it", session)
    assert len(of(bodies, "permission_asked")) == 1
    assert len(of(other, "permission_asked")) == 1


async def test_two_questions_of_one_answer_are_asked_together(house: House) -> None:
    async with house:
        house.answers([Use("bash", {"command": "true"}), Use("bash", {"command": "echo two"})])
        session = await house.session()
        await house.hub.turns.submit(LOCAL, session.id, "Go")
        async with asyncio.timeout(PATIENCE):
            async for item in house.hub.history.follow(LOCAL, session.id):
                assert isinstance(item, Event)
                if len(getattr(item.body, "pending", ())) == 2:
                    break
        open_asks = (await house.hub.sessions.get(LOCAL, session.id)).open_asks
        for ask in reversed(open_asks):
            await house.hub.turns.answer(LOCAL, session.id, ask, "allow")
        bodies = await house.rest(session.id, 0)
    assert [body.content[0].text for body in of(bodies, "tool_result")] == ["(no output)", "two\n"]


async def test_a_stranger_s_prompt_has_a_stranger_s_tools(house: House) -> None:
    """In its own turn, and in the local user's from the moment that it joins."""
    secret = house.place.parent / "secret.txt"
    secret.write_text("SECRET")
    look = [Use("bash", {"command": f"cat {secret}"})]
    async with house:
        house.answers(look)
        session = await house.session()
        await house.hub.editor.configure(LOCAL, session.id, ConfigChanged(mode="bypassPermissions"))
        mine = await house.play("Look", session)
        house.answers(look)
        theirs = await house.play("Look", session, principal=STRANGER)
        wait = Wait()
        house.answers([wait, Use("glob", {"pattern": "*"})], look)
        seq = (await house.hub.sessions.get(LOCAL, session.id)).last_seq
        await house.hub.turns.submit(LOCAL, session.id, "Wait")
        await wait.reached.wait()
        await house.hub.turns.submit(STRANGER, session.id, "And look")
        wait.event.set()
        joined = await house.rest(session.id, seq)
    assert of(mine, "tool_result")[0].content[0].text == "SECRET"
    for bodies in (theirs, joined):
        result = of(bodies, "tool_result")[-1]
        assert result.status == "failed" and "SECRET" not in result.content[0].text

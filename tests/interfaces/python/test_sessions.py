"""create_session, resume_session, prompt, the session functions, and segue.sync."""

import asyncio
import gc
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

import segue
from segue import sync
from segue.agents.base.spec import BUILT_IN_TOOLS
from segue.agents.tools import BUILT_IN
from segue.model.errors import Conflict, InvalidInput, NotFound, SegueError
from segue.model.event import Event, PermissionAsked
from segue.store import open_store
from tests import small_mcp_server
from tests.agents.provider import Provider, Say, Think, Use
from tests.claude.entries import Home, S, assistant, user


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEGUE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return tmp_path / "data"


async def read_stream(session: segue.SDKSession) -> list[Any]:
    async with asyncio.timeout(120):  # only a failing test takes this long
        return [message async for message in session.stream()]


def types(messages: list[Any]) -> list[str]:
    return [message.type for message in messages]


async def test_a_stream_begins_with_init_and_ends_with_result(tmp_path: Path) -> None:
    async with segue.create_session(model="demo", cwd=tmp_path) as session:
        await session.send("/think hm\n/say Hello\n/usage 5 7")
        messages = await read_stream(session)
    first, *_, last = messages
    assert types(messages) == ["system", "assistant", "assistant", "result"]
    assert (first.subtype, first.model, first.cwd) == ("init", "demo", str(tmp_path))
    assert {message.session_id for message in messages} == {session.session_id}
    thought, text = messages[1:3]
    assert thought.message["content"] == [{"type": "thinking", "thinking": "hm"}]
    assert text.text == "Hello"
    stored = await segue.get_session_messages(session.session_id)
    assert [message.message["content"] for message in stored[1:]] == [
        thought.message["content"],
        text.message["content"],
    ]
    assert (last.subtype, last.is_error, last.result) == ("success", False, "Hello")
    assert (last.usage["input_tokens"], last.usage["output_tokens"]) == (5, 7)


async def test_a_session_takes_several_turns_and_resumes_with_its_history() -> None:
    async with segue.create_session(model="demo") as session:
        for text in ("/say one", "/say two"):
            await session.send(text)
            assert (await read_stream(session))[-1].result == text[5:]
    async with segue.resume_session(session.session_id, model="demo") as again:
        assert again.session_id == session.session_id
        await again.send("/history")
        messages = await read_stream(again)
    assert types(messages)[-1] == "result"
    roles = [message.type for message in await segue.get_session_messages(session.session_id)]
    assert roles == ["user", "assistant"] * 3
    assert "2 messages of yours, 2 of mine" in messages[-1].result


async def test_a_trashed_session_does_not_exist_for_programs(tmp_path: Path) -> None:
    home = Home(tmp_path / "claude")
    home.write_conversation(cwd="/p")
    own = (await segue.prompt("/say hi", model="demo")).session_id
    async with await segue.open_hub() as hub:
        for id in (own, S):
            await hub.editor.trash(segue.LOCAL, id)
    for id in (own, S):
        assert await segue.get_session_info(id) is None
        assert await segue.get_session_messages(id) == []
        with pytest.raises(NotFound):
            await segue.rename_session(id, "x")
        with pytest.raises(NotFound):
            await segue.fork_session(id)
        with pytest.raises(InvalidInput, match="in the trash; restore it first"):
            async with segue.resume_session(id, model="demo") as session:
                await session.send("/say hi")
    assert await segue.list_sessions() == []


async def test_session_info_has_the_git_branch_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/topic\n")
    result = await segue.prompt("/say hi", model="demo", cwd=tmp_path)
    info = await segue.get_session_info(result.session_id)
    assert info is not None and info.git_branch == "topic"


async def test_two_waiting_prompts_are_each_answered_once() -> None:
    async with segue.create_session(model="demo") as session:
        await session.send("/say one")
        await session.send("/say two")
        results = [
            message.result for message in await read_stream(session) if message.type == "result"
        ]
        results += [
            message.result for message in await read_stream(session) if message.type == "result"
        ]
        assert results == ["one", "two"]
        assert await read_stream(session) == []


async def test_prompt_returns_its_result_and_keeps_the_session() -> None:
    result = await segue.prompt("/say Done", model="demo")
    assert (result.result, result.subtype) == ("Done", "success")
    (info,) = await segue.list_sessions()
    assert (info.session_id, info.first_prompt, info.source) == (
        result.session_id,
        "/say Done",
        "segue",
    )


async def test_a_failed_turn_returns_a_result() -> None:
    result = await segue.prompt("/fail no luck", model="demo")
    assert (result.subtype, result.is_error) == ("error_during_execution", True)
    assert result.errors == ["DemoFailure: no luck"]
    result = await segue.prompt("/stop max_turn_requests", model="demo")
    assert result.subtype == "error_max_turns"


async def test_tools_ask_can_use_tool_and_are_refused_without_it() -> None:
    asked: list[str] = []

    async def allow(name: str, tool_input: Any) -> bool:
        asked.append(name)
        return True

    allowed = await segue.prompt("/ask May I?", model="demo", can_use_tool=allow)
    assert asked and allowed.permission_denials == []
    refused = await segue.prompt("/ask May I?", model="demo")
    (denial,) = refused.permission_denials
    assert denial["tool_name"] == asked[0]
    bypassed = await segue.prompt("/ask May I?", model="demo", permission_mode="bypassPermissions")
    assert bypassed.permission_denials == []


async def test_deltas_are_streamed_on_request(tmp_path: Path) -> None:
    async with segue.create_session(model="demo", include_partial_messages=True) as session:
        await session.send("/slow 0.01\n/say one two three")
        messages = await read_stream(session)
    deltas = [m.event["delta"]["text"] for m in messages if m.type == "stream_event"]
    assert "one two three".startswith("".join(deltas)) and deltas


async def test_mcp_servers_are_connected_for_the_session(tmp_path: Path) -> None:
    servers = {
        "little": {"command": sys.executable, "args": [small_mcp_server.PROGRAM]},
        "gone": {"command": str(tmp_path / "nothing")},
    }
    async with segue.create_session(model="demo", mcp_servers=servers) as session:
        await session.send('/mcp little add {"a": 2, "b": 40}')
        messages = await read_stream(session)
    status = {server["name"]: server["status"] for server in messages[0].mcp_servers}
    assert status == {"little": "connected", "gone": "failed"}
    (result,) = [message for message in messages if message.type == "user"]
    assert "42" in str(result.message["content"][0]["content"])


async def test_options_of_resume_session_are_not_stored(tmp_path: Path) -> None:
    async with await segue.open_hub() as hub:
        created = await hub.editor.create(segue.LOCAL, cwd=str(tmp_path))

    async def weather(city: str) -> str:
        """Return the weather of a city."""
        return city

    options = {"permission_mode": "bypassPermissions", "tools": [weather]}
    async with segue.resume_session(created.id, model="demo", **options) as session:  # type: ignore[arg-type]
        await session.send("/ask May I?\n/system")
        messages = [message async for message in session.stream()]
    assert isinstance(messages[-1], segue.ResultMessage) and messages[-1].permission_denials == []
    async with await segue.open_hub() as hub:
        after = await hub.sessions.get(segue.LOCAL, created.id)
        assert (after.mode, after.agent) == (created.mode, created.agent)
        await hub.turns.submit(segue.LOCAL, created.id, "/ask May I?")
        async for event in hub.history.follow(segue.LOCAL, created.id, after.last_seq):
            if isinstance(event, Event) and isinstance(event.body, PermissionAsked):
                break


async def test_a_model_answers_with_the_options_of_the_session(tmp_path: Path, store: Path) -> None:
    (tmp_path / "note.txt").write_text("the word is plover\n")
    async with Provider() as provider:
        async with await segue.open_hub() as hub:
            await hub.config.set("local", "model.base_url", provider.url)
            await hub.config.set("local", "model", "anthropic:claude-haiku-4-5")
        provider.scripts += [
            [Think("look"), Use("read", {"file_path": "note.txt"})],
            [Say("plover")],
        ]
        async with segue.create_session(
            model="claude-sonnet-4-6",
            cwd=tmp_path,
            system_prompt="You are a librarian.",
            append_system_prompt="Be brief.",
            max_turns=5,
        ) as session:
            await session.send("What is the word?")
            messages = await read_stream(session)
    assert messages[-1].result == "plover", messages[-1].errors
    assert types(messages) == ["system", "assistant", "assistant", "user", "assistant", "result"]
    assert messages[-1].total_cost_usd > 0 and messages[-1].num_turns == 2
    request = provider.requests[0]
    assert request["model"] == "claude-sonnet-4-6"
    (system,) = request["system"] if isinstance(request["system"], list) else [request["system"]]
    prompt = system["text"] if isinstance(system, dict) else system
    assert prompt == "You are a librarian.\n\nBe brief."


async def configure(provider: Provider, model: str = "anthropic:claude-haiku-4-5") -> None:
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "model.base_url", provider.url)
        await hub.config.set("local", "model", model)


async def test_a_session_leaves_only_the_given_store_open(
    store: Path,
) -> None:
    own_store, before = await open_store(store), asyncio.all_tasks()
    async with Provider() as provider:
        await configure(provider)
        provider.scripts += [[Use("bash", {"command": "echo $$"})], [Say("done")]]
        async with segue.create_session(
            model="claude-sonnet-4-6", store=own_store, permission_mode="bypassPermissions"
        ) as session:
            await session.send("Which process are you?")
            assert (await read_stream(session))[-1].result == "done"
    (result,) = provider.requests[1]["messages"][-1]["content"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(result["content"][0]["text"]), 0)
    await asyncio.sleep(0)  # let cancelled tasks end
    assert asyncio.all_tasks() == before
    assert await own_store.get("local", session.session_id) is not None
    await own_store.close()


async def test_the_model_can_call_functions_of_the_program() -> None:
    async def weather(city: str, days: int = 1) -> str:
        """What it is like outside."""
        if city != "Oslo":
            raise LookupError(f"no {city}")
        return f"rain for {days} days"

    def moon() -> dict[str, float]:
        return {"full": 0.5}

    async with Provider() as provider:
        await configure(provider)
        provider.scripts += [
            [
                Use("weather", {"city": "Oslo", "days": 3}),
                Use("weather", {"city": "Rome"}),
                Use("weather", {"town": "Rome"}),
                Use("moon", {}),
            ],
            [Say("Rain.")],
        ]
        tools = [weather, moon]
        async with segue.create_session(model="claude-sonnet-4-6", tools=tools) as session:
            await session.send("What is it like?")
            messages = await read_stream(session)
            with pytest.raises(InvalidInput, match="two tools"):
                segue.create_session(model="demo", tools=[weather, weather])
        async with segue.resume_session(session.session_id, model="claude-sonnet-4-6") as again:
            await again.send("Thanks")
            await read_stream(again)
    assert messages[-1].result == "Rain." and messages[-1].permission_denials == []
    offered = {tool["name"]: tool for tool in provider.requests[0]["tools"]}
    assert offered["weather"]["description"] == "What it is like outside."
    assert offered["weather"]["input_schema"]["required"] == ["city"]
    results = provider.requests[1]["messages"][-1]["content"]
    texts = [block["content"][0]["text"] for block in results]
    assert texts[0] == "rain for 3 days" and texts[3] == '{"full":0.5}'
    assert texts[1] == "LookupError: no Rome" and "town" in texts[2]
    # A later program does not have these functions.
    assert "weather" not in {tool["name"] for tool in provider.requests[-1]["tools"]}


async def test_tools_are_allowed_and_disallowed_by_name(tmp_path: Path) -> None:
    options: Any = {
        "allowed_tools": ["Write", "mcp__little"],
        "disallowed_tools": ["bash", "WebFetch"],
        "cwd": tmp_path,
    }
    async with Provider() as provider:
        await configure(provider)
        provider.scripts += [
            [
                Use("write", {"file_path": "a.txt", "content": "x"}),
                Use("edit", {"file_path": "a.txt", "old_string": "x", "new_string": "y"}),
                Use("bash", {"command": "true"}),
            ]
        ]
        result = await segue.prompt("Go", model="claude-sonnet-4-6", **options)
    assert (tmp_path / "a.txt").read_text() == "x"
    assert [denial["tool_name"] for denial in result.permission_denials] == ["edit"]
    offered = {tool["name"] for tool in provider.requests[0]["tools"]}
    assert {"write", "edit", "read"} <= offered and not {"bash", "web_fetch"} & offered
    with pytest.raises(InvalidInput, match="there is no tool 'nothing'"):
        segue.create_session(model="claude-sonnet-4-6", disallowed_tools=["nothing"])


async def test_the_cost_of_a_model_without_a_price_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    async with Provider() as provider:
        await configure(provider, "openai-chat:local")
        result = await segue.prompt("Hi", model="openai-chat:local")
        priced = await segue.prompt("/say Hi", model="demo")
    assert (result.result, result.total_cost_usd) == ("done", None)
    assert result.usage["output_tokens"] == 7
    assert priced.total_cost_usd == 0


async def test_a_model_continues_a_claude_code_session(tmp_path: Path) -> None:
    first = await segue.prompt("/say Hello", model="demo", cwd=tmp_path)
    async with await segue.open_hub() as hub:
        path = Path((await hub.sync.write(segue.LOCAL, first.session_id, "claude")).path)
        await hub.editor.purge(segue.LOCAL, first.session_id)
    before = path.read_bytes()
    async with Provider() as provider:
        await configure(provider)
        model = "claude-sonnet-4-6"
        async with segue.resume_session(first.session_id, model=model, cwd=tmp_path) as session:
            await session.send("Continue")
            assert (await read_stream(session))[-1].result == "done"
        with pytest.raises(InvalidInput, match="works in"):
            async with segue.resume_session(first.session_id, model=model, cwd="/"):
                pass
    texts = [message["content"][0]["text"] for message in provider.requests[0]["messages"]]
    assert texts == ["/say Hello", "Hello", "Continue"]
    assert path.read_bytes() == before


async def test_the_session_functions_serve_native_and_claude_sessions_alike(
    tmp_path: Path,
) -> None:
    native = await segue.prompt("/say Hello", model="demo", cwd=tmp_path)
    async with await segue.open_hub() as hub:
        path = (await hub.sync.write(segue.LOCAL, native.session_id, "claude")).path
        await hub.editor.purge(segue.LOCAL, native.session_id)
    assert Path(path).exists()  # only Claude Code has the session now
    (info,) = await segue.list_sessions(tmp_path)
    assert (info.session_id, info.source) == (native.session_id, "claude")
    await segue.rename_session(info.session_id, "A name")
    await segue.tag_session(info.session_id, "red")
    known = await segue.get_session_info(info.session_id)
    assert known is not None
    assert (known.custom_title, known.tag, known.summary) == ("A name", "red", "A name")
    await segue.tag_session(info.session_id, None)
    messages = await segue.get_session_messages(info.session_id)
    assert [message.type for message in messages] == ["user", "assistant"]
    assert len(await segue.get_session_messages(info.session_id, limit=1)) == 1
    forked = await segue.fork_session(info.session_id, title="Forked")
    assert len(await segue.list_sessions()) == 2
    assert len(await segue.get_session_messages(forked.session_id)) == 2
    async with segue.resume_session(info.session_id, model="demo") as session:
        await session.send("/say more")
        assert (await read_stream(session))[-1].result == "more"
    assert len(await segue.get_session_messages(info.session_id)) == 4
    assert len(await segue.list_sessions(limit=1)) == 1
    assert len(await segue.list_sessions(limit=1, offset=1)) == 1


async def test_the_messages_of_a_fork_have_new_ids() -> None:
    result = await segue.prompt("/say one\n/tool grep foo\n/say two", model="demo")
    before = await segue.get_session_messages(result.session_id)
    fork = await segue.fork_session(result.session_id)
    after = await segue.get_session_messages(fork.session_id)
    assert [message.message["content"] for message in after] == [
        message.message["content"] for message in before
    ]
    assert not {message.uuid for message in after} & {message.uuid for message in before}
    again = await segue.fork_session(fork.session_id, up_to_message_id=after[1].uuid)
    (first, second, *_) = await segue.get_session_messages(again.session_id)
    assert (first.message, second.message["content"]) == (
        after[0].message,
        after[1].message["content"],
    )


async def test_a_claude_code_session_can_be_forked_at_a_message(
    tmp_path: Path,
) -> None:
    uuids = [str(uuid.uuid4()) for _ in range(4)]
    first, answer, second, last = uuids
    Home(tmp_path / "claude").write(
        [
            user(first, None, "one"),
            assistant(answer, first),
            user(second, answer, "two"),
            assistant(last, second),
        ]
    )
    assert [message.uuid for message in await segue.get_session_messages(S)] == uuids
    fork = await segue.fork_session(S, up_to_message_id=answer)
    copies = await segue.get_session_messages(fork.session_id)
    assert [message.message["content"] for message in copies] == [
        "one",
        [{"type": "text", "text": answer}],
    ]
    with pytest.raises(NotFound):
        await segue.fork_session(S, up_to_message_id=str(uuid.uuid4()))


async def test_invalid_arguments_raise_at_once_or_on_first_use() -> None:
    with pytest.raises(InvalidInput, match="model"):
        segue.create_session(model="")
    for wrong in ("bogus", "openai:", ":gpt-5", " : "):
        with pytest.raises(InvalidInput, match="is not a model: write provider:name"):
            await segue.prompt("Hi", model=wrong)
        with pytest.raises(InvalidInput, match="is not a model: write provider:name"):
            segue.resume_session(str(uuid.uuid4()), model=wrong)
    with pytest.raises(InvalidInput, match="there is no provider 'nope'"):
        await segue.prompt("Hi", model="nope:x")
    assert await segue.list_sessions() == []
    with pytest.raises(InvalidInput, match="permission_mode"):
        segue.create_session(model="demo", permission_mode="yolo")
    with pytest.raises(InvalidInput, match="max_turns"):
        segue.create_session(model="demo", max_turns=0)
    with pytest.raises(InvalidInput, match="'odd'"):
        segue.create_session(model="demo", mcp_servers={"odd": {"type": "sse", "url": "x"}})
    options: Any = {"setting_sources": []}
    with pytest.raises(InvalidInput, match="unknown option 'setting_sources'; the options are"):
        segue.create_session(model="demo", **options)
    with pytest.raises(InvalidInput, match="unknown option"):
        await segue.prompt("Hi", model="demo", **options)
    with pytest.raises(InvalidInput, match="is not a session id"):
        segue.resume_session("nonsense", model="demo")
    with pytest.raises(NotFound):
        async with segue.resume_session("0198c0de-0000-7000-8000-000000000000", model="demo"):
            pass
    assert await segue.get_session_info("nonsense") is None
    assert await segue.get_session_messages("nonsense") == []
    session = segue.create_session(model="demo")
    await session.close()
    await session.close()
    with pytest.raises(Conflict, match="Cannot send to closed session"):
        await session.send("hello")


async def test_closing_a_session_ends_its_running_turn() -> None:
    session = segue.create_session(model="demo")
    await session.send("/wait 60")
    await session.close()
    info = await segue.get_session_info(session.session_id)
    assert info is not None and info.status == "idle"


def test_sync_functions_need_no_event_loop() -> None:
    with sync.create_session(model="demo") as session:
        session.send("/say Hello")
        assert [message.type for message in session.stream()] == ["system", "assistant", "result"]
    with sync.resume_session(session.session_id, model="demo") as session:
        session.send("/say again\n/say and again")
        for message in session.stream():
            if message.type == "assistant":
                break
    with pytest.raises(SegueError, match="closed"):
        session.send("more")
    assert sync.prompt("/say Hi", model="demo").result == "Hi"
    assert [info.summary for info in sync.list_sessions()] == ["/say Hi", "/say Hello"]
    sync.rename_session(session.session_id, "Named")
    info = sync.get_session_info(session.session_id)
    assert info is not None and info.custom_title == "Named"
    assert sync.get_session_messages(sync.fork_session(session.session_id).session_id)


def test_a_sync_session_leaves_nothing_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "claude" / "projects").mkdir(parents=True)
    with sync.create_session(model="demo") as session:
        session.send("/say Hello")
        assert [message.type for message in session.stream()][-1] == "result"
    gc.collect()  # a task that still runs logs an error when it is collected
    assert not caplog.records


def test_the_unstable_v2_names_are_aliases() -> None:
    assert segue.unstable_v2_create_session is segue.create_session
    assert segue.unstable_v2_resume_session is segue.resume_session
    assert segue.unstable_v2_prompt is segue.prompt


def test_options_know_every_built_in_tool() -> None:
    assert tuple(BUILT_IN) == BUILT_IN_TOOLS

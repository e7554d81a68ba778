"""Settings and answers from an API key apply only to turns that a key started."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.permission import permission_fields
from segue.agents.registry import AgentRegistry
from segue.hub import Hub
from segue.hub.resources.attachments import AttachedFile
from segue.hub.resources.record_ids import format_record_id
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import NotPermitted
from segue.model.event import (
    AgentRef,
    ConfigChanged,
    Event,
    Failed,
    PermissionAnswered,
    PermissionAsked,
    ToolCall,
    ToolKind,
    ToolResult,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session

KEY = Principal(workspace="local", key_id="key_1")

MakeHub = Callable[..., Hub]


async def next_request(hub: Hub, id: str, after: int = 0) -> Event:
    """Wait for a permission request."""
    async with asyncio.timeout(60):
        async for item in hub.history.follow(LOCAL, id, after):
            if isinstance(item, Event) and isinstance(item.body, PermissionAsked):
                return item
    raise AssertionError("the session ended first")


async def last_seq(hub: Hub, id: str) -> int:
    return (await hub.sessions.get(LOCAL, id)).last_seq


async def requests(hub: Hub, id: str, after: int) -> list[Event]:
    types = ("permission_asked",)
    return list(await hub.history.events(LOCAL, id, types=types, after=after))


async def assert_asks(
    hub: Hub, principal: Principal, id: str, *, answer: str = "reject", by: Principal | None = None
) -> None:
    """Check that a turn of a principal asks for permission, and answer the request."""
    start = await last_seq(hub, id)
    turn = await hub.turns.submit(principal, id, "/ask May I?")
    asked = await next_request(hub, id, start)
    await hub.turns.answer(by or principal, id, asked.body.ask_id, answer)
    await hub.turns.wait(principal, id, turn)


async def assert_does_not_ask(hub: Hub, principal: Principal, id: str) -> None:
    start = await last_seq(hub, id)
    await hub.turns.run(principal, id, "/ask May I?")
    assert await requests(hub, id, start) == []


async def test_key_cannot_answer_a_request_of_the_local_users_turn(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/ask May I?")
        asked = await next_request(hub, id)
        with pytest.raises(NotPermitted, match="turn of the local user"):
            await hub.turns.answer(KEY, id, asked.body.ask_id, "allow")
        # Nor by writing to the inbox as an older process would.
        body = {"ask_id": asked.body.ask_id, "option": "allow"}
        await hub.store.put_inbox("local", id, "answer", ids.new_id(), body)
        async with asyncio.timeout(60):
            while any(item.kind == "answer" for item in await hub.store.inbox("local", id)):
                await asyncio.sleep(0.01)
        assert (await hub.sessions.get(LOCAL, id)).open_asks == (asked.body.ask_id,)
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "reject")
        await hub.turns.wait(LOCAL, id, turn)
        answers = await hub.history.events(LOCAL, id, types=("permission_answered",))
        assert [event.body.option for event in answers] == ["reject"]
        assert isinstance(answers[0].body, PermissionAnswered)


async def test_local_user_can_answer_a_request_of_a_keys_turn(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(KEY)).id
        await assert_asks(hub, KEY, id, answer="allow", by=LOCAL)


async def test_mode_that_a_key_sets_applies_only_to_turns_of_keys(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.configure(KEY, id, ConfigChanged(mode="bypassPermissions"))
        await assert_does_not_ask(hub, KEY, id)
        await assert_asks(hub, LOCAL, id)


async def test_mode_that_the_local_user_sets_applies_to_all_turns(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.configure(KEY, id, ConfigChanged(mode="plan"))
        await hub.editor.configure(LOCAL, id, ConfigChanged(mode="bypassPermissions"))
        await assert_does_not_ask(hub, KEY, id)
        await assert_does_not_ask(hub, LOCAL, id)
        assert (await hub.sessions.get(LOCAL, id)).local_settings == {}


async def test_mode_that_a_key_sets_during_the_local_users_turn_does_not_allow_its_tools(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/wait 0.5\n/ask May I?")
        await hub.editor.configure(KEY, id, ConfigChanged(mode="bypassPermissions"))
        asked = await next_request(hub, id)
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "reject")
        await hub.turns.wait(LOCAL, id, turn)


async def test_tool_that_a_key_always_allows_still_asks_the_local_user(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await assert_asks(hub, KEY, id, answer="allow_always")
        await assert_does_not_ask(hub, KEY, id)
        await assert_asks(hub, LOCAL, id)


async def test_tool_that_the_local_user_always_allows_asks_no_more(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await assert_asks(hub, LOCAL, id, answer="allow_always")
        await assert_does_not_ask(hub, LOCAL, id)
        await assert_does_not_ask(hub, KEY, id)


async def test_session_records_whether_a_key_chose_its_agent(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        own = await hub.editor.create(LOCAL)
        assert not own.agent_by_key
        ref = own.agent or AgentRef(id="x")
        assert (await hub.editor.configure(KEY, own.id, ConfigChanged(agent=ref))).agent_by_key
        changed = await hub.editor.configure(LOCAL, own.id, ConfigChanged(agent=ref))
        assert not changed.agent_by_key
        assert (await hub.editor.create(KEY)).agent_by_key


@pytest.mark.parametrize(
    ("local", "by_key", "verdict"),
    [(True, True, "ask"), (True, False, "allow"), (False, True, "allow")],
)
def test_agent_that_a_key_chose_cannot_allow_tools_in_the_local_users_turns(
    local: bool, by_key: bool, verdict: str
) -> None:
    session = Session(
        id="s",
        workspace="w",
        cwd="/",
        created_at=0,
        active_at=0,
        updated_at=0,
        last_seq=1,
        agent_by_key=by_key,
    )
    turn: Any = SimpleNamespace(local=local, session=session)

    def call(name: str, kind: ToolKind) -> ToolCall:
        fields = permission_fields(turn, name, kind, "always_allow")
        return ToolCall(call_id="", name=name, kind=kind, **fields)

    assert call("bash", "execute").effective_verdict == verdict
    assert call("read", "read").effective_verdict == "allow"


async def test_fork_remembers_that_a_key_chose_the_agent(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        for creator, chosen_by_key in ((KEY, True), (LOCAL, False)):
            id = (await hub.editor.create(creator)).id
            await hub.turns.run(creator, id, "hello")
            for forker in (KEY, LOCAL):
                assert (await hub.editor.fork(forker, id)).agent_by_key is chosen_by_key


class WeatherAgent:
    """Calls a tool that the client runs, and repeats its result."""

    async def run(self, turn: Turn) -> StopReason:
        (result,) = await turn.result(await turn.start_tool("weather", custom=True))
        await turn.send_message(result.body.content[0].text)
        return "end_turn"


async def next_call(hub: Hub, id: str) -> str:
    """Wait for the call of a client's tool, and return its id."""
    async with asyncio.timeout(60):
        async for item in hub.history.follow(LOCAL, id):
            if isinstance(item, Event) and isinstance(item.body, ToolCall):
                return item.body.call_id
    raise AssertionError("the session ended first")


@pytest.mark.parametrize(
    ("owner", "sender", "accepted"),
    [(LOCAL, KEY, False), (LOCAL, LOCAL, True), (KEY, KEY, True), (KEY, LOCAL, True)],
)
async def test_result_of_a_clients_tool_in_a_local_turn_comes_from_the_local_user(
    make_hub: MakeHub, owner: Principal, sender: Principal, accepted: bool
) -> None:
    registry = AgentRegistry({"default": lambda _: WeatherAgent()})
    async with make_hub(agent_registry=registry) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(owner, id, "go")
        call_id = await next_call(hub, id)
        if not accepted:
            forged = ToolResult(call_id=call_id, content=as_content("forged"))
            with pytest.raises(NotPermitted, match="turn of the local user"):
                await hub.turns.submit_tool_result(sender, id, forged)
            # Nor by writing to the inbox as an older process would.
            body = {"result": {"type": "tool_result", "call_id": call_id}}
            await hub.store.put_inbox("local", id, "result", ids.new_id(), body)
            async with asyncio.timeout(60):
                while any(item.kind == "result" for item in await hub.store.inbox("local", id)):
                    await asyncio.sleep(0.01)
            sender = LOCAL
        rain = ToolResult(call_id=call_id, content=as_content("rain"))
        await hub.turns.submit_tool_result(sender, id, rain)
        assert await hub.turns.wait(owner, id, turn) == "end_turn"
        results = await hub.history.events(LOCAL, id, types=("tool_result",))
        assert [event.body.content[0].text for event in results] == ["rain"]


class ProgramAgent:
    """Stands for a program that runs the hooks in its working directory."""

    directory_settings = "the program"

    async def run(self, turn: Turn) -> StopReason:
        await turn.send_message("hooks ran")
        return "end_turn"


async def run_program(hub: Hub, id: str) -> str:
    """Return what the local user's turn with a ProgramAgent ends with."""
    await hub.turns.run(LOCAL, id, "go")
    events = await hub.history.events(LOCAL, id, types=("agent_message", "failed"))
    body = events[-1].body
    return body.message if isinstance(body, Failed) else body.content[0].text


async def test_program_of_the_local_user_does_not_read_settings_that_a_key_wrote(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    registry = AgentRegistry({"default": lambda _: ProgramAgent()})
    async with make_hub(agent_registry=registry) as hub:
        own = await hub.editor.create(LOCAL)
        assert await run_program(hub, own.id) == "hooks ran"
        fork = await hub.editor.fork(KEY, own.id)  # works in the same directory
        await hub.turns.run(KEY, fork.id, "write hooks")
        await hub.editor.purge(KEY, fork.id)
        assert "fork the session into a directory of yours" in await run_program(hub, own.id)
        project = tmp_path / "project"
        project.mkdir()
        elsewhere = await hub.editor.fork(LOCAL, own.id, cwd=str(project))
        assert await run_program(hub, elsewhere.id) == "hooks ran"


async def one_part(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize("kind", ["claude_code", "acp"])
async def test_hooks_that_a_key_mounts_do_not_run_for_the_local_user(
    make_hub: MakeHub, kind: str
) -> None:
    async with make_hub() as hub:
        spec = {"kind": kind, "command": "no-such-program"}
        ref = await hub.records.program("local", "program", spec)
        session = await hub.editor.create(LOCAL, agent=ref)
        hooks = await hub.files.store(KEY, one_part(b'{"hooks": {}}'), {"filename": "f"})
        attached = await hub.attachments.resolve(
            "local",
            [AttachedFile(file_id=format_record_id(hooks), mount_path="/.claude/settings.json")],
        )
        (resource,) = await hub.attachments.copy_files(KEY, session.id, attached)
        await hub.workdirs.mount(session, resource)
        await hub.editor.set_resources(KEY, session.id, lambda before: (*before, resource))
        assert (Path(session.cwd) / ".claude" / "settings.json").exists()
        assert "API keys can write to the directory" in await run_program(hub, session.id)

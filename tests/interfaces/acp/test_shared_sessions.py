"""Sessions that several clients have open: opening and closing disturb no turn of another one."""

import asyncio

import psutil
import pytest

from segue.hub import Hub
from segue.model.content import plain_text
from segue.model.event import AgentMessage, UserMessage
from segue.model.principal import LOCAL
from tests.interfaces.acp.test_external_agent import careless_agent, segue_agent
from tests.interfaces.acp.testbed import AcpTestbed

SLOW = "/say begun\n/slow 0.05\n/say one two three four five six"


@pytest.mark.parametrize("method", ["load", "resume"])
async def test_opening_a_session_again_does_not_disturb_its_turn(
    testbed: AcpTestbed, version: int, method: str
) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        prompt = await client.start_prompt(id, SLOW)
        await client.open_session(method, id, "/")
        response = await client.wait_response(prompt)
        if version == 1:
            assert response == {"stopReason": "end_turn"}
        turn = (await hub.history.events(LOCAL, id, types=["user_message"]))[0].id
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        assert await client.run_prompt(id, "/say again") is not None
        messages = await hub.history.events(LOCAL, id, types=["agent_message"])
        texts = [e.body.content[0].text for e in messages if isinstance(e.body, AgentMessage)]
        assert texts == ["begun", "one two three four five six", "again"]


async def test_closing_a_session_does_not_end_the_turn_of_another_client(
    testbed: AcpTestbed, version: int
) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version) as second,
        testbed.hub() as hub,
    ):
        id = await first.new_session("/")
        await second.open_session("resume", id, "/")
        await second.start_prompt(id, SLOW)
        await first.request("session/close", {"sessionId": id})
        turn = (await hub.history.events(LOCAL, id, types=["user_message"]))[0].id
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"


async def test_editor_that_quits_does_not_end_the_turn_of_another_one(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as second, testbed.hub() as hub:
        async with testbed.connect_in_process(version) as first:
            id = await first.new_session("/")
            await second.open_session("resume", id, "/")
            await second.start_prompt(id, SLOW)
        turn = (await hub.history.events(LOCAL, id, types=["user_message"]))[0].id
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"


@pytest.mark.parametrize("finish", [True, False])
async def test_turn_of_a_disconnected_client_finishes_only_on_request(
    testbed: AcpTestbed, version: int, finish: bool
) -> None:
    command = ["-m", "segue", "acp", "--data-dir", str(testbed.data)]
    words = ["--finish-turns"] if finish else []
    async with testbed.connect_program(version, *command, *words) as (client, _):
        id = await client.new_session("/")
        seconds = 0.5 if finish else 30
        await client.start_prompt(id, f"/say begun\n/wait {seconds}\n/say finished")
    async with testbed.hub() as hub, asyncio.timeout(60):
        last = (await hub.history.events(LOCAL, id, types=["status_changed"]))[-1].body
        assert last.stop_reason == ("end_turn" if finish else "cancelled")  # type: ignore[union-attr]


@pytest.mark.parametrize("agent", ["stores its sessions", "forgets its sessions", "segue"])
async def test_external_agent_knows_the_turns_that_ran_in_other_editors(
    testbed: AcpTestbed, agent: str
) -> None:
    option = (
        segue_agent(testbed, 2)
        if agent == "segue"
        else careless_agent(testbed, *(["forgetful"] if "forgets" in agent else []))
    )
    async with (
        testbed.connect_child(1, "--agent", option) as (first, first_process),
        testbed.connect_child(1, "--agent", option) as (second, second_process),
        testbed.hub() as hub,
    ):
        id = await first.new_session("/")
        await second.open_session("resume", id, "/")
        for number, editor in enumerate([first, second, first, second, second, first]):
            prompt = f"/say number {number}" if agent == "segue" else f"number {number} seen"
            assert await editor.run_prompt(id, prompt) == "end_turn"
            if agent == "segue":
                known = await native_conversation(testbed, hub, id)
            else:  # this program answers with what it knows
                messages = await hub.history.events(LOCAL, id, types=["agent_message"])
                answer = messages[-1].body
                assert isinstance(answer, AgentMessage)
                known = plain_text(answer.content)
            assert all(f"number {n}" in known for n in range(number + 1)), known
        for editor, process in ((first, first_process), (second, second_process)):
            await editor.request("session/close", {"sessionId": id})
            assert psutil.Process(process.pid).children(recursive=True) == []


async def native_conversation(testbed: AcpTestbed, hub: Hub, id: str) -> str:
    """Return the prompts and answers of the session that the external agent has for a session."""
    binding = (await hub.sessions.get(LOCAL, id)).options["acp"]
    other = AcpTestbed(testbed.directory)
    other.data = testbed.directory / "other"
    async with other.hub() as native:
        events = await native.history.events(
            LOCAL, binding["session"], types=["user_message", "agent_message"]
        )
    bodies = [e.body for e in events if isinstance(e.body, UserMessage | AgentMessage)]
    return "\n".join(plain_text(body.content) for body in bodies)

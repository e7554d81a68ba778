"""`segue acp` as a real process: its streams, its end, and clients that end badly."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from segue.model.content import as_content
from segue.model.event import AgentMessage, UserMessage
from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import SECONDS, is_rest
from tests.interfaces.acp.testbed import House


async def test_nothing_but_messages_stands_on_standard_output(house: House, version: int) -> None:
    # The harness parses and judges every line that comes, and wants standard error empty.
    async with house.child(version) as (client, _):
        id = await client.new(house.directory)
        await client.run(id, "/say line one\n/think two\n/tool three four\n/write a.txt five")
        await client.ask("session/close", {"sessionId": id})


async def test_it_ends_when_its_input_does(house: House, version: int) -> None:
    async with house.child(version) as (client, process):
        await client.new("/")
        assert process.returncode is None
    assert process.returncode == 0


async def at_rest(house: House, id: str) -> None:
    async with house.hub() as hub:
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.turn, session.open_calls) == ("idle", None, ())
        last = (await hub.history.events(LOCAL, id, types=["status_changed"]))[-1].body
        assert last.stop_reason == "cancelled"


async def test_a_turn_comes_to_rest_when_its_client_goes_away(house: House, version: int) -> None:
    async with house.child(version) as (client, _):
        client.choose = lambda params: None
        id = await client.new("/")
        await client.begin(id, "/say begun\n/ask and now?")
    await at_rest(house, id)


async def test_what_a_client_had_not_begun_when_it_went_away_is_never_begun(
    house: House, version: int
) -> None:
    async with house.child(version) as (client, _):
        id = await client.new("/")
        await client.begin(id, "/say begun\n/wait 60")
        await client.post("session/prompt", client.prompting(id, "/say never"))
        await client.ask("session/list")
    async with house.hub() as hub:
        assert await hub.turns.queued(LOCAL, id) == []
        assert len(await hub.history.events(LOCAL, id, types=["user_message"])) == 1


async def test_a_turn_comes_to_rest_when_its_client_is_killed(house: House, version: int) -> None:
    """A client of its own process, so that it is the system that closes the pipes."""
    go_between = """
import subprocess, sys
agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=sys.stdout)
for line in sys.stdin.buffer:
    agent.stdin.write(line)
    agent.stdin.flush()
"""
    words = (sys.executable, "-m", "segue", "acp", "--data-dir", str(house.data))
    async with house.child(version, program=("-c", go_between, *words), stderr=None) as (
        client,
        process,
    ):
        id = await client.new("/")
        (agent,) = psutil.Process(process.pid).children()
        await client.begin(id, "/say begun\n/wait 60")
        process.kill()
        await asyncio.to_thread(agent.wait, SECONDS)
    await at_rest(house, id)


async def test_a_turn_comes_to_rest_when_we_are_told_to_end(house: House, version: int) -> None:
    async with house.child(version) as (client, process):
        id = await client.new("/")
        await client.begin(id, "/say begun\n/wait 60")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    await at_rest(house, id)


async def test_a_killed_agent_s_session_is_loaded_by_the_next(house: House, version: int) -> None:
    async with house.child(version, stderr=None) as (client, process):
        id = await client.new("/")
        await client.run(id, "/say before")
        words = "/say begun\n/tool a b\n/wait 60"
        await client.post("session/prompt", client.prompting(id, words))
        await client.until(lambda update: update.kind.startswith("tool_call"))
        process.kill()
        await process.wait()
    async with house.child(version) as (client, _):
        said = [
            update.body
            for update in await client.replay(id, "/")
            if update.kind.startswith("agent_message")
        ]
        assert len(said) == 2


@pytest.mark.full
async def test_kill_and_restart_between_any_two_steps(house: House, version: int) -> None:
    steps = 0

    async def killed(work):  # type: ignore[no-untyped-def]
        nonlocal steps
        steps += 1
        async with house.child(version, stderr=None) as (client, process):
            result = await work(client)
            process.kill()
            await process.wait()
        return result

    id = await killed(lambda client: client.new("/"))
    # A killed process holds its sessions for some seconds more; only a prompt has to wait for it.
    await killed(lambda client: client.ask("session/list"))
    await killed(lambda client: client.replay(id, "/"))
    titled = {"sessionId": id, "title": "Named"}
    await killed(lambda client: client.ask("session/set_title", titled))
    await killed(lambda client: client.ask("session/archive", {"sessionId": id}))
    await killed(lambda client: client.ask("session/unarchive", {"sessionId": id}))

    async def prompt(client):  # type: ignore[no-untyped-def]
        await client.open("resume", id, "/")
        return await client.run(id, "/say survives")

    assert await killed(prompt) == "end_turn"
    rows = (await killed(lambda client: client.ask("session/list")))["sessions"]
    assert [(row["sessionId"], row["title"]) for row in rows] == [(id, "Named")]
    await killed(lambda client: client.ask("session/delete", {"sessionId": id}))
    assert (await killed(lambda client: client.ask("session/list")))["sessions"] == []
    assert steps == 10


async def test_a_huge_line_is_refused_and_what_follows_is_answered(house: House) -> None:
    async with house.child(1) as (client, process):
        piece = b"x" * (1 << 20)
        await client.raw(b'{"jsonrpc":"2.0","id":1,"method":"')
        for _ in range(70):
            await client.raw(piece)
        await client.raw(b'"}\n')
        assert await client.ask("session/list") == {"sessions": []}
        assert [error["code"] for error in client.refusals] == [-32600]
        assert psutil.Process(process.pid).memory_info().rss < 300 << 20


async def test_a_long_message_is_taken(house: House, version: int) -> None:
    async with house.child(version) as (client, _):
        id = await client.new("/")
        assert await client.run(id, "/tool long " + "word " * 400_000) == "end_turn"
        assert len(str(client.updates()[-3:])) > 2_000_000


LONG = 2000  # messages, of 8 kB each


async def long_session(house: House) -> str:
    async with house.hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        said = as_content("word " * 1600)
        for _ in range(LONG // 1000):
            pairs = [(UserMessage(content=said), AgentMessage(content=said)) for _ in range(500)]
            await hub.editor.append(LOCAL, id, *(body for pair in pairs for body in pair))
    return id


async def test_a_client_that_stops_reading_holds_up_the_replay_and_fills_no_memory(
    house: House,
) -> None:
    id = await long_session(house)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "acp", "--data-dir", str(house.data)),
        stdin=asyncio.subprocess.PIPE,
        stdout=os.pipe()[1],  # whose other end nobody reads
    )
    assert process.stdin is not None
    requests = [
        {"method": "initialize", "params": {"protocolVersion": 1}},
        {"method": "session/load", "params": {"sessionId": id, "cwd": "/", "mcpServers": []}},
    ]
    for number, request in enumerate(requests):
        line = json.dumps({"jsonrpc": "2.0", "id": number, **request})
        process.stdin.write(line.encode() + b"\n")
    watched = psutil.Process(process.pid)
    before = 0.0
    for _ in range(100):  # until it does nothing any more
        await asyncio.sleep(0.2)
        spent = watched.cpu_times().user + watched.cpu_times().system
        if before and spent - before < 0.01:
            break
        before = spent
    assert watched.memory_info().rss < 80 << 20
    # It reads no more than it can answer, however much is sent.
    flood = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "session/list"}).encode() + b"\n"
    taken = 0
    try:
        async with asyncio.timeout(3):
            for number in range(100_000):
                process.stdin.write(flood.replace(b'"id": 0', b'"id": %d' % (number + 10)))
                await process.stdin.drain()
                taken += 1
    except TimeoutError:
        pass
    assert taken < 20_000
    assert watched.memory_info().rss < 80 << 20
    process.stdin.close()
    process.kill()
    await process.wait()


async def test_a_long_session_is_replayed_whole(house: House, version: int) -> None:
    id = await long_session(house)
    async with house.child(version) as (client, process):
        updates = await client.replay(id, "/")
        messages = [update for update in updates if "message" in update.kind]
        assert len(messages) == LONG
        assert psutil.Process(process.pid).memory_info().rss < 80 << 20


async def test_an_empty_input_is_an_end(house: House, tmp_path: Path) -> None:
    script = tmp_path / "requests.jsonl"
    script.write_text(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    )
    for source in (os.devnull, script):
        with open(source) as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "error", "-m", "segue", "acp"),
                *("--data-dir", str(house.data)),
                stdin=file,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            _, complaints = await process.communicate()
        assert (process.returncode, complaints) == (0, b"")


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
async def test_a_stream_that_is_closed_from_the_start_is_no_accident(
    house: House, tmp_path: Path, closed: str
) -> None:
    script = tmp_path / "requests.jsonl"
    script.write_text(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
        '{"jsonrpc":"2.0","id":2,"method":"session/list"}\n'
    )
    command = f"{sys.executable} -m segue acp --data-dir {house.data} {closed}"
    with script.open() as file:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, complaints = await process.communicate()
    assert (process.returncode, complaints) == (0, b"")
    assert output.count(b"result") == (2 if closed == "2>&-" else 0)


async def test_set_up_says_which_agents_there_are(house: House) -> None:
    async def said() -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "segue", "acp", "--setup", "--data-dir", str(house.data)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output

    output = await said()
    assert b"No model is configured" in output and b"demo agent" in output
    assert not house.data.exists()
    async with house.hub() as hub:
        await hub.config.set("local", "model", "ollama:qwen3")
    assert b"with the model ollama:qwen3" in await said()


async def test_the_agent_can_be_named(house: House, version: int) -> None:
    async with house.child(version, "--agent", "demo") as (client, _):
        id = await client.new("/")
        assert await client.run(id, "/say hi") == "end_turn"


async def test_an_agent_that_does_not_exist_is_refused_with_those_that_do(house: House) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "acp", "--agent", "nonsense"),
        *("--data-dir", str(house.data)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = await process.communicate()
    assert (process.returncode, output) == (2, b"")
    assert b"no agent 'nonsense'; there are: " in complaints and b"demo" in complaints


async def test_a_store_that_cannot_be_opened_is_told_to_whoever_asks(
    house: House, version: int
) -> None:
    house.data.mkdir()
    store = house.data / "segue.db"
    store.write_text("this is no database " * 100)
    async with house.child(version) as (client, _):
        for _ in range(2):
            refused = await client.refusal("session/list")
            assert refused.code == -32603 and str(store) in refused.message
        store.unlink()
        assert (await client.ask("session/list"))["sessions"] == []


async def test_two_hundred_sessions_are_active_in_one_process(house: House) -> None:
    async with house.child(2) as (client, _):
        made = [await client.new("/") for _ in range(200)]
        before = len(client.log)
        for id in made:
            await client.post("session/prompt", client.prompting(id, "/wait 0.5\n/say done"))
        await client.eventually(
            lambda: sum(is_rest(update) for update in client.updates(before)) == len(made)
        )
        rested = {update.session for update in client.updates(before) if is_rest(update)}
        assert rested == set(made)

"""`segue acp` as a process: its streams, its end, and clients that disappear."""

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
from tests.interfaces.acp.harness import SECONDS, is_idle
from tests.interfaces.acp.testbed import AcpTestbed


async def test_standard_output_has_only_messages(testbed: AcpTestbed, version: int) -> None:
    # The harness checks every line, and expects an empty standard error.
    async with testbed.connect_program(version) as (client, _):
        id = await client.new_session(testbed.directory)
        await client.run_prompt(
            id, "/say line one\n/think two\n/tool three four\n/write a.txt five"
        )
        await client.request("session/close", {"sessionId": id})


async def test_process_ends_when_its_input_ends(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version) as (client, process):
        await client.new_session("/")
        assert process.returncode is None
    assert process.returncode == 0


async def check_turn_cancelled(testbed: AcpTestbed, id: str) -> None:
    async with testbed.hub() as hub:
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.turn, session.open_calls) == ("idle", None, ())
        last = (await hub.history.events(LOCAL, id, types=["status_changed"]))[-1].body
        assert last.stop_reason == "cancelled"


async def test_turn_ends_when_its_client_disconnects(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version) as (client, _):
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/ask and now?")
    await check_turn_cancelled(testbed, id)


async def test_waiting_prompts_of_a_disconnected_client_never_start(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_program(version) as (client, _):
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/wait 60")
        await client.send_request("session/prompt", client.prompt_params(id, "/say never"))
        await client.request("session/list")
    async with testbed.hub() as hub:
        assert await hub.turns.queued(LOCAL, id) == []
        assert len(await hub.history.events(LOCAL, id, types=["user_message"])) == 1


async def test_turn_ends_when_its_client_is_killed(testbed: AcpTestbed, version: int) -> None:
    """Run the client in its own process, so that the system closes the pipes."""
    go_between = """
import subprocess, sys
agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=sys.stdout)
for line in sys.stdin.buffer:
    agent.stdin.write(line)
    agent.stdin.flush()
"""
    command = (sys.executable, "-m", "segue", "acp", "--data-dir", str(testbed.data))
    async with testbed.connect_program(version, "-c", go_between, *command, stderr=None) as (
        client,
        process,
    ):
        id = await client.new_session("/")
        (agent,) = psutil.Process(process.pid).children()
        await client.start_prompt(id, "/say begun\n/wait 60")
        process.kill()
        await asyncio.to_thread(agent.wait, SECONDS)
    await check_turn_cancelled(testbed, id)


async def test_turn_ends_on_sigterm(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version) as (client, process):
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/wait 60")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    await check_turn_cancelled(testbed, id)


async def test_session_of_a_killed_process_can_be_loaded(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version, stderr=None) as (client, process):
        id = await client.new_session("/")
        await client.run_prompt(id, "/say before")
        text = "/say begun\n/tool a b\n/wait 60"
        await client.send_request("session/prompt", client.prompt_params(id, text))
        await client.wait_for_update(lambda update: update.kind.startswith("tool_call"))
        process.kill()
        await process.wait()
    async with testbed.connect_program(version) as (client, _):
        messages = [
            update.body
            for update in await client.replay(id, "/")
            if update.kind.startswith("agent_message")
        ]
        assert len(messages) == 2


@pytest.mark.full
async def test_process_can_be_killed_between_any_two_steps(
    testbed: AcpTestbed, version: int
) -> None:
    steps = 0

    async def killed(work):  # type: ignore[no-untyped-def]
        nonlocal steps
        steps += 1
        async with testbed.connect_program(version, stderr=None) as (client, process):
            result = await work(client)
            process.kill()
            await process.wait()
        return result

    id = await killed(lambda client: client.new_session("/"))
    # The leases of a killed process expire after some seconds; only a prompt waits for that.
    await killed(lambda client: client.request("session/list"))
    await killed(lambda client: client.replay(id, "/"))
    titled = {"sessionId": id, "title": "Named"}
    await killed(lambda client: client.request("session/set_title", titled))
    await killed(lambda client: client.request("session/archive", {"sessionId": id}))
    await killed(lambda client: client.request("session/unarchive", {"sessionId": id}))

    async def prompt(client):  # type: ignore[no-untyped-def]
        await client.open_session("resume", id, "/")
        return await client.run_prompt(id, "/say survives")

    assert await killed(prompt) == "end_turn"
    rows = (await killed(lambda client: client.request("session/list")))["sessions"]
    assert [(row["sessionId"], row["title"]) for row in rows] == [(id, "Named")]
    await killed(lambda client: client.request("session/delete", {"sessionId": id}))
    assert (await killed(lambda client: client.request("session/list")))["sessions"] == []
    assert steps == 10


async def test_connection_works_after_an_oversized_line(testbed: AcpTestbed) -> None:
    async with testbed.connect_program(1) as (client, process):
        piece = b"x" * (1 << 20)
        await client.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"')
        for _ in range(70):
            await client.send_bytes(piece)
        await client.send_bytes(b'"}\n')
        assert await client.request("session/list") == {"sessions": []}
        assert [error["code"] for error in client.unmatched_errors] == [-32600]
        assert psutil.Process(process.pid).memory_info().rss < 300 << 20


async def test_long_message_is_accepted(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version) as (client, _):
        id = await client.new_session("/")
        assert await client.run_prompt(id, "/tool long " + "word " * 400_000) == "end_turn"
        assert len(str(client.updates()[-3:])) > 2_000_000


LONG_SESSION_MESSAGES = 2000  # messages, of 8 kB each


async def long_session(testbed: AcpTestbed) -> str:
    async with testbed.hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        content = as_content("word " * 1600)
        for _ in range(LONG_SESSION_MESSAGES // 1000):
            pairs = [
                (UserMessage(content=content), AgentMessage(content=content)) for _ in range(500)
            ]
            await hub.editor.append(LOCAL, id, *(body for pair in pairs for body in pair))
    return id


async def test_slow_client_pauses_the_replay_without_using_memory(
    testbed: AcpTestbed,
) -> None:
    id = await long_session(testbed)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "acp", "--data-dir", str(testbed.data)),
        stdin=asyncio.subprocess.PIPE,
        stdout=os.pipe()[1],  # the other end is never read
    )
    assert process.stdin is not None
    requests = [
        {"method": "initialize", "params": {"protocolVersion": 1}},
        {"method": "session/load", "params": {"sessionId": id, "cwd": "/", "mcpServers": []}},
    ]
    for number, request in enumerate(requests):
        line = json.dumps({"jsonrpc": "2.0", "id": number, **request})
        process.stdin.write(line.encode() + b"\n")
    server_process = psutil.Process(process.pid)
    before = 0.0
    for _ in range(100):  # until the process is idle
        await asyncio.sleep(0.2)
        cpu_seconds = server_process.cpu_times().user + server_process.cpu_times().system
        if before and cpu_seconds - before < 0.01:
            break
        before = cpu_seconds
    assert server_process.memory_info().rss < 80 << 20
    # The server stops reading while it cannot write answers.
    request_line = (
        json.dumps({"jsonrpc": "2.0", "id": 0, "method": "session/list"}).encode() + b"\n"
    )
    accepted_requests = 0
    try:
        async with asyncio.timeout(3):
            for number in range(100_000):
                process.stdin.write(request_line.replace(b'"id": 0', b'"id": %d' % (number + 10)))
                await process.stdin.drain()
                accepted_requests += 1
    except TimeoutError:
        pass
    assert accepted_requests < 20_000
    assert server_process.memory_info().rss < 80 << 20
    process.stdin.close()
    process.kill()
    await process.wait()


async def test_long_session_is_replayed_completely(testbed: AcpTestbed, version: int) -> None:
    id = await long_session(testbed)
    async with testbed.connect_program(version) as (client, process):
        updates = await client.replay(id, "/")
        messages = [update for update in updates if "message" in update.kind]
        assert len(messages) == LONG_SESSION_MESSAGES
        assert psutil.Process(process.pid).memory_info().rss < 80 << 20


async def test_end_of_input_ends_the_last_line_and_the_process(
    testbed: AcpTestbed, tmp_path: Path
) -> None:
    script = tmp_path / "requests.jsonl"
    script.write_text(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    )
    for source, answers in ((os.devnull, 0), (script, 1)):
        with open(source) as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "error", "-m", "segue", "acp"),
                *("--data-dir", str(testbed.data)),
                stdin=file,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            output, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
        assert len(output.splitlines()) == answers


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
async def test_process_ends_cleanly_with_closed_streams(
    testbed: AcpTestbed, tmp_path: Path, closed: str
) -> None:
    script = tmp_path / "requests.jsonl"
    script.write_text(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
        '{"jsonrpc":"2.0","id":2,"method":"session/list"}\n'
    )
    command = f"{sys.executable} -m segue acp --data-dir {testbed.data} {closed}"
    with script.open() as file:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert output.count(b"result") == (2 if closed == "2>&-" else 0)


async def test_setup_names_the_configured_model(testbed: AcpTestbed) -> None:
    async def content() -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "segue", "acp", "--setup", "--data-dir", str(testbed.data)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output

    output = await content()
    assert b"No model is configured" in output and b"demo agent" in output
    assert not testbed.data.exists()
    async with testbed.hub() as hub:
        await hub.config.set("local", "model", "ollama:qwen3")
    assert b"with the model ollama:qwen3" in await content()


async def test_agent_option_selects_the_agent(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_child(version, "--agent", "demo") as (client, _):
        id = await client.new_session("/")
        assert await client.run_prompt(id, "/say hi") == "end_turn"


async def test_unknown_agent_error_lists_the_agents(testbed: AcpTestbed) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "acp", "--agent", "nonsense"),
        *("--data-dir", str(testbed.data)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert (process.returncode, output) == (2, b"")
    assert b"unknown agent 'nonsense'; use " in errors and b"demo" in errors


async def test_requests_report_a_store_that_cannot_be_opened(
    testbed: AcpTestbed, version: int
) -> None:
    testbed.data.mkdir()
    store = testbed.data / "segue.db"
    store.write_text("this is no database " * 100)
    async with testbed.connect_program(version) as (client, _):
        for _ in range(2):
            error = await client.request_error("session/list")
            assert error.code == -32603 and str(store) in error.message
        store.unlink()
        assert (await client.request("session/list"))["sessions"] == []


@pytest.mark.parametrize("sessions", [40, pytest.param(200, marks=pytest.mark.full)])
async def test_many_sessions_run_in_one_process(testbed: AcpTestbed, sessions: int) -> None:
    async with testbed.connect_program(2) as (client, _):
        session_ids = [await client.new_session("/") for _ in range(sessions)]
        before = len(client.log)
        for id in session_ids:
            await client.send_request(
                "session/prompt", client.prompt_params(id, "/wait 0.5\n/say done")
            )
        await client.wait_until(
            lambda: sum(is_idle(update) for update in client.updates(before)) == len(session_ids)
        )
        idle_sessions = {update.session for update in client.updates(before) if is_idle(update)}
        assert idle_sessions == set(session_ids)

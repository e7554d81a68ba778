"""After a restart, each interface shows the open permission requests and can answer them."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.interfaces.cli.conversation import requests
from segue.interfaces.cli.conversation.turns import run_turn
from segue.interfaces.cli.terminal_input import terminal_lines
from segue.model.errors import Busy, NoAgent, NotFound
from segue.model.event import Interrupted, PermissionAnswered
from segue.model.principal import LOCAL
from tests.agents.provider import Provider, Use
from tests.faults.idle import assert_idle
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation, child
from tests.faults.takeover import WORKSPACE, bodies, read_events, wait_until_idle
from tests.faults.test_waiting_turns import LEASE, MODEL, create_session, until_waiting
from tests.interfaces.acp.harness import selected
from tests.interfaces.acp.testbed import AcpTestbed
from tests.interfaces.web.site import open_site

RUN = Use("bash", {"command": "echo run >> ran.txt"})
AGAIN = Use("bash", {"command": "echo again >> ran.txt"})
ENDS = ["close", pytest.param("SIGKILL", marks=pytest.mark.full)]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))


@asynccontextmanager
async def ended_process(directory: Path, how: str) -> AsyncIterator[str]:
    """Yield a session whose turn waits for two permissions, after the end of its process."""
    location = StoreLocation(directory / "data")
    cwd = directory / "work"
    async with Provider([RUN, AGAIN]) as provider:
        async with Hub(await location.open(), location.directory, lease=LEASE) as hub:
            await hub.config.set(WORKSPACE, "model", MODEL)
            await hub.config.set(WORKSPACE, "model.base_url", provider.url)
            session = await create_session(hub, cwd, hosted=False)
            if how == "close":
                await hub.turns.submit(LOCAL, session, "Go")
                await until_waiting(hub, session)
            else:
                async with child("holder.py", *location.arguments, LEASE) as other:
                    await other.request(do="prompt", session=session, text="Go")
                    await until_waiting(hub, session)
                    other.kill()
                    await other.ended()
        yield session
        async with Hub(await location.open(), location.directory, lease=LEASE) as hub:
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            assert bodies(events, Interrupted) == []
            options = [body.option for body in bodies(events, PermissionAnswered)]
            assert options == ["allow", "allow"]
        assert (cwd / "ran.txt").read_text().split() == ["run", "again"]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("version", "method"), [(1, "load"), (1, "resume"), (2, "resume")])
async def test_acp_client_that_opens_the_session_gets_the_open_requests(
    tmp_path: Path, version: int, method: str, how: str
) -> None:
    testbed = AcpTestbed(tmp_path)
    async with ended_process(tmp_path, how) as session, asyncio.timeout(TIMEOUT_SECONDS):
        # A client that dismisses the requests leaves them open, and so does one that goes away.
        async with testbed.connect_in_process(version) as client:
            client.answer_permission = lambda _: {"outcome": {"outcome": "cancelled"}}
            await client.open_session(method, session, tmp_path / "work")
            await client.wait_until(lambda: len(client.permission_requests) == 2)
            dismissed = client.permission_requests
        async with testbed.connect_in_process(version) as client:
            client.answer_permission = lambda _: selected("allow")
            await client.open_session(method, session, tmp_path / "work")
            await client.wait_until(lambda: len(client.permission_requests) == 2)
            assert client.permission_requests == dismissed
            for use, request in zip([RUN, AGAIN], dismissed, strict=True):
                assert use.input["command"] in str(request)
            async with testbed.hub() as hub:
                await wait_until_idle(hub, session)


async def test_cancel_is_answered_while_the_process_that_resumed_the_turn_is_suspended(
    tmp_path: Path,
) -> None:
    location, work = StoreLocation(tmp_path / "data"), tmp_path / "work"
    use = Use("bash", {"command": "touch begun; sleep 60"})
    async with (
        Provider([use]) as provider,
        Hub(await location.open(), location.directory, lease=LEASE) as hub,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        await hub.config.set(WORKSPACE, "model", MODEL)
        await hub.config.set(WORKSPACE, "model.base_url", provider.url)
        session = await create_session(hub, work, hosted=False)
        async with (
            AcpTestbed(tmp_path).connect_in_process(1) as client,
            child("holder.py", *location.arguments, LEASE) as other,
        ):
            client.answer_permission = lambda _: None
            await client.open_session("resume", session, work)
            params = client.prompt_params(session, "Go")
            prompt = await client.send_request("session/prompt", params)
            row = await until_waiting(hub, session)
            await other.request(do="answer", session=session, ask=row.open_asks[0])
            while not (work / "begun").exists():
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)  # not during a write, because its locks would stay
            other.suspend()
            holder = await hub.store.lease_of(WORKSPACE, session)
            await client.notify("session/cancel", {"sessionId": session})
            usage = {
                "inputTokens": 10,
                "outputTokens": 7,
                "cachedReadTokens": 0,
                "cachedWriteTokens": 0,
                "totalTokens": 17,
            }
            answer = await client.wait_response(prompt)
            assert answer == {"stopReason": "cancelled", "usage": usage}
            assert await hub.store.lease_of(WORKSPACE, session) == holder
            other.resume()
            await wait_until_idle(hub, session)


async def test_acp_client_that_may_not_answer_gets_no_request(tmp_path: Path) -> None:
    testbed = AcpTestbed(tmp_path)
    async with (
        ended_process(tmp_path, "close") as session,
        asyncio.timeout(TIMEOUT_SECONDS),
        testbed.connect_in_process(1, local=False) as stranger,
        testbed.connect_in_process(1) as client,
        testbed.hub() as hub,
    ):
        await stranger.open_session("resume", session, tmp_path / "work")
        await client.open_session("resume", session, tmp_path / "work")
        await wait_until_idle(hub, session)
        assert len(client.permission_requests) == 2 and not stranger.permission_requests


@pytest.mark.parametrize("how", ENDS)
async def test_web_page_shows_the_open_requests_and_answers_them(tmp_path: Path, how: str) -> None:
    async with (
        ended_process(tmp_path, how) as session,
        asyncio.timeout(TIMEOUT_SECONDS),
        open_site(tmp_path / "data") as site,
    ):
        assert "waiting for an answer" in await site.get("/")
        for remaining in (2, 1):
            page = await site.get(f"/s/{session}")
            choices = re.findall(r'name="choice" value="(\S+ allow)"', page)
            assert len(choices) == page.count('aria-label="The agent asks"') == 1
            assert ("1 of 2" in page) == (remaining == 2)
            await site.post(f"/s/{session}/answer", choice=choices[0])
        await wait_until_idle(site.hub, session)
        assert 'aria-label="The agent asks"' not in await site.get(f"/s/{session}")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that a person types in the terminal; at their end comes Ctrl-D."""
    lines: list[str] = []

    async def read_line(_: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop(0)

    monkeypatch.setattr(terminal_lines, "read_line", read_line)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    return lines


async def test_prompt_in_a_terminal_first_asks_for_the_open_requests(
    tmp_path: Path, typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    testbed = AcpTestbed(tmp_path)
    async with (
        ended_process(tmp_path, "close") as session,
        asyncio.timeout(TIMEOUT_SECONDS),
        testbed.hub() as hub,
    ):
        # Ctrl-D leaves the turn as it is, and sends no prompt.
        assert await run_turn(hub, LOCAL, session, "Next") == "requires_action"
        assert len((await hub.sessions.get(LOCAL, session)).open_asks) == 2
        assert await hub.turns.queued(LOCAL, session) == []
        capsys.readouterr()
        typed += ["y", "1"]
        assert await run_turn(hub, LOCAL, session, "Next") == "end_turn"
        lines = capsys.readouterr().out.splitlines()
        asked = [line for line in lines if line.startswith(("? ", "  1. "))]
        assert len(asked) == 4 and [line[0] for line in asked] == ["?", " ", "?", " "]
        assert lines.count("done") == 2  # of the turn that waited and of the new one


async def test_prompt_without_a_terminal_says_what_the_session_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    testbed = AcpTestbed(tmp_path)
    async with (
        ended_process(tmp_path, "close") as session,
        asyncio.timeout(TIMEOUT_SECONDS),
        testbed.hub() as hub,
    ):
        for choice in (None, "deny", "fail"):
            with pytest.raises(Busy, match=r"no prompt was sent.*--on-permission wait"):
                await run_turn(hub, LOCAL, session, "Next", choice)
            assert capsys.readouterr().err.count("Waiting for an answer: ") == 2
        assert await hub.turns.queued(LOCAL, session) == []
        turn = asyncio.create_task(run_turn(hub, LOCAL, session, "Next", "wait"))
        while not await hub.turns.queued(LOCAL, session):
            await asyncio.sleep(0.01)
        shown = capsys.readouterr().err
        assert shown.count("Waiting for an answer: ") == 2
        assert f"segue resume {session}" in shown
        for ask_id in (await hub.sessions.get(LOCAL, session)).open_asks:
            await hub.turns.answer(LOCAL, session, ask_id, "allow")
        assert await turn == "end_turn"


async def test_terminal_that_cannot_continue_the_turn_says_so_and_keeps_the_answers(
    tmp_path: Path, typed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_CHECK_SECONDS", 0.05)
    testbed = AcpTestbed(tmp_path)
    async with ended_process(tmp_path, "close") as session, asyncio.timeout(TIMEOUT_SECONDS):
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        typed += ["y", "y"]
        async with testbed.hub() as hub:
            with pytest.raises(
                NoAgent, match=f"ANTHROPIC_API_KEY.* `segue resume {session}` again"
            ):
                await run_turn(hub, LOCAL, session, "Next")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        async with testbed.hub() as hub:
            for ask_id in (await hub.sessions.get(LOCAL, session)).open_asks:
                with pytest.raises(NotFound):
                    await hub.turns.answer(LOCAL, session, ask_id, "reject")
                await hub.turns.answer(LOCAL, session, ask_id, "allow")
            await wait_until_idle(hub, session)


@pytest.mark.full
@pytest.mark.parametrize("how", ENDS)
async def test_command_line_shows_the_open_requests_and_answers_them(
    tmp_path: Path, how: str
) -> None:
    async with ended_process(tmp_path, how) as session, asyncio.timeout(TIMEOUT_SECONDS):
        shown = await in_terminal(tmp_path, "show", session, "--no-pager")
        assert shown.count("Waiting for an answer: ") == 2
        assert f"segue resume {session}" in shown
        typed = [("Your choice: ", "y\n"), ("Your choice: ", "y\n"), ("\n> ", "\x04")]
        shown = await in_terminal(tmp_path, "resume", session, typed=typed)
        assert "done" in shown


async def in_terminal(directory: Path, *words: str, typed: Sequence[tuple[str, str]] = ()) -> str:
    """Run `segue` in a terminal, type a line at each question, and return what it shows."""
    controller, terminal_fd = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", *words),
        env={**os.environ, "SEGUE_DATA_DIR": str(directory / "data")},
        stdin=terminal_fd,
        stdout=terminal_fd,
        stderr=terminal_fd,
    )
    os.close(terminal_fd)
    raw, output, rest = b"", "", list(typed)
    with os.fdopen(controller, "r+b", buffering=0) as terminal, suppress(OSError):
        while chunk := await asyncio.to_thread(terminal.read, 65536):
            raw += chunk  # it may end within a character or an escape sequence
            output = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", raw.decode(errors="ignore"))
            if rest and output.endswith(rest[0][0]):
                terminal.write(rest.pop(0)[1].encode())
    assert await process.wait() == 0, output
    return output

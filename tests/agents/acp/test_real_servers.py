"""segue uses the agents of other projects that serve ACP over a network, with a loopback model.

The programs are large, so the default tier skips these tests.
"""

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segue.acp.remote import url_of_account
from segue.model.principal import LOCAL
from tests.agents.acp.test_agent import message_texts, native_ids, open_session, opened_hub
from tests.interfaces.acp.network.served import TRANSPORTS
from tests.sources.real.programs import Home
from tests.sources.real.scripted_model import running_model, script
from tests.sources.real.tools import Goose, Qwen

pytestmark = pytest.mark.full

START_SECONDS = 60
GOOSE_SECRET = "a secret of the test"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def serving(home: Home, port: int, command: list[str]) -> Iterator[None]:
    """Run a server in the home until it is not needed any more."""
    process = subprocess.Popen(
        command,
        cwd=home.project,
        env=home.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    try:
        for _ in range(START_SECONDS * 10):
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, process.stdout and process.stdout.read()
            process.poll()
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        else:
            raise AssertionError("the server does not listen")
        yield
    finally:
        process.kill()
        process.communicate()


async def check_turns(tmp_path: Path, url: str, home: Home) -> None:
    """Run two turns in one session of an agent elsewhere, the second in a new process of ours."""
    session: str | None = None
    for number in (1, 2):
        async with opened_hub(tmp_path / "laptop") as hub, asyncio.timeout(120):
            account = url_of_account(url, os.environ)
            session, opened = await open_session(hub, account, home.project, session)
            prompt = script("Say it.", {"say": f"answer {number}"})
            assert await hub.turns.run(LOCAL, session, prompt, opened=opened) == "end_turn"
            assert len(await native_ids(hub, session)) == 1
            texts = await message_texts(hub, session)
            await opened.close()
    assert texts == ["answer 1", "answer 2"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_goose_serve_answers(
    tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, port = Home(tmp_path), free_port()
    with running_model() as model:
        goose = Goose(Goose.versions[0], home, model)
        home.environment["GOOSE_SERVER__SECRET_KEY"] = GOOSE_SECRET
        monkeypatch.setenv("SEGUE_ACP_HEADERS", f"X-Secret-Key: {GOOSE_SECRET}")
        command = [goose.command("")[0][0], "serve", "--port", str(port)]
        with serving(home, port, command):
            await check_turns(tmp_path, f"acp+{transport}://127.0.0.1:{port}/acp", home)


# It serves HTTP only.
async def test_qwen_serve_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, port = Home(tmp_path), free_port()
    with running_model() as model:
        qwen = Qwen(Qwen.versions[0], home, model)
        monkeypatch.setenv("SEGUE_ACP_TOKEN", GOOSE_SECRET)
        program = qwen.command("")[0][:2]
        options = ["--port", str(port), "--token", GOOSE_SECRET, "--no-web"]
        with serving(home, port, [*program, "serve", *options]):
            await check_turns(tmp_path, f"acp+http://127.0.0.1:{port}/acp", home)

"""Tests of the programs of a session: they end with it, and see no other session."""

import asyncio
import os
import secrets
from pathlib import Path

import pytest

from segue.agents.sandbox import launch
from segue.agents.sandbox.scratch import make_scratch_directory, scratch_parent
from segue.hub.access.config import SETTINGS
from segue.model.principal import LOCAL
from segue.model.session import Session

from .conftest import ModelSetup, bodies_of
from .provider import Use
from .test_model import REMOTE_CALLER

WAIT_SECONDS = 60


def is_running(token: str) -> bool:
    """Return whether a process has the token in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


async def start_daemon(setup: ModelSetup, session: Session) -> str:
    """Let the session's bash start a daemon; return the token in its command line."""
    token = secrets.token_hex(8)
    command = f"touch $TMPDIR/left; setsid bash -c 'sleep 600; true' {token} & sleep 0.2"
    setup.add_scripts([Use("bash", {"command": command})], ["done"])
    bodies = await setup.run_prompt("Go", session)
    assert bodies_of(bodies, "tool_result")[0].status == "completed"
    assert is_running(token) and (scratch_parent() / session.id).exists()
    return token


@pytest.mark.skipif(not os.path.exists("/proc/self/cmdline"), reason="there is no /proc")
async def test_a_purge_ends_the_sessions_programs_and_deletes_their_files(
    setup: ModelSetup,
) -> None:
    async with setup:
        session = await setup.session()
        token = await start_daemon(setup, session)
        await setup.hub.editor.purge(LOCAL, session.id)
        async with asyncio.timeout(WAIT_SECONDS):
            while is_running(token) or (scratch_parent() / session.id).exists():
                await asyncio.sleep(0.02)


@pytest.mark.skipif(not os.path.exists("/proc/self/cmdline"), reason="there is no /proc")
async def test_closing_a_session_ends_its_programs(setup: ModelSetup) -> None:
    async with setup:
        session = await setup.session()
        opened = await setup.hub.turns.open(LOCAL, session.id)
        token = await start_daemon(setup, session)
        await opened.close()
        assert not is_running(token)


async def test_a_purge_deletes_deep_trees_and_directories_without_permissions(
    setup: ModelSetup,
) -> None:
    async with setup:
        session = await setup.session()
        home = make_scratch_directory(session.id) / "home"
        (home / "closed" / "inner").mkdir(parents=True)
        (home / "closed").chmod(0)
        deep = os.open(home, os.O_RDONLY)
        for _ in range(1500):  # more than Python's recursion limit
            os.mkdir("d", dir_fd=deep)
            inner = os.open("d", os.O_RDONLY, dir_fd=deep)
            os.close(deep)
            deep = inner
        os.close(deep)
        await setup.hub.editor.purge(LOCAL, session.id)
        assert not (scratch_parent() / session.id).exists()


async def test_a_remote_callers_tools_do_not_see_the_data_directory_in_a_parent(
    setup: ModelSetup,
) -> None:
    if launch.backend(isolated=True) is None:
        pytest.skip("this machine has no strict sandbox")
    data = setup.hub.data_dir
    (data / "secret.key").write_text("HIDDEN")
    uses = [
        Use("bash", {"command": f"cat {data}/secret.key"}),
        Use("read", {"file_path": f"{data}/secret.key"}),
        Use("grep", {"pattern": "HIDDEN"}),
        Use("glob", {"pattern": "**/secret.*"}),
        Use("write", {"file_path": f"{data}/secret.key", "content": "x"}),
    ]
    async with setup:
        session = await setup.session(cwd=str(data.parent))
        setup.add_scripts(uses, ["done"])
        bodies = await setup.run_prompt("Look", session, principal=REMOTE_CALLER)
    results = bodies_of(bodies, "tool_result")
    assert len(results) == len(uses)
    for result in results:
        assert "HIDDEN" not in str(result.content).replace(f"{data}", "")
        assert result.status == "failed" or "matches" in str(result.content)
    assert (data / "secret.key").read_text() == "HIDDEN"


def test_each_limit_of_the_sandbox_is_a_setting_with_the_documented_default() -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    for name, default in launch.Limits()._asdict().items():
        assert f"; {default} if not set." in SETTINGS[f"sandbox.{name}"].description
        assert f"| `sandbox.{name}` | {default} |" in documentation


@pytest.mark.skipif(launch.backend(isolated=True) is None, reason="there is no strict sandbox")
async def test_a_setting_limits_the_programs_of_other_callers(setup: ModelSetup) -> None:
    async with setup:
        await setup.hub.config.set("local", "sandbox.open_files", "77")
        session = await setup.hub.editor.create(LOCAL)
        setup.add_scripts([Use("bash", {"command": "ulimit -n"})], ["done"])
        bodies = await setup.run_prompt("Go", session, principal=REMOTE_CALLER)
    assert bodies_of(bodies, "tool_result")[0].content[0].text == "77\n"

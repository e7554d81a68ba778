"""Clone repositories and mount files into a session's directory before a turn."""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from segue.hub.workdir.locks import lock_path
from segue.hub.workdir.staging import staging_path
from segue.model import ids
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with
from tests.interfaces.rest.mounted_memories import MountedMemories
from tests.interfaces.rest.test_files import upload_file


def install_slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a git that waits for a file `go` in the clone that it makes.

    In its sandbox, git sees no other directory. It ends if the directory is deleted.
    """
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    wait = 'while [ -d "$last" ] && [ ! -e "$last/go" ]; do sleep 0.02; done'
    program.write_text(f'#!/bin/sh\nfor last; do :; done\nmkdir "$last"\n{wait}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


async def wait_for_clone(api: Api, session: dict[str, Any]) -> Path:
    """Return the directory in which git makes a clone for a session, as soon as it exists."""
    staging = staging_path(api.directory(session))
    async with asyncio.timeout(60):
        while not (clones := list(staging.glob("*/clone"))):
            await asyncio.sleep(0.01)
    return clones[0]


async def session_with_repository(api: Api) -> dict[str, Any]:
    """Return the request body for a session with a repository."""
    return {
        "agent": await api.built_in("agents"),
        "environment_id": await api.built_in("environments"),
        "resources": [{"type": "github_repository", "url": "https://example.com/a/b"}],
    }


async def test_only_the_first_turn_waits_for_a_clone(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_slow_git(tmp_path, monkeypatch)
    async with open_api(
        tmp_path, clone=["https://"], agent_registry=registry_with(directory_agent)
    ) as api:
        session = await api.ok("POST", "/v1/sessions", await session_with_repository(api))
        id = ids.parse(session["id"]) or ""
        clone = api.directory(session) / "workspace/b"
        # A turn that is interrupted while it waits ends; the clone continues.
        (sent,) = (await api.send(session["id"], message("one")))["data"]
        await api.hub.turns.wait_started(api.principal, id, ids.parse(sent["id"]) or "")
        await api.send(session["id"], {"type": "user.interrupt"})
        assert (
            await api.hub.turns.wait(api.principal, id, ids.parse(sent["id"]) or "") == "cancelled"
        )
        assert not clone.exists()
        seen: list[bool] = []
        directory_agent.act = lambda cwd: seen.append((cwd / "workspace/b").is_dir())
        turn = asyncio.create_task(api.say(session["id"], "two"))
        await asyncio.sleep(0.05)
        assert not turn.done()
        ((await wait_for_clone(api, session)) / "go").touch()
        await turn
        assert seen == [True]


async def test_next_turn_makes_the_clone_that_a_dead_process_did_not_finish(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, clone=["file://"], agent_registry=registry_with(directory_agent)
    ) as api:
        resource = {"type": "github_repository", "url": f"file://{tmp_path}/nowhere"}
        session = await api.session(resources=[resource])
        count = len(await api.events(session["id"]))
        assert count == 1  # reported once, and not retried in each turn
        events = await api.say(session["id"], "continue")
        assert [event["type"] for event in events].count("session.error") == 1
        (file,) = (tmp_path / "work").glob("*.json")
        file.unlink()
        events = await api.say(session["id"], "continue")
        assert [event["type"] for event in events].count("session.error") == 2
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        assert list((tmp_path / "work").iterdir()) == []


async def test_file_is_mounted_once(tmp_path: Path, directory_agent: DirectoryAgent) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        file = await upload_file(api, b"one")
        first = {"type": "file", "file_id": file["id"], "mount_path": "/a"}
        session = await api.session(resources=[first])
        later = {**first, "mount_path": "/b"}
        await api.ok("POST", f"/v1/sessions/{session['id']}/resources", later)
        seen: list[str] = []

        def change(cwd: Path) -> None:
            for name in ("a", "b"):
                seen.append((cwd / name).read_text())
                (cwd / name).write_text("changed")

        directory_agent.act = change
        for _ in range(2):
            await api.say(session["id"], "continue")
        assert seen == ["one", "one", "changed", "changed"]


async def test_session_can_be_deleted_while_its_repository_is_cloned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_slow_git(tmp_path, monkeypatch)
    async with open_api(tmp_path / "data", clone=["https://"]) as api:
        body = await session_with_repository(api)
        session = await api.ok("POST", "/v1/sessions", body)
        await wait_for_clone(api, session)
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        await api.hub.workdirs.wait_mounted()
        assert not (tmp_path / "data/work" / f"{ids.parse(session['id'])}.json").exists()


async def test_turn_waits_for_a_directory_that_another_process_locked(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one")
        await memories.attach()
        other = os.open(lock_path(str(memories.top.parents[2])), os.O_RDWR | os.O_CREAT)
        fcntl.flock(other, fcntl.LOCK_EX)  # as another worker does while it clones
        turn = asyncio.create_task(memories.turn())
        await asyncio.sleep(0.2)
        assert not turn.done() and not memories.top.exists()
        os.close(other)
        await turn
        assert (memories.top / "a").read_text() == "one"

"""Prepare a session's directory before a turn and collect its changes: memories, skills, clones."""

import asyncio
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from segue.agents.registry import AgentRegistry
from segue.hub.resources.skills import unpack_archive
from segue.model import ids
from segue.model.record import Record
from tests.agents.provider import Provider, Use
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.directory_agent import Act, DirectoryAgent, registry_with
from tests.interfaces.rest.test_files import uploaded
from tests.interfaces.rest.test_skills import FILES, MAIN, form, skill


class MountedMemories:
    """A memory store, a session that mounts it, and the session's agent."""

    def __init__(self, api: Api, agent: DirectoryAgent) -> None:
        self.api = api
        self.agent = agent
        self.top = Path()

    async def open(self, **texts: str) -> "MountedMemories":
        store = await self.api.ok("POST", "/v1/memory_stores", {"name": "My notes!"})
        self.store = f"/v1/memory_stores/{store['id']}"
        for path, content in texts.items():
            await self.write(f"/{path}", content)
        self.resource = {"type": "memory_store", "memory_store_id": store["id"]}
        return self

    async def attach(self, **fields: Any) -> dict[str, Any]:
        session = await self.api.session(resources=[{**self.resource, **fields}])
        self.session = session["id"]
        assert session["resources"][0]["mount_path"] == "/mnt/memory/my-notes"
        self.top = Path(session["cwd"]) / "mnt/memory/my-notes"
        return session

    async def write(self, path: str, content: str) -> dict[str, Any]:
        body = {"path": path, "content": content}
        for memory in await self.fetch_all():
            if memory["path"] == path:
                return await self.api.ok("POST", f"{self.store}/memories/{memory['id']}", body)
        return await self.api.ok("POST", f"{self.store}/memories", body)

    async def fetch_all(self) -> list[dict[str, Any]]:
        return (await self.api.ok("GET", f"{self.store}/memories", view="full"))["data"]

    async def texts(self) -> dict[str, str]:
        return {memory["path"]: memory["content"] for memory in await self.fetch_all()}

    async def turn(self, act: Act = lambda _: None) -> list[dict[str, Any]]:
        self.agent.act = lambda cwd: act(cwd / "mnt/memory/my-notes")
        return await self.api.say(self.session, "continue")

    async def errors(self, act: Act = lambda _: None) -> list[str]:
        before = len(await self.api.events(self.session))
        events = (await self.turn(act))[before:]
        return [event["error"]["message"] for event in events if event["type"] == "session.error"]


async def test_memories_are_mounted_as_files_and_changes_are_stored(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one", gone="x")
        await memories.write("/deep/down/b.md", "two")
        session = await memories.attach()
        seen: dict[str, str] = {}

        def read_and_change(top: Path) -> None:
            files = [path for path in top.rglob("*") if path.is_file()]
            seen.update({str(file.relative_to(top)): file.read_text() for file in files})
            (top / "a").write_text("one more")
            (top / "deep/new.md").write_text("three")
            (top / "gone").unlink()

        assert await memories.errors(read_and_change) == []
        assert seen == {"a": "one", "gone": "x", "deep/down/b.md": "two"}
        expected = {"/a": "one more", "/deep/down/b.md": "two", "/deep/new.md": "three"}
        assert await memories.texts() == expected
        path = f"{memories.store}/memory_versions"
        versions = (await api.ok("GET", path, session_id=session["id"]))["data"]
        assert sorted(version["operation"] for version in versions) == [
            "created",
            "deleted",
            "modified",
        ]
        actor = {"type": "session_actor", "session_id": session["id"]}
        assert all(version["created_by"] == actor for version in versions)
        assert len((await api.ok("GET", path, session_id="sesn_x"))["data"]) == 0
        # A turn without changes writes no version.
        await memories.turn()
        assert len((await api.ok("GET", path, session_id=session["id"]))["data"]) == 3
        # The next turn sees changes by other clients.
        await memories.write("/a", "by a key")
        await memories.turn(lambda top: seen.update(now=(top / "a").read_text()))
        assert seen["now"] == "by a key"
        await api.ok("DELETE", f"{memories.store}/memories/{(await memories.fetch_all())[1]['id']}")
        await memories.turn()
        assert not (memories.top / "deep/down").exists() and (memories.top / "deep/new.md").exists()


async def test_changes_of_a_fork_are_stored_too(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one", gone="x")
        session = await memories.attach()
        await memories.turn()
        forks = [await api.hub.editor.fork(api.principal, ids.parse(session["id"]) or "")]
        forks.append(await api.hub.editor.fork(api.principal, forks[0].id))  # a fork of the fork
        for number, fork in enumerate(forks):
            await memories.write("/a", f"by a key {number}")
            memories.session = ids.format_id("sesn", fork.id)
            seen: list[str] = []

            def work(top: Path, seen: list[str] = seen, number: int = number) -> None:
                seen.append((top / "a").read_text())
                (top / f"new{number}").write_text("three")
                (top / "gone").unlink(missing_ok=True)

            assert await memories.errors(work) == []
            assert seen == [f"by a key {number}"]
            path = f"{memories.store}/memory_versions"
            versions = (await api.ok("GET", path, session_id=memories.session))["data"]
            expected = [["created", "deleted"], ["created"]][number]
            assert sorted(version["operation"] for version in versions) == expected
        # All of them share the directory and its state file.
        memories.session = session["id"]
        await memories.turn()
        assert await memories.texts() == {"/a": "by a key 1", "/new0": "three", "/new1": "three"}
        versions = (await api.ok("GET", path, session_id=session["id"]))["data"]
        assert versions == []
        assert len(list(tmp_path.glob("work/*.json"))) == 1


async def test_concurrent_changes_of_files_and_memories_are_both_stored(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one", b="one", c="one")
        await memories.attach()
        await memories.turn()
        # As after a turn whose process was killed before it collected the changes.
        (memories.top / "a").write_text("by the agent")
        (memories.top / "b").unlink()
        (memories.top / "c").write_text("by the agent")
        await memories.write("/a", "by a client")
        await memories.write("/b", "by a client")
        (deleted,) = [memory for memory in await memories.fetch_all() if memory["path"] == "/c"]
        await api.ok("DELETE", f"{memories.store}/memories/{deleted['id']}")
        assert await memories.errors() == []
        assert await memories.texts() == {
            "/a": "by the agent",
            "/b": "by a client",
            "/c": "by the agent",
        }
        assert (memories.top / "b").read_text() == "by a client"
        path = f"{memories.store}/memory_versions"
        versions = (await api.ok("GET", path, view="full"))["data"]
        contents = [version["content"] for version in versions]
        assert contents.count("by a client") == 2


@pytest.mark.parametrize("lost", ["the directory", "the state file"])
async def test_missing_directory_or_state_file_deletes_no_memories(
    tmp_path: Path, directory_agent: DirectoryAgent, lost: str
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one", b="two")
        await memories.attach()
        await memories.turn()
        (memories.top / "b").unlink()
        if lost == "the directory":
            (memories.top / "a").unlink()
            memories.top.rmdir()
        else:
            (file,) = (tmp_path / "work").glob("*.json")
            file.write_text("{")
        await memories.turn()
        assert await memories.texts() == {"/a": "one", "/b": "two"}
        assert (memories.top / "b").read_text() == "two"


async def test_read_only_memory_store_is_not_changed(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one", b="two")
        await memories.attach(access="read_only")

        def write(top: Path) -> None:
            assert not (top / "a").stat().st_mode & 0o222
            (top / "a").unlink()
            (top / "b").unlink()
            (top / "b").write_text("by the agent")
            (top / "own").write_text("by the agent")

        await memories.turn(write)
        assert await memories.texts() == {"/a": "one", "/b": "two"}
        await memories.turn()
        assert (memories.top / "a").read_text() == "one" and (
            memories.top / "b"
        ).read_text() == "two"
        assert (memories.top / "own").read_text() == "by the agent"


async def test_file_that_cannot_be_a_memory_is_reported_once_and_stays(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open()
        await memories.attach()

        def write(top: Path) -> None:
            (top / "bytes").write_bytes(b"\xff\xfe")
            (top / "long").write_text("x" * 102_401)
            (top / "a\u0301").write_text("not in form C")
            os.mkfifo(top / "pipe")

        errors = await memories.errors(write)
        assert len(errors) == 4
        assert all(error.startswith("/mnt/memory/my-notes/") for error in errors)
        assert await memories.errors() == []
        assert await memories.texts() == {} and (memories.top / "bytes").exists()


async def test_file_name_that_is_not_utf8_is_reported_once_and_the_turn_ends(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one")
        await memories.attach()

        def write(top: Path) -> None:
            (top / os.fsdecode(b"caf\xe9")).write_text("x")
            (top / "a").write_text("two")

        errors = await memories.errors(write)
        assert errors == ["/mnt/memory/my-notes/caf\\xe9: its name is not UTF-8"]
        assert await memories.errors() == []
        assert await memories.texts() == {"/a": "two"}


async def test_turn_ends_if_its_outputs_cannot_be_collected(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_error(*_: object) -> None:
        raise RuntimeError("broken")

    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open()
        await memories.attach()
        monkeypatch.setattr(api.hub.outputs, "collect", raise_error)
        (error,) = await memories.errors()
        assert error == "the files of the turn could not be collected: RuntimeError: broken"
        assert (await api.ok("GET", f"/v1/sessions/{memories.session}"))["status"] == "idle"


async def test_memory_whose_file_cannot_be_read_is_not_deleted(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("S3CRET")
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(link="1", twice="2", split="3")
        await memories.write("/deep/way", "4")
        await memories.write("/deep/flat/x", "5")
        await memories.attach()

        def hide(top: Path) -> None:
            (top / "link").unlink()
            (top / "link").symlink_to("twice")
            (top / "deep").rename(top.parent / "moved")
            (top / "deep").symlink_to("../moved")
            os.link(top / "twice", top.parent / "another")
            os.link(outside, top / "hard")

        errors = await memories.errors(hide)
        mount_path = "/mnt/memory/my-notes"
        assert [error.split(":")[0].removeprefix(mount_path) for error in errors] == [
            *("/deep/flat/x", "/deep/way", "/hard", "/link", "/twice"),
        ]
        expected = {
            "/link": "1",
            "/twice": "2",
            "/split": "3",
            "/deep/way": "4",
            "/deep/flat/x": "5",
        }
        assert await memories.texts() == expected

        def tidy(top: Path) -> None:
            for name in ("link", "deep", "hard", "split"):
                (top / name).unlink()
            (top.parent / "another").unlink()
            (top / "split").mkdir()
            (top / "split/half").write_text("3a")
            (top / "deep").write_text("flat now")

        assert await memories.errors(tidy) == []
        assert await memories.texts() == {"/twice": "2", "/split/half": "3a", "/deep": "flat now"}


async def test_links_are_not_followed_out_of_the_session_directory(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("S3CRET")
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one")
        await memories.attach()

        def link(top: Path) -> None:
            (top / "secret").symlink_to(outside / "secret")
            (top / "way").symlink_to(outside)

        await memories.turn(link)
        assert await memories.texts() == {"/a": "one"}
        await memories.write("/way/b", "x")
        assert await memories.errors() == [
            "/mnt/memory/my-notes/way/b: a symbolic link is at this path or above it"
        ]

        def swap(top: Path) -> None:
            top.rename(top.with_name("kept"))
            top.symlink_to(outside)

        await memories.turn(swap)
        await memories.turn()
        assert sorted(path.name for path in outside.iterdir()) == ["secret"]
        assert "S3CRET" not in str(await memories.texts())


async def test_memory_store_is_listed_once_for_all_new_memories_of_a_turn(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.hub.resources.memories.MAX_MEMORIES", 60)
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one", b="two")
        await memories.attach()
        await memories.turn()
        rows: list[int] = []
        list_records = api.hub.store.records

        async def list_and_count(workspace: str, kind: str, **options: Any) -> list[Record]:
            records = await list_records(workspace, kind, **options)
            rows.append(len(records))
            return records

        def write(top: Path) -> None:
            (top / "a").unlink()
            for number in range(60):
                (top / f"n{number:02}").write_text("x")

        monkeypatch.setattr(api.hub.store, "records", list_and_count)
        errors = await memories.errors(write)
        assert sum(rows) < 20
        assert errors == ["/mnt/memory/my-notes/n59: a memory store holds at most 60 memories"]


async def test_memory_stores_with_the_same_name_have_separate_directories(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        stores = [await api.ok("POST", "/v1/memory_stores", {"name": "m"}) for _ in range(3)]
        resources = [{"type": "memory_store", "memory_store_id": store["id"]} for store in stores]
        session = await api.session(resources=resources)
        paths = [resource["mount_path"] for resource in session["resources"]]
        assert paths == ["/mnt/memory/m", "/mnt/memory/m-2", "/mnt/memory/m-3"]


async def test_skills_of_the_agent_are_installed_in_the_directory(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    specs: list[Any] = []

    def build(spec: Any) -> DirectoryAgent:
        specs.append(spec)
        return directory_agent

    async with open_api(tmp_path, agent_registry=AgentRegistry({"default": build})) as api:
        created = await skill(api)
        agent = await api.agent(skills=[{"type": "custom", "skill_id": created["id"]}])
        session = await api.session(agent=agent["id"])
        await api.say(session["id"], "continue")
        directory = Path(session["cwd"]) / "skills/greeting"
        for path, data in FILES.items():
            assert (directory.parent / path).read_bytes() == data
        assert os.access(directory / "scripts/run.sh", os.X_OK)
        (installed,) = specs[-1]["skills"]
        assert (installed["name"], installed["description"]) == ("greeting", "Says ahoy.")
        assert installed["path"] == str(directory / "SKILL.md") and installed["text"] is None
        (directory / "SKILL.md").write_text("the agent's own words")
        await api.say(session["id"], "continue")
        assert (directory / "SKILL.md").read_text() == "the agent's own words"
        # No files are written in a directory of the user's.
        ref = (await api.hub.sessions.get(api.principal, ids.parse(session["id"]) or "")).agent
        user_session = await api.hub.editor.create(
            api.principal, cwd=str(tmp_path / "theirs"), agent=ref
        )
        await api.say(ids.format_id("sesn", user_session.id), "continue")
        (installed,) = specs[-1]["skills"]
        assert installed["path"] is None and installed["text"].startswith("---\nname: greeting")


async def test_skills_with_the_same_name_have_separate_directories(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        texts = [MAIN + b"One.", MAIN + b"Another."]
        skills = [await skill(api, {"greeting/SKILL.md": text}) for text in texts]
        refs = [{"type": "custom", "skill_id": skill["id"], "version": "1"} for skill in skills]
        session = await api.hub.sessions.get(
            api.principal, ids.parse((await api.session())["id"]) or ""
        )
        for _ in range(2):
            installed = await api.hub.workdirs.install_skills(session, refs)
            paths = [Path(skill["path"]) for skill in installed]
            assert [path.read_bytes() for path in paths] == texts
            assert [path.parent.name for path in paths] == ["greeting", "greeting-2"]


async def test_files_that_a_newer_skill_version_lacks_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def unpack_and_record(data: bytes) -> dict[str, bytes]:
        threads.append(threading.current_thread())
        return unpack_archive(data)

    async with open_api(tmp_path) as api:
        files = {**FILES, "greeting/a/b.txt": b"1", "greeting/link": b"1"}
        created = await skill(api, files)
        path = f"/v1/skills/{created['id']}/versions"
        assert (await api.call("POST", path, files=form({"greeting/SKILL.md": MAIN})))[0] == 200
        session = await api.hub.sessions.get(
            api.principal, ids.parse((await api.session())["id"]) or ""
        )
        top = Path(session.cwd) / "skills/greeting"
        ref = {"type": "custom", "skill_id": created["id"]}
        monkeypatch.setattr("segue.hub.resources.skills.unpack_archive", unpack_and_record)
        await api.hub.workdirs.install_skills(session, [{**ref, "version": "1"}])
        assert (top / "scripts/run.sh").exists() and (top / "a/b.txt").exists()
        # Files that are not the skill's stay.
        (top / "scripts/own").write_text("x")
        (top / "link").unlink()
        (top / "link").symlink_to("scripts/own")
        await api.hub.workdirs.install_skills(session, [{**ref, "version": "2"}])
        paths = sorted(str(path.relative_to(top)) for path in top.rglob("*"))
        assert paths == ["SKILL.md", "scripts", "scripts/own"]
        # Archives are unpacked in other threads.
        assert len(threads) == 2 and threading.main_thread() not in threads


async def test_system_prompt_names_skills_memories_and_outputs(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        memories = await MountedMemories(api, DirectoryAgent()).open(a="one")
        created = await skill(api)
        agent = await api.agent(
            skills=[{"type": "custom", "skill_id": created["id"]}],
            tools=[{"type": "agent_toolset_20260401"}],
        )
        resource = {**memories.resource, "instructions": "Be brief."}
        session = await api.session(agent=agent["id"], resources=[resource])
        model.scripts += [
            [Use("read", {"file_path": "skills/greeting/SKILL.md"})],
            [Use("write", {"file_path": "mnt/memory/my-notes/b", "content": "learned"})],
            [Use("write", {"file_path": "/mnt/session/outputs/report", "content": "done"})],
            [Use("read", {"file_path": "/mnt/memory/my-notes/b"})],
            [Use("glob", {"pattern": "*", "path": "/mnt/session"})],
        ]
        events = await api.say(session["id"], "Go")
        assert not any(event.get("is_error") for event in events)
        assert await memories.texts() == {"/a": "one", "/b": "learned"}
        system = str(model.requests[0]["system"])
        assert f"{session['cwd']}/skills/greeting/SKILL.md" in system and "Says ahoy." in system
        assert f"{session['cwd']}/mnt/memory/my-notes" in system and "Be brief." in system
        assert "Say ahoy." in str(model.requests[1]["messages"])
        assert f"{session['cwd']}/mnt/session/outputs" in system
        assert "/mnt, /uploads, /workspace. The file tools" in system
        (output,) = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert (output["filename"], output["size_bytes"]) == ("report", 4)


def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a git that waits for the returned file before it clones."""
    go, program = tmp_path / "go", tmp_path / "bin" / "git"
    program.parent.mkdir()
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done"
    program.write_text(f'#!/bin/sh\n{wait}\nfor last; do :; done\nmkdir "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return go


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
    go = slow_git(tmp_path, monkeypatch)
    async with open_api(
        tmp_path, clone=["https://"], agent_registry=registry_with(directory_agent)
    ) as api:
        session = await api.ok("POST", "/v1/sessions", await session_with_repository(api))
        id = ids.parse(session["id"]) or ""
        clone = Path(session["cwd"]) / "workspace/b"
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
        go.touch()
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
        file = await uploaded(api, b"one")
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
    go = slow_git(tmp_path, monkeypatch)
    async with open_api(tmp_path / "data", clone=["https://"]) as api:
        body = await session_with_repository(api)
        session = await api.ok("POST", "/v1/sessions", body)
        await asyncio.sleep(0.05)
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        go.touch()
        await api.hub.workdirs.wait_mounted()
        assert not (tmp_path / "data/work" / f"{ids.parse(session['id'])}.json").exists()


async def test_turn_waits_for_a_directory_that_another_process_locked(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one")
        await memories.attach()
        other = os.open(memories.top.parents[2], os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)  # as another worker does while it clones
        turn = asyncio.create_task(memories.turn())
        await asyncio.sleep(0.2)
        assert not turn.done() and not memories.top.exists()
        os.close(other)
        await turn
        assert (memories.top / "a").read_text() == "one"

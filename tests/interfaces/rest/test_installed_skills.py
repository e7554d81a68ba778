"""Skills are installed in a session's directory and named in the system prompt."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from segue.agents.registry import AgentRegistry
from segue.hub.resources.skills import unpack_archive
from segue.model import ids
from tests.agents.provider import Provider, Use
from tests.interfaces.rest.api import open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent
from tests.interfaces.rest.mounted_memories import MountedMemories
from tests.interfaces.rest.test_skills import FILES, MAIN, form, skill


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
        directory = api.directory(session) / "skills/greeting"
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
        cwd = api.directory(session)
        assert f"{cwd}/skills/greeting/SKILL.md" in system and "Says ahoy." in system
        assert f"{cwd}/mnt/memory/my-notes" in system and "Be brief." in system
        assert "Say ahoy." in str(model.requests[1]["messages"])
        assert f"{cwd}/mnt/session/outputs" in system
        assert "/mnt, /uploads, /workspace. The file tools" in system
        (output,) = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert (output["filename"], output["size_bytes"]) == ("report", 4)

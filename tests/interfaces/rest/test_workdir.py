"""A session's directory around a turn: memories as files, skills, clones that nobody waits for."""

import asyncio
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from segue.agents.registry import AgentRegistry
from segue.hub.resources.skills import unpacked
from segue.model import ids
from segue.model.record import Record
from tests.agents.provider import Provider, Use
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.hand import Act, Hand, registry_with
from tests.interfaces.rest.test_files import uploaded
from tests.interfaces.rest.test_skills import FILES, MAIN, form, skill


class Notes:
    """A memory store, a session that has it, and a hand in its directory."""

    def __init__(self, api: Api, hand: Hand) -> None:
        self.api = api
        self.hand = hand
        self.top = Path()

    async def open(self, **texts: str) -> "Notes":
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
        for memory in await self.listed():
            if memory["path"] == path:
                return await self.api.ok("POST", f"{self.store}/memories/{memory['id']}", body)
        return await self.api.ok("POST", f"{self.store}/memories", body)

    async def listed(self) -> list[dict[str, Any]]:
        return (await self.api.ok("GET", f"{self.store}/memories", view="full"))["data"]

    async def texts(self) -> dict[str, str]:
        return {each["path"]: each["content"] for each in await self.listed()}

    async def turn(self, act: Act = lambda _: None) -> list[dict[str, Any]]:
        self.hand.act = lambda cwd: act(cwd / "mnt/memory/my-notes")
        return await self.api.say(self.session, "on")

    async def errors(self, act: Act = lambda _: None) -> list[str]:
        before = len(await self.api.events(self.session))
        told = (await self.turn(act))[before:]
        return [each["error"]["message"] for each in told if each["type"] == "session.error"]


async def test_memories_are_files_and_what_changes_in_them_is_kept(
    tmp_path: Path, hand: Hand
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one", gone="x")
        await notes.write("/deep/down/b.md", "two")
        session = await notes.attach()
        seen: dict[str, str] = {}

        def look(top: Path) -> None:
            found = [each for each in top.rglob("*") if each.is_file()]
            seen.update({str(each.relative_to(top)): each.read_text() for each in found})
            (top / "a").write_text("one more")
            (top / "deep/new.md").write_text("three")
            (top / "gone").unlink()

        assert await notes.errors(look) == []
        assert seen == {"a": "one", "gone": "x", "deep/down/b.md": "two"}
        expected = {"/a": "one more", "/deep/down/b.md": "two", "/deep/new.md": "three"}
        assert await notes.texts() == expected
        path = f"{notes.store}/memory_versions"
        made = (await api.ok("GET", path, session_id=session["id"]))["data"]
        assert sorted(each["operation"] for each in made) == ["created", "deleted", "modified"]
        actor = {"type": "session_actor", "session_id": session["id"]}
        assert all(each["created_by"] == actor for each in made)
        assert len((await api.ok("GET", path, session_id="sesn_x"))["data"]) == 0
        # Nothing changes, nothing is written.
        await notes.turn()
        assert len((await api.ok("GET", path, session_id=session["id"]))["data"]) == 3
        # What others change is there in the next turn.
        await notes.write("/a", "by a key")
        await notes.turn(lambda top: seen.update(now=(top / "a").read_text()))
        assert seen["now"] == "by a key"
        await api.ok("DELETE", f"{notes.store}/memories/{(await notes.listed())[1]['id']}")
        await notes.turn()
        assert not (notes.top / "deep/down").exists() and (notes.top / "deep/new.md").exists()


async def test_a_fork_s_turns_keep_what_they_change_in_memories_too(
    tmp_path: Path, hand: Hand
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one", gone="x")
        session = await notes.attach()
        await notes.turn()
        forks = [await api.hub.editor.fork(api.principal, ids.parse(session["id"]) or "")]
        forks.append(await api.hub.editor.fork(api.principal, forks[0].id))  # and one of that
        for number, fork in enumerate(forks):
            await notes.write("/a", f"by a key {number}")
            notes.session = ids.format_id("sesn", fork.id)
            seen: list[str] = []

            def work(top: Path, seen: list[str] = seen, number: int = number) -> None:
                seen.append((top / "a").read_text())
                (top / f"new{number}").write_text("three")
                (top / "gone").unlink(missing_ok=True)

            assert await notes.errors(work) == []
            assert seen == [f"by a key {number}"]
            path = f"{notes.store}/memory_versions"
            made = (await api.ok("GET", path, session_id=notes.session))["data"]
            expected = [["created", "deleted"], ["created"]][number]
            assert sorted(each["operation"] for each in made) == expected
        # All of them have the directory in common, and what was done in it.
        notes.session = session["id"]
        await notes.turn()
        assert await notes.texts() == {"/a": "by a key 1", "/new0": "three", "/new1": "three"}
        made = (await api.ok("GET", path, session_id=session["id"]))["data"]
        assert made == []
        assert len(list(tmp_path.glob("work/*.json"))) == 1


async def test_what_both_sides_change_is_lost_on_neither(tmp_path: Path, hand: Hand) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one", b="one", c="one")
        await notes.attach()
        await notes.turn()
        # As after a turn whose process was killed: changed here, and nobody took it back.
        (notes.top / "a").write_text("here")
        (notes.top / "b").unlink()
        (notes.top / "c").write_text("here")
        await notes.write("/a", "there")
        await notes.write("/b", "there")
        (gone,) = [each for each in await notes.listed() if each["path"] == "/c"]
        await api.ok("DELETE", f"{notes.store}/memories/{gone['id']}")
        assert await notes.errors() == []
        assert await notes.texts() == {"/a": "here", "/b": "there", "/c": "here"}
        assert (notes.top / "b").read_text() == "there"
        path = f"{notes.store}/memory_versions"
        contents = [e["content"] for e in (await api.ok("GET", path, view="full"))["data"]]
        assert contents.count("there") == 2


@pytest.mark.parametrize("lost", ["the directory", "the record"])
async def test_what_is_taken_away_whole_is_no_wish_to_forget(
    tmp_path: Path, hand: Hand, lost: str
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one", b="two")
        await notes.attach()
        await notes.turn()
        (notes.top / "b").unlink()
        if lost == "the directory":
            (notes.top / "a").unlink()
            notes.top.rmdir()
        else:
            (file,) = (tmp_path / "work").glob("*.json")
            file.write_text("{")
        await notes.turn()
        assert await notes.texts() == {"/a": "one", "/b": "two"}
        assert (notes.top / "b").read_text() == "two"


async def test_a_store_that_may_only_be_read_is_not_written(tmp_path: Path, hand: Hand) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one", b="two")
        await notes.attach(access="read_only")

        def write(top: Path) -> None:
            assert not (top / "a").stat().st_mode & 0o222
            (top / "a").unlink()
            (top / "b").unlink()
            (top / "b").write_text("mine")
            (top / "own").write_text("mine")

        await notes.turn(write)
        assert await notes.texts() == {"/a": "one", "/b": "two"}
        await notes.turn()
        assert (notes.top / "a").read_text() == "one" and (notes.top / "b").read_text() == "two"
        assert (notes.top / "own").read_text() == "mine"  # it is nobody's to delete


async def test_what_cannot_be_a_memory_is_told_once_and_stays(tmp_path: Path, hand: Hand) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open()
        await notes.attach()

        def write(top: Path) -> None:
            (top / "bytes").write_bytes(b"\xff\xfe")
            (top / "long").write_text("x" * 102_401)
            (top / "a\u0301").write_text("not in form C")
            os.mkfifo(top / "pipe")

        told = await notes.errors(write)
        assert len(told) == 4 and all(each.startswith("/mnt/memory/my-notes/") for each in told)
        assert await notes.errors() == []
        assert await notes.texts() == {} and (notes.top / "bytes").exists()


async def test_a_name_that_is_no_text_is_told_once_and_the_turn_ends(
    tmp_path: Path, hand: Hand
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one")
        await notes.attach()

        def write(top: Path) -> None:
            (top / os.fsdecode(b"caf\xe9")).write_text("x")
            (top / "a").write_text("two")

        told = await notes.errors(write)
        assert told == ["/mnt/memory/my-notes/caf\\xe9: its name is not UTF-8"]
        assert await notes.errors() == []
        assert await notes.texts() == {"/a": "two"}


async def test_a_turn_ends_whatever_becomes_of_what_it_made(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("no such luck")

    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open()
        await notes.attach()
        monkeypatch.setattr(api.hub.outputs, "collect", broken)
        (told,) = await notes.errors()
        assert told == "what the turn made could not be kept: RuntimeError: no such luck"
        assert (await api.ok("GET", f"/v1/sessions/{notes.session}"))["status"] == "idle"


async def test_what_is_there_and_cannot_be_read_is_not_forgotten(
    tmp_path: Path, hand: Hand
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("S3CRET")
    async with open_api(tmp_path / "data", agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(link="1", twice="2", split="3")
        await notes.write("/deep/way", "4")
        await notes.write("/deep/flat/x", "5")
        await notes.attach()

        def hide(top: Path) -> None:
            (top / "link").unlink()
            (top / "link").symlink_to("twice")
            (top / "deep").rename(top.parent / "moved")
            (top / "deep").symlink_to("../moved")
            os.link(top / "twice", top.parent / "another")
            os.link(outside, top / "hard")

        told = await notes.errors(hide)
        where = "/mnt/memory/my-notes"
        assert [each.split(":")[0].removeprefix(where) for each in told] == [
            *("/deep/flat/x", "/deep/way", "/hard", "/link", "/twice"),
        ]
        kept = {"/link": "1", "/twice": "2", "/split": "3", "/deep/way": "4", "/deep/flat/x": "5"}
        assert await notes.texts() == kept

        def tidy(top: Path) -> None:
            for name in ("link", "deep", "hard", "split"):
                (top / name).unlink()
            (top.parent / "another").unlink()
            (top / "split").mkdir()
            (top / "split/half").write_text("3a")
            (top / "deep").write_text("flat now")

        assert await notes.errors(tidy) == []
        assert await notes.texts() == {"/twice": "2", "/split/half": "3a", "/deep": "flat now"}


async def test_no_link_leads_out_of_the_session_s_directory(tmp_path: Path, hand: Hand) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("S3CRET")
    async with open_api(tmp_path / "data", agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one")
        await notes.attach()

        def link(top: Path) -> None:
            (top / "secret").symlink_to(outside / "secret")
            (top / "way").symlink_to(outside)

        await notes.turn(link)
        assert await notes.texts() == {"/a": "one"}
        await notes.write("/way/b", "x")
        assert await notes.errors() == [
            "/mnt/memory/my-notes/way/b: a symbolic link is at this path or above it"
        ]

        def swap(top: Path) -> None:
            top.rename(top.with_name("kept"))
            top.symlink_to(outside)

        await notes.turn(swap)
        await notes.turn()
        assert sorted(each.name for each in outside.iterdir()) == ["secret"]
        assert "S3CRET" not in str(await notes.texts())


async def test_a_store_is_not_read_anew_for_each_memory_that_a_turn_made(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.hub.resources.memories.MOST", 60)
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one", b="two")
        await notes.attach()
        await notes.turn()
        rows: list[int] = []
        listed = api.hub.store.records

        async def counted(workspace: str, kind: str, **options: Any) -> list[Record]:
            found = await listed(workspace, kind, **options)
            rows.append(len(found))
            return found

        def write(top: Path) -> None:
            (top / "a").unlink()
            for number in range(60):
                (top / f"n{number:02}").write_text("x")

        monkeypatch.setattr(api.hub.store, "records", counted)
        told = await notes.errors(write)
        assert sum(rows) < 20
        assert told == ["/mnt/memory/my-notes/n59: a memory store holds at most 60 memories"]


async def test_two_stores_of_one_name_have_a_directory_each(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        stores = [await api.ok("POST", "/v1/memory_stores", {"name": "m"}) for _ in range(3)]
        given = [{"type": "memory_store", "memory_store_id": each["id"]} for each in stores]
        session = await api.session(resources=given)
        places = [each["mount_path"] for each in session["resources"]]
        assert places == ["/mnt/memory/m", "/mnt/memory/m-2", "/mnt/memory/m-3"]


async def test_an_agent_s_skills_are_in_the_directory(tmp_path: Path, hand: Hand) -> None:
    specs: list[Any] = []

    def build(spec: Any) -> Hand:
        specs.append(spec)
        return hand

    async with open_api(tmp_path, agent_registry=AgentRegistry({"default": build})) as api:
        made = await skill(api)
        agent = await api.agent(skills=[{"type": "custom", "skill_id": made["id"]}])
        session = await api.session(agent=agent["id"])
        await api.say(session["id"], "on")
        place = Path(session["cwd"]) / "skills/greeting"
        for path, data in FILES.items():
            assert (place.parent / path).read_bytes() == data
        assert os.access(place / "scripts/run.sh", os.X_OK)
        (known,) = specs[-1]["skills"]
        assert (known["name"], known["description"]) == ("greeting", "Says ahoy.")
        assert known["path"] == str(place / "SKILL.md") and known["text"] is None
        (place / "SKILL.md").write_text("the agent's own words")
        await api.say(session["id"], "on")
        assert (place / "SKILL.md").read_text() == "the agent's own words"
        # In a directory of the user's nothing is written.
        ref = (await api.hub.sessions.get(api.principal, ids.parse(session["id"]) or "")).agent
        theirs = await api.hub.editor.create(api.principal, cwd=str(tmp_path / "theirs"), agent=ref)
        await api.say(ids.format_id("sesn", theirs.id), "on")
        (known,) = specs[-1]["skills"]
        assert known["path"] is None and known["text"].startswith("---\nname: greeting")


async def test_skills_of_one_name_have_a_directory_each(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        texts = [MAIN + b"One.", MAIN + b"Another."]
        skills = [await skill(api, {"greeting/SKILL.md": text}) for text in texts]
        named = [{"type": "custom", "skill_id": each["id"], "version": "1"} for each in skills]
        session = await api.hub.sessions.get(
            api.principal, ids.parse((await api.session())["id"]) or ""
        )
        for _ in range(2):
            known = await api.hub.workdirs.install_skills(session, named)
            places = [Path(each["path"]) for each in known]
            assert [each.read_bytes() for each in places] == texts
            assert [each.parent.name for each in places] == ["greeting", "greeting-2"]


async def test_what_a_skill_s_newer_version_dropped_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(data: bytes) -> dict[str, bytes]:
        threads.append(threading.current_thread())
        return unpacked(data)

    async with open_api(tmp_path) as api:
        kept = {**FILES, "greeting/a/b.txt": b"1", "greeting/link": b"1"}
        made = await skill(api, kept)
        path = f"/v1/skills/{made['id']}/versions"
        assert (await api.call("POST", path, files=form({"greeting/SKILL.md": MAIN})))[0] == 200
        session = await api.hub.sessions.get(
            api.principal, ids.parse((await api.session())["id"]) or ""
        )
        top = Path(session.cwd) / "skills/greeting"
        ref = {"type": "custom", "skill_id": made["id"]}
        monkeypatch.setattr("segue.hub.resources.skills.unpacked", noted)
        await api.hub.workdirs.install_skills(session, [{**ref, "version": "1"}])
        assert (top / "scripts/run.sh").exists() and (top / "a/b.txt").exists()
        # What is not the skill's own stays.
        (top / "scripts/mine").write_text("x")
        (top / "link").unlink()
        (top / "link").symlink_to("scripts/mine")
        await api.hub.workdirs.install_skills(session, [{**ref, "version": "2"}])
        files = sorted(str(each.relative_to(top)) for each in top.rglob("*"))
        assert files == ["SKILL.md", "scripts", "scripts/mine"]
        # Archives are unpacked where nobody waits for it.
        assert len(threads) == 2 and threading.main_thread() not in threads


async def test_a_model_is_told_of_both_and_works_with_them(tmp_path: Path, model: Provider) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        notes = await Notes(api, Hand()).open(a="one")
        made = await skill(api)
        agent = await api.agent(
            skills=[{"type": "custom", "skill_id": made["id"]}],
            tools=[{"type": "agent_toolset_20260401"}],
        )
        wanted = {**notes.resource, "instructions": "Be brief."}
        session = await api.session(agent=agent["id"], resources=[wanted])
        model.scripts += [
            [Use("read", {"file_path": "skills/greeting/SKILL.md"})],
            [Use("write", {"file_path": "mnt/memory/my-notes/b", "content": "learnt"})],
            [Use("write", {"file_path": "/mnt/session/outputs/report", "content": "done"})],
            [Use("read", {"file_path": "/mnt/memory/my-notes/b"})],
            [Use("glob", {"pattern": "*", "path": "/mnt/session"})],
        ]
        told = await api.say(session["id"], "Go")
        assert not any(each.get("is_error") for each in told)
        assert await notes.texts() == {"/a": "one", "/b": "learnt"}
        system = str(model.requests[0]["system"])
        assert f"{session['cwd']}/skills/greeting/SKILL.md" in system and "Says ahoy." in system
        assert f"{session['cwd']}/mnt/memory/my-notes" in system and "Be brief." in system
        assert "Say ahoy." in str(model.requests[1]["messages"])
        assert f"{session['cwd']}/mnt/session/outputs" in system
        assert "/mnt, /uploads, /workspace. The file tools" in system
        (made,) = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert (made["filename"], made["size_bytes"]) == ("report", 4)


def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git that clones when a file is there."""
    go, program = tmp_path / "go", tmp_path / "bin" / "git"
    program.parent.mkdir()
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done"
    program.write_text(f'#!/bin/sh\n{wait}\nfor last; do :; done\nmkdir "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return go


async def cloning(api: Api) -> dict[str, Any]:
    """A request for a session with a repository."""
    return {
        "agent": await api.built_in("agents"),
        "environment_id": await api.built_in("environments"),
        "resources": [{"type": "github_repository", "url": "https://example.com/a/b"}],
    }


async def test_nobody_waits_for_a_clone_but_the_first_turn(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = slow_git(tmp_path, monkeypatch)
    async with open_api(tmp_path, clone=["https://"], agent_registry=registry_with(hand)) as api:
        session = await api.ok("POST", "/v1/sessions", await cloning(api))
        id = ids.parse(session["id"]) or ""
        clone = Path(session["cwd"]) / "workspace/b"
        # Interrupted while it waits, a turn ends; what it waited for goes on.
        (sent,) = (await api.send(session["id"], message("one")))["data"]
        await api.hub.turns.wait_started(api.principal, id, ids.parse(sent["id"]) or "")
        await api.send(session["id"], {"type": "user.interrupt"})
        assert (
            await api.hub.turns.wait(api.principal, id, ids.parse(sent["id"]) or "") == "cancelled"
        )
        assert not clone.exists()
        seen: list[bool] = []
        hand.act = lambda cwd: seen.append((cwd / "workspace/b").is_dir())
        turn = asyncio.create_task(api.say(session["id"], "two"))
        await asyncio.sleep(0.05)
        assert not turn.done()
        go.touch()
        await turn
        assert seen == [True]


async def test_a_clone_that_a_dead_process_left_is_made_by_the_next_turn(
    tmp_path: Path, hand: Hand
) -> None:
    async with open_api(tmp_path, clone=["file://"], agent_registry=registry_with(hand)) as api:
        given = {"type": "github_repository", "url": f"file://{tmp_path}/nowhere"}
        session = await api.session(resources=[given])
        count = len(await api.events(session["id"]))
        assert count == 1  # it is told once, and not tried in each turn
        told = await api.say(session["id"], "on")
        assert [each["type"] for each in told].count("session.error") == 1
        (file,) = (tmp_path / "work").glob("*.json")
        file.unlink()
        told = await api.say(session["id"], "on")
        assert [each["type"] for each in told].count("session.error") == 2
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        assert list((tmp_path / "work").iterdir()) == []


async def test_what_is_mounted_is_put_there_once(tmp_path: Path, hand: Hand) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
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

        hand.act = change
        for _ in range(2):
            await api.say(session["id"], "on")
        assert seen == ["one", "one", "changed", "changed"]


async def test_a_session_is_deleted_while_its_clone_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = slow_git(tmp_path, monkeypatch)
    async with open_api(tmp_path / "data", clone=["https://"]) as api:
        body = await cloning(api)
        session = await api.ok("POST", "/v1/sessions", body)
        await asyncio.sleep(0.05)
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        go.touch()
        await api.hub.workdirs.wait_mounted()
        assert not (tmp_path / "data/work" / f"{ids.parse(session['id'])}.json").exists()


async def test_two_processes_are_not_at_work_in_one_directory(tmp_path: Path, hand: Hand) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(hand)) as api:
        notes = await Notes(api, hand).open(a="one")
        await notes.attach()
        other = os.open(notes.top.parents[2], os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)  # as another worker does while it clones
        turn = asyncio.create_task(notes.turn())
        await asyncio.sleep(0.2)
        assert not turn.done() and not notes.top.exists()
        os.close(other)
        await turn
        assert (notes.top / "a").read_text() == "one"

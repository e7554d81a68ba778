"""Memory stores are mounted as files, and changes of the files are stored."""

import os
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from segue.model.record import Record
from tests.interfaces.rest.api import open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with
from tests.interfaces.rest.mounted_memories import MountedMemories


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

"""What an agent leaves in its directory can neither stop the server nor reveal other files."""

import asyncio
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from segue.agents.tools import file_tree
from segue.hub.workdir.staging import LEFTOVER_SECONDS, remove_directory
from segue.model import ids
from tests.interfaces.rest.api import Api, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with
from tests.interfaces.rest.mounted_memories import MountedMemories
from tests.interfaces.rest.test_files import upload_file

SPARSE_BYTES = 1 << 40


def make_special_files(top: Path, secret: Path) -> list[str]:
    """Create everything that is not a usual file in `top`, and return the names."""
    top.mkdir(parents=True, exist_ok=True)
    (top / "link").symlink_to(secret)
    (top / "link-to-proc").symlink_to(f"/proc/self/root{secret}")
    (top / "linked-directory").symlink_to(secret.parent)
    os.link(secret, top / "hard")
    os.mkfifo(top / "pipe")
    os.mknod(top / "socket", stat.S_IFSOCK | 0o600)
    if os.geteuid() == 0:
        os.mknod(top / "device", stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
    (top / "loop").symlink_to("loop")
    with (top / "sparse").open("wb") as file:
        file.truncate(SPARSE_BYTES)
    return os.listdir(top)


def make_deep_directories(top: Path) -> None:
    """Create directories that are nested deeper than a process may have open files."""
    top.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=descriptor)
        child = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = child
    os.close(descriptor)


async def errors_of_turn(api: Api, session: str) -> list[str]:
    before = len(await api.events(session))
    events = (await api.say(session, "continue"))[before:]
    return [event["error"]["message"] for event in events if event["type"] == "session.error"]


async def test_special_files_are_not_stored_as_outputs(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("S3CRET")
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        session = (await api.session())["id"]
        directory_agent.act = lambda cwd: make_special_files(cwd / "mnt/session/outputs", secret)
        (error,) = await errors_of_turn(api, session)
        assert error.startswith("/mnt/session/outputs/sparse: not stored, longer than")
        assert (await api.ok("GET", "/v1/files", scope_id=session))["data"] == []


async def test_special_files_are_not_stored_as_memories(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("S3CRET")
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one")
        await memories.attach()
        names: list[str] = []
        errors = await memories.errors(lambda top: names.extend(make_special_files(top, secret)))
        paths = [error.split(":")[0].rpartition("/")[2] for error in errors]
        assert sorted(paths) == sorted(set(names) - {"a"})
        assert await memories.texts() == {"/a": "one"}


async def test_outputs_below_too_many_directories_are_reported_and_others_are_stored(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        session = (await api.session())["id"]

        def make(cwd: Path) -> None:
            make_deep_directories(cwd / "mnt/session/outputs")
            (cwd / "mnt/session/outputs/file").write_text("x")

        directory_agent.act = make
        (error,) = await errors_of_turn(api, session)
        assert error.endswith("not stored, it is more than 32 directories deep")
        (file,) = (await api.ok("GET", "/v1/files", scope_id=session))["data"]
        assert file["filename"] == "file"
        directory_agent.act = lambda _: None
        assert await errors_of_turn(api, session) == []
        await api.ok("DELETE", f"/v1/sessions/{session}")
        assert os.listdir(tmp_path / "data/work") == []


async def test_memories_are_not_deleted_when_a_scan_stops_at_its_limit(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tree, "MAX_WALK_ENTRIES", 20)
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one", b="two")
        await memories.attach()

        def make(top: Path) -> None:
            (top / "a").write_text("changed")
            for number in range(200):
                os.mkfifo(top / f"p{number}")

        errors = await memories.errors(make)
        assert "/mnt/memory/my-notes/: only 20 files and directories are read" in errors
        assert (await memories.texts()).keys() == {"/a", "/b"}
        # When the directory has fewer entries again, the change is stored.
        await memories.turn(lambda top: [path.unlink() for path in top.glob("p*")])
        assert await memories.texts() == {"/a": "changed", "/b": "two"}


async def test_directory_with_thousands_of_links_above_it_is_not_collected(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one")
        session = await memories.attach()
        cwd = api.directory(session)

        def make(_: Path) -> None:
            (cwd / "mnt").rename(cwd / "link-3000")
            for number in range(3000):
                (cwd / f"link-{number}").symlink_to(f"link-{number + 1}")
            (cwd / "mnt").symlink_to("link-0")

        (error,) = await memories.errors(make)
        assert error.startswith("/mnt/memory/my-notes/a: ")
        assert error.endswith(" has too many symbolic links")
        assert await memories.errors() == []  # it was reported
        assert await memories.texts() == {"/a": "one"}


async def test_one_sync_reports_a_limited_number_of_problems(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open()
        await memories.attach()
        errors = await memories.errors(
            lambda top: [os.mkfifo(top / f"p{number}") for number in range(150)]
        )
        assert len(errors) == 101
        assert errors[-1] == "/mnt/memory/my-notes: 50 more files cannot be synced"


async def test_program_that_locks_its_directory_does_not_stop_turns(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        memories = await MountedMemories(api, directory_agent).open(a="one")
        session = await memories.attach()
        descriptor = os.open(api.directory(session), os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        async with asyncio.timeout(60):
            await memories.turn(lambda top: (top / "b").write_text("two"))
        assert await memories.texts() == {"/a": "one", "/b": "two"}
        os.close(descriptor)


async def test_demo_agent_refuses_special_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("S3CRET")
    async with open_api(tmp_path / "data") as api:
        session = await api.session()
        names = make_special_files(api.directory(session), secret)
        prompt = "\n".join(f"/read {name}" for name in names if name != "sparse")
        async with asyncio.timeout(60):
            events = await api.say(session["id"], prompt)
        assert "S3CRET" not in str(events)
        statuses = [event["is_error"] for event in events if event["type"] == "agent.tool_result"]
        assert statuses == [True] * (len(names) - 1)


async def test_file_that_a_session_names_several_times_is_stored_once(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api, b"x" * 1000)
        mounts = [
            {"type": "file", "file_id": file["id"], "mount_path": f"/f{number}"}
            for number in range(100)
        ]
        session = await api.session(resources=mounts)
        (copy_id,) = {resource["file_id"] for resource in session["resources"]}
        assert len((await api.ok("GET", "/v1/files"))["data"]) == 2
        scoped = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert [item["id"] for item in scoped] == [copy_id]
        for number in (0, 50, 99):
            assert (api.directory(session) / f"f{number}").read_bytes() == b"x" * 1000
        # The copy is deleted with its last mount.
        base = f"/v1/sessions/{session['id']}/resources"
        first, *others = session["resources"]
        await asyncio.gather(
            *(api.ok("DELETE", f"{base}/{resource['id']}") for resource in others[:3])
        )
        for resource in others[3:]:
            await api.ok("DELETE", f"{base}/{resource['id']}")
        await api.ok("GET", f"/v1/files/{copy_id}")
        assert os.listdir(api.directory(session)) == ["f0"]
        await api.ok("DELETE", f"{base}/{first['id']}")
        await api.fails(404, "GET", f"/v1/files/{copy_id}")
        await api.ok("GET", f"/v1/files/{file['id']}")


async def test_purge_deletes_a_file_with_several_mounts(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api)
        mounts: list[Any] = [
            {"type": "file", "file_id": file["id"], "mount_path": path} for path in ("/a", "/b")
        ]
        session = await api.session(resources=mounts)
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        (remaining,) = (await api.ok("GET", "/v1/files"))["data"]
        assert remaining["id"] == file["id"]
        assert os.listdir(tmp_path / "work") == []


async def test_staging_directory_of_a_killed_process_is_deleted_by_a_later_mount(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        staging = Path(f"{api.directory(session)}.staging")
        old, recent = staging / "old", staging / "recent"
        for directory in (old, recent):
            (directory / "clone").mkdir(parents=True)
        long_ago = os.stat(old).st_mtime - LEFTOVER_SECONDS - 60
        os.utime(old, (long_ago, long_ago))
        stored = await api.hub.sessions.get(api.principal, ids.parse(session["id"]) or "")
        await api.hub.workdirs._mount_pending(stored)
        assert os.listdir(staging) == ["recent"]
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        assert not staging.exists()
        remove_directory(staging)  # a directory that does not exist is no error

"""Programs of a session exchange its directories for links while segue works there.

Nothing outside of the session's directory may change, and nothing from outside may be read.
"""

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from segue.agents.tools import PathGuard, ToolError
from segue.hub import Hub
from segue.hub.workdir import mounts
from segue.hub.workdir.mounted_directory import MountedDirectory
from segue.hub.workdir.outputs import OutputBody, make_outputs_directory
from segue.hub.workdir.staging import remove_directory
from segue.model import ids
from segue.model.errors import InvalidInput
from segue.model.principal import Principal
from segue.model.session import Session
from segue.store.memory import MemoryStore

from .swapping import swap_after_resolving, swapping_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs renameat2")
LOCAL = Principal(workspace="local")
SECRET = b"SECRET"


class Attack(NamedTuple):
    """An attacker, and how often segue repeats each operation meanwhile."""

    swapping: Callable[[Path, Path], AbstractContextManager[None]]
    rounds: int


@pytest.fixture(
    params=[
        pytest.param(Attack(swap_after_resolving, 20), id="at each step"),
        pytest.param(Attack(swapping_process, 60), id="process"),
        pytest.param(Attack(swapping_process, 5_000), id="long", marks=pytest.mark.full),
    ]
)
def attack(request: pytest.FixtureRequest) -> Attack:
    """Return each kind of attack."""
    attack: Attack = request.param
    return attack


class Target:
    """A session's directory with the directory `d` and the link `l`, which leads outside.

    The directory outside has files with the names that segue uses in `d`.
    """

    def __init__(self, hub: Hub, session: Session, outside: Path) -> None:
        self.hub = hub
        self.session = session
        self.root = Path(session.cwd)
        self.outside = outside
        self.successes = 0
        for name in ("file", "notes/a", "clone/file", "session/outputs/a"):
            path = outside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(SECRET)
        self._before = _snapshot(outside)
        self.make_paths("d", "l")

    def make_paths(self, directory: str, link: str) -> tuple[Path, Path]:
        """Create a directory, and a link that leads outside."""
        paths = self.root / directory, self.root / link
        with suppress(FileExistsError):
            paths[0].mkdir(parents=True)
            paths[1].symlink_to(self.outside)
        self.swapped = paths[0]
        return paths

    def check_outside(self) -> None:
        """Check that nothing changed outside, and that the operation succeeded at times."""
        assert _snapshot(self.outside) == self._before
        assert self.successes > 0

    def rounds(self, attack: Attack) -> Iterator[int]:
        """Yield the numbers of the rounds.

        There are more of them until one has succeeded and the attacker has made an exchange.
        """
        states = set()
        for number in range(101 * attack.rounds):
            if number >= attack.rounds:
                if self.successes and len(states) == 2:
                    return
                time.sleep(0.001)  # let the attacker work
            states.add(self.swapped.is_symlink())
            yield number

    async def repeat(self, attack: Attack, operation: Callable[[], Awaitable[object]]) -> None:
        """Run an operation again and again during an attack. It may fail."""
        with attack.swapping(self.root / "d", self.root / "l"):
            for _ in self.rounds(attack):
                with suppress(ToolError, InvalidInput):
                    await operation()
                    self.successes += 1
        self.check_outside()


def _snapshot(top: Path) -> dict[str, str]:
    """Return the content and the permissions of everything below a directory."""
    snapshot = {}
    for path in [top, *top.rglob("*")]:
        status = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        snapshot[str(path)] = f"{status.st_mode:o} {status.st_nlink} {digest}"
    return snapshot


@asynccontextmanager
async def open_target(tmp_path: Path) -> AsyncIterator[Target]:
    async with Hub(MemoryStore(), tmp_path / "data", clone=["https://"]) as hub:
        outside = tmp_path / "outside"
        outside.mkdir()
        yield Target(hub, await hub.editor.create(LOCAL), outside)


async def file_resource(hub: Hub, mount_path: str) -> dict[str, Any]:
    async def content() -> AsyncIterator[bytes]:
        yield b"mounted"

    record = await hub.files.store(LOCAL, content(), {"filename": "f"})
    return {
        "type": "file",
        "id": ids.format_id("sesrsc", ids.new_id()),
        "file_id": ids.format_id("file", record.id),
        "mount_path": mount_path,
    }


async def test_file_is_mounted_inside_or_not_at_all(tmp_path: Path, attack: Attack) -> None:
    async with open_target(tmp_path) as target:
        resource = await file_resource(target.hub, "/d/file")
        await target.repeat(attack, lambda: target.hub.mounts.mount(target.session, resource))


async def test_file_is_mounted_in_a_new_directory_inside_or_not_at_all(
    tmp_path: Path, attack: Attack
) -> None:
    async with open_target(tmp_path) as target:
        resource = await file_resource(target.hub, "/d/new/deep/file")
        await target.repeat(attack, lambda: target.hub.mounts.mount(target.session, resource))


async def test_file_outside_is_not_deleted_by_an_unmount(tmp_path: Path, attack: Attack) -> None:
    async with open_target(tmp_path) as target:
        resource = await file_resource(target.hub, "/d/file")
        inside = os.open(target.root / "d", os.O_RDONLY)

        async def unmount() -> None:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
            await target.hub.mounts.unmount(target.session, resource)
            if os.listdir(inside):
                raise InvalidInput("not deleted")

        await target.repeat(attack, unmount)
        os.close(inside)


async def test_clone_is_moved_inside_or_not_at_all(
    tmp_path: Path, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def clone(_url: str, staging: Path, *_: object) -> Path:
        (staging / "clone").mkdir()
        (staging / "clone/file").write_text("cloned")
        return staging / "clone"

    monkeypatch.setattr(mounts, "clone", clone)
    async with open_target(tmp_path) as target:
        count = 0

        async def mount() -> None:
            nonlocal count
            count += 1
            resource = {
                "type": "github_repository",
                "id": ids.format_id("sesrsc", ids.new_id()),
                "url": "https://example.com/a",
                "mount_path": f"/d/{count}",
            }
            await target.hub.mounts.mount(target.session, resource)

        await target.repeat(attack, mount)


async def test_memory_and_skill_files_are_written_and_deleted_inside_only(
    tmp_path: Path, attack: Attack
) -> None:
    async with open_target(tmp_path) as target:
        directory = MountedDirectory(target.root, "/d/notes")
        secret_digest = hashlib.sha256(SECRET).hexdigest()

        async def write_and_delete() -> None:
            directory.write("/a", b"mine", mode=0o444)
            directory.remove("/a")

        async def read() -> None:
            directory.write("/a", b"mine")
            scan = directory.scan_or_create(["/a", "/b/c"], 100)
            assert scan is None or secret_digest not in scan.digests.values()
            assert directory.read("/a", 100) == b"mine"

        await target.repeat(attack, write_and_delete)
        await target.repeat(attack, read)


async def test_no_file_outside_is_stored_as_an_output(tmp_path: Path, attack: Attack) -> None:
    async with open_target(tmp_path) as target:
        paths = target.make_paths("mnt", "linked")
        outputs = paths[0] / "session/outputs"
        outputs.mkdir(parents=True)
        (outputs / "a").write_bytes(b"mine")
        inside = os.open(outputs, os.O_RDONLY)
        hub, session = target.hub, target.session
        with attack.swapping(*paths):
            for number in target.rounds(attack):
                os.utime("a", (number, number), dir_fd=inside)  # so that it is stored again
                await hub.outputs.collect(LOCAL, session, target.root)
                for record in await hub.outputs.for_session(session):
                    file = await hub.records.get("local", "file", OutputBody.of(record).file)
                    data = b"".join([part async for part in hub.files.read(file)])
                    assert data == b"mine"
                    target.successes += 1
        os.close(inside)
        target.check_outside()


async def test_outputs_directory_is_created_inside_or_not_at_all(
    tmp_path: Path, attack: Attack
) -> None:
    async with open_target(tmp_path) as target:
        paths = target.make_paths("mnt", "linked")
        inside = os.open(paths[0], os.O_RDONLY)
        (target.outside / "session/outputs/a").unlink()
        (target.outside / "session/outputs").rmdir()
        with attack.swapping(*paths):
            for _ in target.rounds(attack):
                if make_outputs_directory(target.root):
                    os.rmdir("session/outputs", dir_fd=inside)
                    target.successes += 1
        os.close(inside)
        assert target.successes > 0
        assert list((target.outside / "session").iterdir()) == []


async def test_nothing_outside_is_deleted_with_the_session_directory(
    tmp_path: Path, attack: Attack
) -> None:
    async with open_target(tmp_path) as target:
        remove_directory(target.root)
        with attack.swapping(target.root / "d", target.root / "l"):
            for _ in range(min(attack.rounds, 500)):
                prepared = tmp_path / "prepared"
                (prepared / "d/deep/er").mkdir(parents=True)
                (prepared / "d/deep/er/file").touch()
                (prepared / "l").symlink_to(target.outside)
                prepared.rename(target.root)
                if attack.swapping is swapping_process:
                    async with asyncio.timeout(60):
                        while not (target.root / "d").is_symlink():
                            await asyncio.sleep(0)
                remove_directory(target.root)
                assert not target.root.exists()
                target.successes += 1
        target.check_outside()


async def test_file_tools_write_and_read_inside_only(tmp_path: Path, attack: Attack) -> None:
    async with open_target(tmp_path) as target:
        guard = PathGuard([str(target.root)], strict=True)

        async def write_and_read() -> None:
            guard.replace_file("d/file", b"mine")
            assert guard.read_file("d/file", 100)[1] == b"mine"

        await target.repeat(attack, write_and_read)

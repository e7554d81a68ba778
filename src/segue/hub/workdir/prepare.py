"""A session's own directory: made ready before a turn's agent begins, gone through when it ended.

What is mounted once (files, clones) is begun when the session is made and waited for by its first
turn. Memories are brought up to date at the beginning of each turn, and what the turn changed in
them is taken back at its end, by a fork that works in the directory too. A file beside the
directory says what was done; without it nothing is lost, since then nothing counts as deleted.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from segue.agents.tools.path_guard import ToolError, is_below
from segue.hub.resources.memories import Memories
from segue.hub.resources.records import Records
from segue.hub.resources.skills import KIND as SKILL
from segue.hub.resources.skills import MAIN, Skills
from segue.model import ids
from segue.model.errors import InvalidInput, NotFound, SegueError
from segue.model.event import Failed
from segue.model.record import Record
from segue.model.session import Session
from segue.store.base import Store

from .memory_sync import Kept, Mounted, remember
from .mounts import Mounts
from .outputs import Outputs, make_outputs_directory

SKILLS = "skills"
TOPS = ("/mnt", "/uploads", "/workspace")  # where things are mounted that do not say where
LOOK_SECONDS = 0.05
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Done(msgspec.Struct, kw_only=True):
    """What has been done in a directory."""

    tried: list[str] = []  # ids of resources
    memory: dict[str, Kept] = {}  # by the store's id
    outputs: list[str] = []  # what was told of those that are not kept
    skills: dict[str, str] = {}  # directory → id of the version that is in it, whole
    placed: dict[str, list[str]] = {}  # directory → paths of a skill's files in it


class WorkDirectories:
    """The directories that segue made for sessions."""

    def __init__(
        self,
        store: Store,
        work: Path,
        records: Records,
        mounts: Mounts,
        memories: Memories,
        skills: Skills,
        outputs: Outputs,
    ) -> None:
        self._store = store
        self._work = work
        self._records = records
        self._mounts = mounts
        self._memories = memories
        self._skills = skills
        self._outputs = outputs
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin_mounting(self, session: Session, *, retry: str | None = None) -> None:
        """Mount, meanwhile, what has not been tried, and `retry` a resource that has.

        What cannot be had is told as an event of the session.
        """
        if self._own(session) and any(each["type"] != "memory_store" for each in session.resources):
            task = asyncio.get_running_loop().create_task(self._begin(session, retry))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def wait_mounted(self) -> None:
        """Wait for what was begun in this process."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _begin(self, session: Session, retry: str | None) -> None:
        with suppress(NotFound, OSError):  # the session was deleted meanwhile
            async with self._alone(session):
                if retry is not None:
                    await self._note(session, partial(_untried, retry))
                for wrong in await self._mount(session):
                    await self._store.change(session.workspace, session.id, _telling(wrong))

    async def mount(self, session: Session, resource: dict[str, Any]) -> None:
        """Mount one more thing now; InvalidInput if it cannot be where it says."""
        await self._mounts.mount(session, resource)
        if self._own(session):
            await self._note(session, partial(_tried, resource["id"]))

    async def prepare(self, session: Session) -> list[Failed]:
        """Make the directory ready for a turn; what of it was not possible."""
        if not session.resources or not self._mounts.owns_directory(session):
            return []
        try:
            os.makedirs(session.cwd, mode=0o700, exist_ok=True)
            async with self._alone(session):
                wrong = await self._mount(session) if self._own(session) else []
                return [*wrong, *await self._remember(session)]
        except (SegueError, OSError) as error:
            return [Failed(message=f"the session's directory could not be made ready: {error}")]

    async def collect(self, session: Session) -> list[Failed]:
        """Take what a turn has made and changed; what of it was not possible."""
        if not self._mounts.owns_directory(session):
            return []
        async with self._alone(session, wait=False) as alone:
            if not alone:  # a clone is under way: the next turn sees to it, and this one ends
                return []
            wrong = await self._collect(session) if self._own(session) else []
            return [*wrong, *await self._remember(session)]

    async def _collect(self, session: Session) -> list[Failed]:
        wrong = await self._outputs.collect(session, self._work / session.id)
        if await self._store.get(session.workspace, session.id) is None:  # purged meanwhile
            await self._outputs.discard(session)
        told = (await self._read(session)).outputs
        if wrong != told:
            await self._note(session, partial(_collected, wrong))
        return [Failed(message=each) for each in wrong if each not in told]

    async def outputs_directory(self, session: Session) -> str | None:
        """Where the session's agent leaves what people are to have; None if there is no place."""
        if not self._own(session):
            return None
        return await asyncio.to_thread(make_outputs_directory, self._work / session.id)

    def mount_paths(self, session: Session) -> tuple[str, ...]:
        """The absolute paths that begin in the session's directory, if segue made that."""
        if not self._mounts.owns_directory(session):
            return ()
        named = (str(each["mount_path"]) for each in session.resources if "mount_path" in each)
        return (*TOPS, *(path for path in named if not is_below(path, TOPS)))

    async def install_skills(
        self, session: Session, named: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The skills that a session's agent names, with where they are and what they are for.

        Where the directory is not segue's nothing is written, and the text comes instead.
        """
        found = []
        taken: set[str] = set()  # two skills may have one name
        for ref in named:
            if ref["type"] != "custom":
                continue
            id = ids.parse(ref["skill_id"], "skill") or ""
            try:
                skill = await self._records.get(session.workspace, SKILL, id)
                version = await self._skills.version(skill, ref["version"])
                path = None
                if self._own(session):
                    place = _unlike(version.body["name"], taken)
                    taken.add(place)
                    path = await self._put_skill(session, version, place)
                text = None if path else await self._text(version)
            except NotFound:  # deleted since
                continue
            about = {name: version.body[name] for name in ("name", "description")}
            found.append({**ref, **about, "path": path, "text": text})
        return found

    async def _text(self, version: Record) -> str:
        return (await self._skills.files(version))[MAIN].decode("utf-8", "replace")

    async def _put_skill(self, session: Session, version: Record, name: str) -> str | None:
        """Where a skill is, in the session's directory; None if something else is in its place."""
        root = self._work / session.id
        main = root / SKILLS / name / MAIN
        done = await self._read(session)
        if done.skills.get(name) != version.id or not main.exists():
            files = await self._skills.files(version)
            before = set(done.placed.get(name, ()))
            await self._note(session, partial(_placed, name, before | files.keys(), None))
            place = Mounted(root, f"{SKILLS}/{name}")
            try:
                await asyncio.to_thread(_put, place, files, before - files.keys())
            except ToolError:
                return None
            await self._note(session, partial(_placed, name, files.keys(), version.id))
        return str(main)

    async def _mount(self, session: Session) -> list[Failed]:
        found = []
        tried = (await self._read(session)).tried
        # Repositories first: a file may belong into one.
        for resource in sorted(session.resources, key=lambda each: "url" not in each):
            id = resource.get("id")
            if id is None or id in tried:
                continue
            try:
                wrong = await self._mounts.mount(session, resource)
            except (SegueError, OSError) as error:
                wrong = Failed(message=str(error))
            if wrong is not None:
                found.append(wrong)
            await self._note(session, partial(_tried, id))
        return found

    async def _remember(self, session: Session) -> list[Failed]:
        found: list[Failed] = []
        done = await self._read(session)
        for resource in _stores(session):
            id = ids.parse(resource["memory_store_id"], "memstore") or ""
            try:
                store = await self._records.get(session.workspace, "memory_store", id)
            except NotFound:
                continue  # deleted: the files stay as they are
            place = Mounted(Path(session.cwd), resource["mount_path"])
            writable = resource["access"] == "read_write" and store.archived_at is None
            by = {"type": "session_actor", "session_id": ids.format_id("sesn", session.id)}
            before = done.memory.get(id, Kept())
            after, told = await remember(
                self._memories, store, place, before, by if writable else None
            )
            if after != before:
                await self._note(session, partial(_remembered, id, after))
            where = resource["mount_path"]
            found += [Failed(message=f"{where}{path}: {why}") for path, why in told]
        return found

    def _own(self, session: Session) -> bool:
        return session.cwd == str(self._work / session.id)

    @asynccontextmanager
    async def _alone(self, session: Session, *, wait: bool = True) -> AsyncIterator[bool]:
        """While nobody else is at work in the directory, in this process or another.

        Whether that is so, without `wait`; OSError where there is no directory.
        """
        lock = self._locks.setdefault(session.cwd, asyncio.Lock())
        if lock.locked() and not wait:
            yield False
            return
        async with lock, _held(Path(session.cwd)) as handle:
            while not (alone := _locked(handle)) and wait:
                await asyncio.sleep(LOOK_SECONDS)
            yield alone

    async def _read(self, session: Session) -> Done:
        return await asyncio.to_thread(_written, self._mounts.state_path(session))

    async def _note(self, session: Session, change: Callable[[Done], object]) -> None:
        """Write down that something was done, unless the directory is gone."""
        place = self._mounts.state_path(session)

        def write() -> None:
            if not os.path.isdir(session.cwd):
                return
            handle = os.open(self._work, _LOOK)
            draft = place.with_name(f".{ids.new_id()}")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)  # for as long as this takes
                done = _written(place)
                change(done)
                draft.write_bytes(msgspec.json.encode(done))
                os.replace(draft, place)
            finally:
                draft.unlink(missing_ok=True)
                os.close(handle)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise InvalidInput(f"{place} cannot be written: {error.strerror}") from None


@asynccontextmanager
async def _held(directory: Path) -> AsyncIterator[int]:
    handle = os.open(directory, _LOOK)
    try:
        yield handle
    finally:
        os.close(handle)  # and with it the lock goes


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _written(place: Path) -> Done:
    try:
        return msgspec.json.decode(place.read_bytes(), type=Done)
    except (OSError, msgspec.DecodeError):
        return Done()


def _tried(id: str, done: Done) -> None:
    done.tried.append(id)


def _untried(id: str, done: Done) -> None:
    done.tried = [each for each in done.tried if each != id]


def _remembered(store: str, kept: Kept, done: Done) -> None:
    done.memory[store] = kept


def _collected(wrong: list[str], done: Done) -> None:
    done.outputs = wrong


def _placed(name: str, paths: Iterable[str], version: str | None, done: Done) -> None:
    done.placed[name] = sorted(paths)
    if version is None:
        done.skills.pop(name, None)
    else:
        done.skills[name] = version


def _put(place: Mounted, files: dict[str, bytes], dropped: Iterable[str]) -> None:
    for path in dropped:
        with suppress(ToolError):  # it is not where it was
            place.remove(f"/{path}")
    for path, data in files.items():
        place.write(f"/{path}", data, 0o755 if data.startswith(b"#!") else None)


def _unlike(name: str, taken: Collection[str]) -> str:
    """The name, or with a number one that is not taken."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def _stores(session: Session) -> list[dict[str, Any]]:
    return [each for each in session.resources if each["type"] == "memory_store"]


def _telling(wrong: Failed) -> Any:
    return lambda _: [wrong]

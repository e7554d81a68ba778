"""Prepare a session's directory before a turn, and collect its results afterwards.

Files and repositories are mounted once: segue begins when the session is created, and the first
turn waits for the end. Memories are synced before and after each turn, also for a fork, which
works in the same directory.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from segue.agents.sandbox.disk_usage import tree_bytes
from segue.agents.tools.path_guard import is_below
from segue.hub.access.quotas import MIN_DIRECTORY_BYTES, Quotas
from segue.hub.resources.memories import Memories
from segue.hub.resources.records import Records
from segue.hub.resources.skills import Skills
from segue.model import ids
from segue.model.errors import InvalidInput, NotFound, NotPermitted, SegueError
from segue.model.event import Failed
from segue.model.principal import Principal
from segue.model.record import Record
from segue.model.session import Session
from segue.store.base import Store

from .isolation import private_directories
from .locks import DirectoryLocks
from .memory_sync import MemorySync, SyncState
from .mounted_directory import MountedDirectory
from .mounts import Mounts, is_made_by_segue
from .outputs import Outputs, make_outputs_directory
from .skill_files import SkillInstaller
from .staging import remove_leftovers
from .state import DirectoryState, StateFile

MAX_REJECTIONS = 100  # reported by one sync of a memory store
PACKAGE_CACHES = "packages"  # in the data directory, one for each workspace
_SHARING = (
    "Servers of one database must have the same --data-dir (SEGUE_DATA_DIR), with its directory"
    " work on a file system that they share"
)
DEFAULT_MOUNT_DIRECTORIES = ("/mnt", "/uploads", "/workspace")


class WorkDirectories:
    """The directories that segue creates for sessions."""

    def __init__(
        self,
        store: Store,
        work: Path,
        records: Records,
        mounts: Mounts,
        memories: Memories,
        skills: Skills,
        outputs: Outputs,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._work = work
        self._records = records
        self._mounts = mounts
        self._memories = memories
        self._skills = SkillInstaller(records, skills)
        self._outputs = outputs
        self._quotas = quotas
        self._locks = DirectoryLocks()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def private_directories(self) -> tuple[str, ...]:
        """Directories that programs of sessions must not see, apart from their session's own."""
        return private_directories(self._work.parent)

    def package_cache(self, workspace: str) -> str:
        """Return the directory of the packages that were downloaded for a workspace."""
        return str(self._work.parent / PACKAGE_CACHES / ids.derived_id("packages", workspace))

    async def close(self) -> None:
        """Cancel the mounts that this process has begun."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Mounting of files and repositories.

    def begin_mounting(self, session: Session, *, retry: str | None = None) -> None:
        """Begin to mount the resources that were not tried before, and the resource `retry`.

        A resource that cannot be mounted is reported as an event of the session.
        """
        if self._created_for(session) and any(
            resource["type"] != "memory_store" for resource in session.resources
        ):
            mounting = self._mount_and_report(session, retry)
            task = asyncio.get_running_loop().create_task(mounting)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def wait_mounted(self) -> None:
        """Wait for the mounts that this process has begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def mount(self, session: Session, resource: dict[str, Any]) -> None:
        """Mount one more resource now. Raises InvalidInput if its mount path cannot be used."""
        if not self._created_for(session):
            return
        os.makedirs(session.cwd, mode=0o700, exist_ok=True)
        problem = await self._mounts.mount(session, resource)
        await self._record_attempt(session, resource["id"])
        if problem is not None:
            await self._report(session, problem)
        await self.measure(session)

    async def _mount_and_report(self, session: Session, retry: str | None) -> None:
        with suppress(NotFound, OSError):  # the session was deleted in the meantime
            async with self._locks.lock(session.cwd):
                if retry is not None:
                    await self._forget_attempt(session, retry)
                for problem in await self._mount_pending(session):
                    await self._report(session, problem)

    async def _mount_pending(self, session: Session) -> list[Failed]:
        """Mount the resources that were not tried before. Return the problems."""
        problems = []
        await asyncio.to_thread(remove_leftovers, Path(session.cwd))
        attempted = (await self._state_file(session).read()).attempted
        # Repositories first: a file may be mounted inside one.
        for resource in sorted(session.resources, key=lambda resource: "url" not in resource):
            id = resource.get("id")
            if id is None or id in attempted:
                continue
            try:
                problem = await self._mounts.mount(session, resource)
            except (SegueError, OSError) as error:
                problem = _failure(error)
            if problem is not None:
                problems.append(self._without_own_paths(problem))
            await self._record_attempt(session, id)
            await self.measure(session)
        return problems

    def _without_own_paths(self, problem: Failed) -> Failed:
        """Add a message for other callers, without paths in the data directory.

        It keeps mount paths and URLs, which the callers know.
        """
        own = str(self._work.parent)
        if own not in problem.message:
            return problem
        message = problem.remote_message or problem.message
        remote = re.sub(re.escape(own) + r"[^\s'\":;,]*", "(path)", message)
        return replace(problem, remote_message=remote)

    async def _record_attempt(self, session: Session, resource_id: str) -> None:
        def change(state: DirectoryState) -> None:
            state.attempted.append(resource_id)

        await self._state_file(session).update(change)

    async def _forget_attempt(self, session: Session, resource_id: str) -> None:
        def change(state: DirectoryState) -> None:
            state.attempted = [id for id in state.attempted if id != resource_id]

        await self._state_file(session).update(change)

    async def _report(self, session: Session, problem: Failed) -> None:
        await self._store.change(session.workspace, session.id, lambda _: [problem])

    # Before and after a turn.

    async def prepare(self, session: Session, *, local: bool) -> list[Failed]:
        """Mount resources and sync memories before a turn. Return the problems.

        `local` says whether the turn is the local user's, to whom no quotas apply.
        """
        if not session.resources or not self._mounts.owns_directory(session):
            return []
        principal = Principal(workspace=session.workspace, local=local)
        try:
            os.makedirs(session.cwd, mode=0o700, exist_ok=True)
            async with self._locks.lock(session.cwd):
                problems = await self._mount_pending(session) if self._created_for(session) else []
                return [*problems, *await self._sync_memories(principal, session)]
        except (SegueError, OSError) as error:
            problem = _failure(error, prefix="could not prepare the session's directory: ")
            return [self._without_own_paths(problem)]

    async def make_missing(self, session: Session) -> Failed | None:
        """Make the directory that segue made for a session again if it is not on this machine.

        Returns a problem if earlier turns may have left files in it. Raises InvalidInput if it is
        in the data directory of another machine.
        """
        if await asyncio.to_thread(os.path.isdir, session.cwd):
            return None
        if not self._mounts.owns_directory(session):
            if not is_made_by_segue(session):
                return None
            raise InvalidInput(
                f"the directory of this session, {session.cwd}, is not on this machine. {_SHARING}",
                remote_message=f"the directory of this session is not on this server. {_SHARING}",
            )
        await asyncio.to_thread(os.makedirs, session.cwd, mode=0o700, exist_ok=True)

        def forget(state: DirectoryState) -> None:
            state.attempted, state.memories = [], {}
            state.skill_versions, state.skill_files = {}, {}

        await self._state_file(session).update(forget)
        if session.messages < 2:
            return None
        return Failed(
            message="the directory of this session was not on this machine, and was made again"
            f" without the files of earlier turns. {_SHARING}"
        )

    async def allow_key(self, session: Session) -> None:
        """Record that turns of an API key write to a session's directory, if segue made it."""
        if not self._mounts.owns_directory(session):
            return

        def change(state: DirectoryState) -> None:
            state.used_by_key = True

        state_file = self._state_file(session)
        if not (await state_file.read()).used_by_key:
            await state_file.update(change)

    async def check_settings_are_own(self, session: Session, program: str) -> None:
        """Raise NotPermitted if a stranger may have chosen the settings in a session's directory.

        A program of the local user that reads settings there would run what an API key wrote. A
        directory that segue did not make is the local user's, unless an imported file chose it.
        """
        if session.directory_is_unconfirmed:
            raise NotPermitted(
                f"{program} reads settings in its working directory, and an imported file chose the"
                " directory of this session; fork the session into a directory of yours",
                session=session.id,
            )
        if not self._mounts.owns_directory(session):
            return
        state = await self._state_file(session).read()
        if state.used_by_key or state.attempted:  # only the REST API mounts files
            raise NotPermitted(
                f"{program} reads settings in its working directory, and API keys can write to the"
                " directory of this session; fork the session into a directory of yours",
                session=session.id,
            )

    async def measure(self, session: Session) -> None:
        """Count the bytes of a session's directory for the workspace's quota.

        Called after a turn and after files were mounted. Changes below MIN_DIRECTORY_BYTES are
        not stored.
        """
        if not self._mounts.owns_directory(session):
            return
        size = await asyncio.to_thread(tree_bytes, session.cwd)
        state_file = self._state_file(session)
        if size // MIN_DIRECTORY_BYTES == (await state_file.read()).bytes // MIN_DIRECTORY_BYTES:
            return

        def change(state: DirectoryState) -> None:
            state.bytes = size

        await state_file.update(change)
        await self._quotas.record_directory(session.workspace, Path(session.cwd).name, size)

    async def collect(self, session: Session, *, local: bool) -> list[Failed]:
        """Store the outputs and the changed memories of a turn. Return the problems.

        `local` says whether the turn is the local user's, to whom no quotas apply.
        Does nothing while a repository is cloned; the next turn collects then.
        """
        if not self._mounts.owns_directory(session):
            return []
        async with self._locks.lock(session.cwd, wait=False) as locked:
            if not locked:
                return []
            principal = Principal(workspace=session.workspace, local=local)
            problems = []
            if self._created_for(session):
                problems = await self._collect_outputs(principal, session)
            return [*problems, *await self._sync_memories(principal, session)]

    async def _collect_outputs(self, principal: Principal, session: Session) -> list[Failed]:
        """Store new and changed outputs. Return the problems that were not reported before."""
        problems = await self._outputs.collect(principal, session, self._work / session.id)
        if await self._store.get(session.workspace, session.id) is None:  # purged in the meantime
            await self._outputs.discard(session)
        state_file = self._state_file(session)
        reported = (await state_file.read()).output_problems

        def change(state: DirectoryState) -> None:
            state.output_problems = problems

        if problems != reported:
            await state_file.update(change)
        return [Failed(message=problem) for problem in problems if problem not in reported]

    async def _sync_memories(self, principal: Principal, session: Session) -> list[Failed]:
        """Sync the session's memory stores with their files. Return the new problems."""
        problems: list[Failed] = []
        states = (await self._state_file(session).read()).memories
        for resource in session.resources:
            if resource["type"] == "memory_store":
                problems += await self._sync_memory_store(principal, session, resource, states)
        return problems

    async def _sync_memory_store(
        self,
        principal: Principal,
        session: Session,
        resource: dict[str, Any],
        states: dict[str, SyncState],
    ) -> list[Failed]:
        store_id = ids.parse(resource["memory_store_id"], "memstore") or ""
        try:
            store = await self._records.get(session.workspace, "memory_store", store_id)
        except NotFound:  # The memory store was deleted; its files stay.
            return []
        mount_path = resource["mount_path"]
        directory = MountedDirectory(Path(session.cwd), mount_path)
        actor = {"type": "session_actor", "session_id": ids.format_id("sesn", session.id)}
        writer = actor if _is_writable(resource, store) else None
        sync = MemorySync(self._memories, principal, store, directory, writer)
        last = states.get(store_id, SyncState())
        result, rejections = await sync.run(last)

        def change(state: DirectoryState) -> None:
            state.memories[store_id] = result

        if result != last:
            await self._state_file(session).update(change)
        messages = [f"{mount_path}{path}: {reason}" for path, reason in rejections]
        if (omitted := len(messages) - MAX_REJECTIONS) > 0:
            messages[MAX_REJECTIONS:] = [f"{mount_path}: {omitted} more files cannot be synced"]
        return [Failed(message=message) for message in messages]

    # What agents need to know about the directory.

    async def install_skills(
        self, session: Session, refs: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Write the skills of a session's agent and return them with name, description and path.

        In a directory that segue did not create for the session, no files are written, and the
        skills have their text instead of a path.
        """
        if not self._created_for(session):
            return await self._skills.read(session.workspace, refs)
        root = self._work / session.id
        return await self._skills.install(session.workspace, refs, root, self._state_file(session))

    async def outputs_directory(self, session: Session) -> str | None:
        """Create and return the directory for outputs; None if the session cannot have one."""
        if not self._created_for(session):
            return None
        return await asyncio.to_thread(make_outputs_directory, self._work / session.id)

    def mount_paths(self, session: Session) -> tuple[str, ...]:
        """Return the absolute paths that an agent may use for paths in the session's directory."""
        if not self._mounts.owns_directory(session):
            return ()
        paths = (
            str(resource["mount_path"])
            for resource in session.resources
            if "mount_path" in resource
        )
        others = (path for path in paths if not is_below(path, DEFAULT_MOUNT_DIRECTORIES))
        return (*DEFAULT_MOUNT_DIRECTORIES, *others)

    async def read_only_directories(self, session: Session) -> tuple[str, ...]:
        """Return the real paths of the mounted memory stores that the session may not change."""
        if not self._mounts.owns_directory(session):
            return ()
        top = os.path.realpath(session.cwd)
        paths = []
        for resource in session.resources:
            if resource["type"] != "memory_store":
                continue
            store_id = ids.parse(resource["memory_store_id"], "memstore") or ""
            store = await self._records.find(session.workspace, "memory_store", store_id)
            path = os.path.join(top, resource["mount_path"].lstrip("/"))
            # A program may have replaced the directory by a link to somewhere else.
            is_mounted = os.path.isdir(path) and os.path.realpath(path) == path
            if is_mounted and store is not None and not _is_writable(resource, store):
                paths.append(path)
        return tuple(paths)

    def _created_for(self, session: Session) -> bool:
        """Return whether segue created the directory for this session; a fork shares another."""
        return session.cwd == str(self._work / session.id)

    def _state_file(self, session: Session) -> StateFile:
        return StateFile(self._mounts.state_path(session), session.cwd)


def _is_writable(resource: dict[str, Any], store: Record) -> bool:
    return resource["access"] == "read_write" and store.archived_at is None


def _failure(error: SegueError | OSError, prefix: str = "") -> Failed:
    remote = prefix + error.remote_message if isinstance(error, SegueError) else None
    message = f"{prefix}{error}"
    return Failed(message=message, remote_message=None if remote == message else remote)

"""Read Codex's rollouts: threads with their pages, forks and subagents."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UnsetType
from msgspec.structs import replace

from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.base import Edit
from segue.sources.kit import bodies, files
from segue.sources.kit.reader import (
    End,
    Item,
    Items,
    Reader,
    Report,
    Resume,
    SessionFacts,
    SessionRef,
    ThreadRef,
    Unreadable,
    collect,
    decode_resume_data,
    encode_resume_data,
    mark_rolled_back,
)

from . import packed, rollouts
from .rollouts import Rollout, Segment

if TYPE_CHECKING:
    from .translator import RolloutState, Translator

_ROLLBACK = b'"thread_rolled_back"'
_MAX_BASES = 1000  # files that a history may consist of


class CodexReader(Reader):
    """The threads of one Codex home."""

    name = "codex"
    version = 2

    def __init__(self, home: str) -> None:
        self.home = home

    def session_paths(self) -> Sequence[str]:
        """Return the directories of threads."""
        return rollouts.directories(self.home)

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all threads, subagents included."""
        names = rollouts.thread_names(self.home, report)
        for rollout in rollouts.current_rollouts(self.home, report).values():
            if ref := self._ref(rollout, names):
                yield ref

    def status(self) -> object:
        """Return a digest of the statuses of all rollouts and of the names of threads."""
        return rollouts.status(self.home)

    def ref(self, key: str) -> SessionRef | None:
        """Return a thread as it is now; a page that was replaced by a newer one is gone."""
        rollout = rollouts.rollout_of_path(key)
        if rollout is None or not self._is_current(rollout):
            return None
        return self._ref(rollout, rollouts.thread_names(self.home))

    def _is_current(self, rollout: Rollout) -> bool:
        """Return whether the directory has no newer page of the thread."""
        for entry in safe_io.list_directory(os.path.dirname(rollout.path)):
            if rollout.thread in entry.name:
                other = rollouts.rollout_of_path(entry.path)
                if other is not None and _replaces(other, rollout):
                    return False
        return True

    def _ref(self, rollout: Rollout, names: dict[str, str]) -> SessionRef | None:
        status = safe_io.nonempty_file_status(rollout.path)
        if status is None:
            return None
        name = names.get(rollout.thread)
        others: tuple[object, ...] = () if name is None else (name,)
        if packed.is_packed(rollout.path):
            others = (*others, packed.can_unpack())
        return SessionRef(rollout.path, rollout.thread, files.fingerprint(status, *others))

    def find(self, native_id: str) -> SessionRef | None:
        """Return the thread with an id."""
        rollout = rollouts.current_rollouts(self.home).get(native_id.lower())
        return rollout and self._ref(rollout, rollouts.thread_names(self.home))

    @property
    def edits(self) -> frozenset[Edit]:
        """The edits that Codex understands. Its database is changed by its program only."""
        from . import edits

        return edits.possible_edits(self.home)

    def change(self, ref: SessionRef, info: InfoChanged) -> None:
        """Rename a thread, or move it to or from the archive or the trash."""
        from . import edits

        if not isinstance(info.title, UnsetType):
            edits.rename(self.home, _rollout(ref), info.title)
        if not isinstance(info.archived, UnsetType):
            edits.set_archived(self.home, _rollout(ref), archived=info.archived)
        if not isinstance(info.deleted, UnsetType):
            edits.set_trashed(self.home, _rollout(ref), trashed=info.deleted)

    def delete(self, ref: SessionRef) -> None:
        """Delete the files of a thread and its row in Codex's database."""
        from . import edits

        edits.delete(self.home, _rollout(ref))

    def fork(
        self, ref: SessionRef, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> str:
        """Write a thread with the history up to the event `at`, as Codex writes a fork."""
        from . import fork

        rollout = _rollout(ref)
        fork.write_fork(self.home, self._segments(rollout, []), new_id, at=at, cwd=cwd, title=title)
        return new_id

    def is_running(self, ref: SessionRef) -> bool | None:
        """Return whether a process writes the thread: by its lock, else by its open file."""
        rollout = rollouts.rollout_of_path(ref.key)
        return None if rollout is None else rollouts.is_being_written(self.home, rollout)

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a thread: those of the files it is based on, then its own."""
        from .translator import RolloutState, Translator  # a list does not need them

        rollout = _rollout(ref)
        if packed.is_packed(rollout.path) and not packed.can_unpack():
            return End(self._known_facts(rollout))
        if resume is None:
            state = RolloutState(thread=rollout.thread)
            problems: list[str] = []
            segments = self._segments(rollout, problems)
            translator = Translator(state, problems)
            items = self._all_items(translator, segments)
        else:
            translator = Translator(decode_resume_data(resume, RolloutState), [])
            own = Segment(rollout, None, translator.state.before, False)
            items = self._items(translator, own, resume)
        end = yield from items
        state = translator.state
        if not state.has_meta:
            raise Unreadable("it does not begin as a rollout does")
        facts = self._facts(rollout, state, tuple(translator.problems))
        # A compressed file does not grow: it is read again if it changes.
        is_plain = not packed.is_packed(rollout.path)
        return End(facts, replace(end, data=encode_resume_data(state)) if is_plain else None)

    def original_lines(self, ref: SessionRef) -> Iterable[bytes] | None:
        """Return the lines of a compressed file."""
        if not packed.is_packed(ref.key):
            return None
        with packed.plain_file(ref.key) as path:
            return list(files.file_lines(path))

    def _known_facts(self, rollout: Rollout) -> SessionFacts:
        """Return what Codex's database has of a thread whose file cannot be decompressed."""
        row = rollouts.thread_row(self.home, rollout.thread)
        if row is None:
            raise Unreadable(f"it is compressed; {packed.INSTALL}")
        name = rollouts.thread_names(self.home).get(rollout.thread)
        prompt = bodies.text(row["first_user_message"]) or bodies.text(row["title"])
        created_at = bodies.time_of(row["created_at_ms"]) or bodies.time_of(row["created_at"])
        updated_at = bodies.time_of(row["updated_at_ms"]) or bodies.time_of(row["updated_at"])
        status = safe_io.nonempty_file_status(rollout.path)
        moved_at = 0 if status is None else status.st_ctime_ns // 1000
        return SessionFacts(
            created_at=created_at or moved_at,
            updated_at=updated_at,
            cwd=bodies.text(row["cwd"]) or "/",
            title=name or bodies.prompt_title(prompt) or rollout.thread,
            title_by="person" if name else "auto",
            model=bodies.text(row["model"]) or None,
            git_branch=bodies.text(row["git_branch"]) or None,
            archived_at=moved_at if rollout.is_archived else None,
            deleted_at=moved_at if rollout.is_trashed else None,
            problems=(f"its messages are compressed; {packed.INSTALL}",),
        )

    def _items(
        self, translator: Translator, segment: Segment, resume: Resume | None
    ) -> Generator[Item, None, Resume]:
        """Yield the events of a file, and return where it ended."""
        translator.begin_file(segment.before, inherited=segment.inherited)
        with packed.plain_file(segment.rollout.path) as path:
            records = files.Records(path, resume, end=segment.end)
            return (yield from translator.translate(records, is_last=segment.end is None))

    def _all_items(
        self, translator: Translator, segments: list[Segment]
    ) -> Generator[Item, None, Resume]:
        with packed.plain_file(segments[-1].rollout.path) as path:
            has_rollbacks = files.contains(path, _ROLLBACK)
        if not has_rollbacks:
            return (yield from self._segment_items(translator, segments))
        translator.collects_rollbacks = True
        items, end = collect(self._segment_items(translator, segments))
        yield from mark_rolled_back(items, translator.rollbacks)
        return end

    def _segment_items(
        self, translator: Translator, segments: list[Segment]
    ) -> Generator[Item, None, Resume]:
        end = Resume()
        for segment in segments:
            try:
                end = yield from self._items(translator, segment, None)
            except safe_io.UnreadableFile:
                if segment.end is None:
                    raise
                translator.problems.append(f"its beginning in {segment.rollout.path} is missing")
        return end

    def _segments(self, rollout: Rollout, problems: list[str]) -> list[Segment]:
        """Return the parts of a thread's history, oldest first; its own file is the last one."""
        bases = self._bases(rollout, problems)
        before = bases[-1].before + (bases[-1].end or 0) if bases else 0
        return [*bases, Segment(rollout, None, before, False)]

    def _bases(self, rollout: Rollout, problems: list[str]) -> list[Segment]:
        """Return the parts of other files that a thread's history begins with, oldest first."""
        chain: list[tuple[Rollout, int]] = []
        by_id: dict[str, Rollout] | None = None
        current: Rollout | None = rollout
        while current is not None and len(chain) < _MAX_BASES:
            base = rollouts.head(current.path).get("history_base")
            if not isinstance(base, dict) or not isinstance(base.get("thread_id"), str):
                break
            if by_id is None:
                by_id = {file.last_id: file for file in rollouts.list_rollouts(self.home)}
            current = by_id.get(base["thread_id"].lower())
            if current is None or any(current.path == file.path for file, _ in chain):
                problems.append(f"its beginning, thread {base['thread_id']}, is missing")
                break
            chain.append((current, bodies.count(base.get("end_byte_offset"))))
        segments, before = [], 0
        for file, end in reversed(chain):
            segments.append(Segment(file, end, before, file.thread != rollout.thread))
            before += end
        return segments

    def _facts(
        self, rollout: Rollout, state: RolloutState, problems: tuple[str, ...]
    ) -> SessionFacts:
        name = rollouts.thread_names(self.home).get(rollout.thread) or state.name
        # Versions differ in what they list for a fork: its own first prompt, or its parent's.
        preview = rollouts.thread_preview(self.home, rollout.thread) if state.own_prompt else None
        status = safe_io.nonempty_file_status(rollout.path)
        moved_at = state.updated_at if status is None else status.st_ctime_ns // 1000
        written_at = state.updated_at
        if state.is_early and status is not None:  # no line has a time
            written_at = status.st_mtime_ns // 1000
        return SessionFacts(
            created_at=state.created_at,
            updated_at=written_at,
            cwd=state.cwd or "/",
            title=name or preview or state.own_prompt,
            title_by="person" if name else "auto",
            model=state.model,
            git_branch=state.git_branch,
            archived_at=moved_at if rollout.is_archived else None,
            deleted_at=moved_at if rollout.is_trashed else None,
            forked_from=state.forked_from,
            parent=state.parent,
            open_since=state.open_since,
            threads=self._threads(rollout.thread, state),
            problems=problems,
            extra=state.extra,
        )

    def _threads(self, thread: str, state: RolloutState) -> tuple[ThreadRef, ...]:
        """Return the threads that a thread started as its subagents, and theirs."""
        if not state.spawns:
            return ()
        children: dict[str, list[tuple[Rollout, dict[str, Any]]]] = {}
        for rollout in rollouts.current_rollouts(self.home).values():
            if rollout.thread > thread:  # ids are in the order of time
                spawn = rollouts.spawned_by(rollouts.head(rollout.path))
                if spawn is not None:
                    parent = str(spawn["parent_thread_id"]).lower()
                    children.setdefault(parent, []).append((rollout, spawn))
        refs: list[ThreadRef] = []
        parents = [thread]
        while parents:
            parent = parents.pop(0)
            for rollout, spawn in sorted(children.pop(parent, []), key=lambda item: item[0].thread):
                refs.append(
                    ThreadRef(
                        id=rollout.thread,
                        key=rollout.path,
                        kind=bodies.text(spawn.get("agent_role")) or None,
                        title=bodies.text(spawn.get("agent_nickname")) or None,
                        parent=None if parent == thread else parent,
                        call_id=state.spawns.get(rollout.thread),
                    )
                )
                parents.append(rollout.thread)
        return tuple(refs)


def _replaces(other: Rollout, rollout: Rollout) -> bool:
    """Return whether a file of the same thread is shown instead of another one."""
    if other.page != rollout.page:
        return other.page > rollout.page
    return packed.is_packed(rollout.path) and not packed.is_packed(other.path)


def _rollout(ref: SessionRef) -> Rollout:
    rollout = rollouts.rollout_of_path(ref.key)
    if rollout is None:
        raise Unreadable("its name is not that of a rollout")
    return rollout

"""Change Codex's threads so that Codex shows the change.

Codex keeps names and the archive in its files, and since 0.128 in a database too. Only its own
program changes the database: an app server renames and archives. A home without a database has a
file of names, which is appended to, and a directory for the archive.

The trash is a directory of segue's. Every version of Codex stops listing a thread whose rollout was
moved there, and lists it again after the rollout was moved back.
"""

from __future__ import annotations

import os

from segue.model.errors import Busy, Conflict, InvalidInput
from segue.sources.base import Edit
from segue.sources.kit.edit import programs

from . import app_server, rollouts
from .rollouts import Rollout

_BY_FILES: frozenset[Edit] = frozenset({"trash", "delete", "fork"})
_BY_PROGRAM: frozenset[Edit] = frozenset({"title", "archive"})


def possible_edits(home: str) -> frozenset[Edit]:
    """Return the edits that Codex would show, with its program if that is installed."""
    if rollouts.state_database(home) is None or app_server.is_installed():
        return _BY_FILES | _BY_PROGRAM
    return _BY_FILES


def rename(home: str, rollout: Rollout, name: str | None) -> None:
    """Give a thread a name; raises InvalidInput for None, since Codex removes no names."""
    if name is None:
        raise InvalidInput("Codex cannot remove a name; enter another one", session=rollout.thread)
    if rollouts.state_database(home) is None:
        rollouts.append_name(home, rollout.thread, name)
        return
    with app_server.running(home) as server:
        if rollout.is_archived:  # Codex renames no archived thread
            server.call("thread/unarchive", threadId=rollout.thread)
        try:
            server.call("thread/name/set", threadId=rollout.thread, name=name)
        finally:
            if rollout.is_archived:
                server.call("thread/archive", threadId=rollout.thread)


def set_archived(home: str, rollout: Rollout, *, archived: bool) -> None:
    """Move a thread to the archive or back; raises Busy while Codex writes it."""
    if rollout.is_archived == archived:
        return
    _require_idle(home, rollout)
    if rollouts.state_database(home) is None:
        path = rollouts.archived_path(home, rollout.path, archived=archived)
        _move(rollout.path, path)
        return
    with app_server.running(home) as server:
        method = "thread/archive" if archived else "thread/unarchive"
        server.call(method, threadId=rollout.thread)


def set_trashed(home: str, rollout: Rollout, *, trashed: bool) -> None:
    """Move a thread with its subagents to the trash or back.

    Raises Busy while Codex writes it, and Conflict if forks need its history: Codex would open
    them no more.
    """
    if rollout.is_trashed == trashed:
        return
    moving = _family(home, rollout.thread)
    if trashed:
        _require_unused(home, moving)
        for file in moving:
            _require_idle(home, file)
    target = rollouts.trash_path if trashed else rollouts.restored_path
    for file in moving:
        if file.is_trashed != trashed:
            _move(file.path, target(home, file.path))


def delete(home: str, rollout: Rollout) -> None:
    """Delete the files of a thread and of its subagents, and their rows of Codex's database."""
    files = _family(home, rollout.thread)
    _require_unused(home, files)
    for file in files:
        _require_idle(home, file)
    for file in files:
        os.unlink(file.path)
    if rollouts.state_database(home) is not None and app_server.is_installed():
        with app_server.running(home) as server:
            for thread in dict.fromkeys(file.thread for file in files):
                try:
                    server.call("thread/delete", threadId=thread)
                except programs.Refused:
                    return  # before 0.144 a row stays, which Codex does not list


def _family(home: str, thread: str) -> list[Rollout]:
    """Return the files of a thread and of its subagents.

    The thread's newest page is the last one. So a move that is interrupted leaves the thread where
    it was, and can be repeated.
    """
    pages: dict[str, list[Rollout]] = {}
    for rollout in rollouts.list_rollouts(home):
        pages.setdefault(rollout.thread, []).append(rollout)
    children: dict[str, list[str]] = {}
    for child, files in pages.items():
        spawn = rollouts.spawned_by(rollouts.head(files[0].path))
        if spawn is not None:
            children.setdefault(str(spawn["parent_thread_id"]).lower(), []).append(child)
    family = [thread]
    for member in family:
        family += [child for child in children.pop(member, []) if child not in family]
    ordered = (sorted(pages.get(member, []), key=_page) for member in reversed(family))
    return [rollout for files in ordered for rollout in files]


def _page(rollout: Rollout) -> str:
    return rollout.page


def _require_unused(home: str, files: list[Rollout]) -> None:
    """Raise Conflict if a thread outside of these files continues the history of one of them."""
    ids, threads = {file.last_id for file in files}, {file.thread for file in files}
    for rollout in rollouts.list_rollouts(home):
        if rollout.is_trashed or rollout.thread in threads:
            continue
        base = rollouts.head(rollout.path).get("history_base")
        if isinstance(base, dict) and base.get("thread_id") in ids:
            raise Conflict(
                f"thread {rollout.thread} is a fork that needs this history; delete it first",
                session=files[-1].thread,
                fork=rollout.thread,
            )


def _require_idle(home: str, rollout: Rollout) -> None:
    if not rollout.is_trashed and rollouts.is_being_written(home, rollout):
        raise Busy(
            f"Codex works on thread {rollout.thread}; try again when it has finished",
            session=rollout.thread,
        )


def _move(path: str, target: str) -> None:
    """Rename a file; raises Conflict if the target exists."""
    if os.path.lexists(target):
        raise Conflict(f"cannot move {os.path.basename(path)}: the target exists")
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    os.rename(path, target)

"""Choose what a sync of memories and files does at one path."""

import pytest

from segue.hub.workdir.memory_sync import Action, choose_action

OLD, NEW, OTHER = "old", "new", "other"


@pytest.mark.parametrize(
    ("file", "memory", "base", "writable", "read_only"),
    [
        (OLD, OLD, OLD, Action.NOTHING, Action.NOTHING),
        (NEW, NEW, OLD, Action.NOTHING, Action.NOTHING),
        # Only one side changed.
        (OLD, NEW, OLD, Action.UPDATE_FILE, Action.UPDATE_FILE),
        (OLD, None, OLD, Action.UPDATE_FILE, Action.UPDATE_FILE),
        (None, NEW, None, Action.UPDATE_FILE, Action.UPDATE_FILE),
        (NEW, OLD, OLD, Action.UPDATE_MEMORY, Action.UPDATE_FILE),
        (None, OLD, OLD, Action.UPDATE_MEMORY, Action.UPDATE_FILE),
        (NEW, None, None, Action.UPDATE_MEMORY, Action.IGNORE_FILE),
        # Both sides changed.
        (NEW, OTHER, OLD, Action.UPDATE_MEMORY, Action.UPDATE_FILE),
        (NEW, None, OLD, Action.UPDATE_MEMORY, Action.IGNORE_FILE),
        (None, NEW, OLD, Action.UPDATE_FILE, Action.UPDATE_FILE),
    ],
)
def test_action_follows_from_which_side_changed(
    file: str | None, memory: str | None, base: str | None, writable: Action, read_only: Action
) -> None:
    assert choose_action(file=file, memory=memory, base=base, writable=True) is writable
    assert choose_action(file=file, memory=memory, base=base, writable=False) is read_only

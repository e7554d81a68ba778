"""Change Kimi Code's sessions as Kimi Code does."""

from __future__ import annotations

import os
import shutil
from typing import Any

import msgspec

from segue.model import clock
from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.kit import files
from segue.sources.kit.reader import Unreadable


def change_state(directory: str, info: InfoChanged) -> None:
    """Change the title or the archive of a session; its other fields stay as they are."""
    path = os.path.join(directory, "state.json")
    state = files.read_json(path)
    if not state:
        raise Unreadable("its state.json is missing or damaged, so it cannot be changed")
    if info.title is None:
        for name in ("title", "titleKind"):
            state.pop(name, None)
        state["isCustomTitle"] = False
    elif isinstance(info.title, str):
        state |= {"title": info.title, "titleKind": "custom", "isCustomTitle": True}
    if info.archived is True:
        state |= {"archived": True, "archivedAt": clock.now() // 1000}
    elif info.archived is False:
        state["archived"] = False
        state.pop("archivedAt", None)
    safe_io.replace_file(path, msgspec.json.encode(state))


def delete_session(home: str, directory: str) -> None:
    """Delete a session; a line in the index of sessions says so."""
    shutil.rmtree(directory)
    record: dict[str, Any] = {"sessionId": os.path.basename(directory), "deleted": True}
    index = os.path.join(home, "session_index.jsonl")
    if safe_io.nonempty_file_status(index) is not None:
        with open(index, "ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

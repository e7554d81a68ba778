"""Sessions that a tool keeps in files are moved to a trash in its home, and back."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from segue.model.errors import Conflict, InvalidInput
from segue.model.event import InfoChanged
from segue.sources.kit.edit.file_trash import FileTrash
from segue.testing import ToolSessions
from tests.sources.copilot.session_files import CopilotSessions
from tests.sources.gemini.chat_files import GeminiSessions
from tests.sources.kimi.session_files import KimiSessions
from tests.sources.qwen.chat_files import QwenSessions

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def tree(directory: Path) -> dict[str, bytes | None]:
    """Return all files of a directory with their content, and its directories."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


@pytest.mark.parametrize(
    "tool_sessions",
    [CopilotSessions, GeminiSessions, QwenSessions, KimiSessions],
    ids=lambda tool: tool.__module__.split(".")[2],
)
async def test_restored_session_has_all_its_files_again(
    tool_sessions: Callable[[Path, Path], ToolSessions], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    tool = tool_sessions(home, tmp_path / "index")
    other = await tool.create("another question", "reply", cwd="/work", at=AT)
    id = await tool.create("a question", "reply", cwd="/work", at=AT)
    before = tree(home)
    source = tool.open_source()
    try:
        assert "trash" in source.edits
        session = await source.get(id)
        assert session is not None
        await source.change(id, InfoChanged(deleted=True))
        left = {name for name in tree(home) if "segue-trash" not in name}
        assert (session.native_id or id) not in " ".join(left)
        with pytest.raises(InvalidInput, match="restore it first"):
            await source.change(id, InfoChanged(title="x"))
        await source.change(id, InfoChanged(deleted=False))
        restored = tree(home)
        restored.pop("segue-trash")
        # Kimi Code's index of sessions also says what was deleted.
        assert restored | {"session_index.jsonl": b""} == before | {"session_index.jsonl": b""}
        assert await source.get(id) == session
        await source.change(id, InfoChanged(deleted=True))
        await source.delete(id)
        assert list((home / "segue-trash").iterdir()) == []
        assert await source.get(id) is None
        assert await source.get(other) is not None
    finally:
        await source.close()


def make_files(home: Path) -> list[str]:
    """Write the files of a session, its transcript last, and return their paths."""
    (home / "chats/agents").mkdir(parents=True)
    (home / "chats/agents/one.jsonl").write_text("one")
    (home / "chats/id.notes").write_text("notes")
    (home / "chats/id.jsonl").write_text("transcript")
    return [str(home / name) for name in ("chats/agents", "chats/id.notes", "chats/id.jsonl")]


def test_interrupted_moves_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = make_files(tmp_path)
    before = tree(tmp_path)
    trash = FileTrash(str(tmp_path))
    trash.add("id", paths[:1])  # and the process ended
    trash.add("id", paths[1:])
    (trashed,) = trash.sessions()
    main = str(Path(trashed.directory) / "chats/id.jsonl")
    assert trash.original(main) == paths[-1]
    moved = str(Path(trashed.directory) / "chats/id.notes")
    Path(moved).rename(paths[1])  # a restore that was interrupted
    assert trash.restore(main) == paths[-1]
    assert {name: data for name, data in tree(tmp_path).items() if name != "segue-trash"} == before


def test_restore_replaces_nothing(tmp_path: Path) -> None:
    paths = make_files(tmp_path)
    trash = FileTrash(str(tmp_path))
    trash.add("id", paths)
    (trashed,) = trash.sessions()
    Path(paths[1]).write_text("other notes")
    with pytest.raises(Conflict, match=r"id\.notes exists"):
        trash.restore(str(Path(trashed.directory) / "chats/id.jsonl"))
    assert not Path(paths[-1]).exists()
    assert (Path(trashed.directory) / "chats/agents/one.jsonl").exists()

"""Directories that segue made for sessions, and that are not on this machine."""

import shutil
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.event import Failed
from segue.model.principal import LOCAL, Principal
from segue.store.sqlite import SQLiteStore

KEY = Principal(workspace="local", key_id="key")


async def failures(hub: Hub, id: str) -> list[Failed]:
    return [
        event.body async for event in hub.history.read(LOCAL, id) if isinstance(event.body, Failed)
    ]


@pytest.mark.parametrize("caller", [LOCAL, KEY], ids=["local", "key"])
async def test_missing_directory_is_made_again_and_lost_files_are_reported(
    tmp_path: Path, caller: Principal
) -> None:
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub:
        session = await hub.editor.create(caller)
        shutil.rmtree(session.cwd)
        assert await hub.turns.run(caller, session.id, "/say one") == "end_turn"
        assert await failures(hub, session.id) == []  # the first turn has lost nothing
        assert Path(session.cwd).is_dir()
        shutil.rmtree(session.cwd)
        assert await hub.turns.run(caller, session.id, "/say two") == "end_turn"
        assert Path(session.cwd).is_dir()
        (failure,) = await failures(hub, session.id)
        assert "was made again without the files of earlier turns" in failure.message
        assert "--data-dir (SEGUE_DATA_DIR)" in failure.message


async def test_directory_in_another_data_directory_is_an_error_that_names_the_setting(
    tmp_path: Path,
) -> None:
    async with (
        Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path / "a") as first,
        Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path / "b") as second,
    ):
        session = await first.editor.create(LOCAL)
        fork = await first.editor.fork(LOCAL, session.id)
        shutil.rmtree(tmp_path / "a")  # it is on another machine
        for id in (session.id, fork.id):
            assert await second.turns.run(LOCAL, id, "/say hi") == "error"
            (failure,) = await failures(second, id)
            assert session.cwd in failure.message
            assert "--data-dir (SEGUE_DATA_DIR)" in failure.message
        assert not (tmp_path / "a").exists()


async def test_missing_directory_of_the_user_is_not_made(tmp_path: Path) -> None:
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path / "data") as hub:
        session = await hub.editor.create(LOCAL, cwd=str(tmp_path / "project"))
        assert await hub.turns.run(LOCAL, session.id, "/say hi") == "end_turn"
        assert await failures(hub, session.id) == []
        assert not (tmp_path / "project").exists()

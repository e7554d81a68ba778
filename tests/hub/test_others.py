"""Another agent's own sessions, as it lists them: a real one, which is ours over another store."""

import shlex
import sys
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.hub.sync import acp_source
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.store.sqlite import SQLiteStore


async def test_what_is_gone_from_a_directory_asked_for_earlier_is_listed_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_source, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(acp_source, "MOST_LISTS", 2)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    words = [sys.executable, "-m", "segue", "acp", "--data-dir", str(theirs)]
    async with (
        Hub(SQLiteStore.open(theirs / "segue.db"), theirs) as other,
        Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub,
    ):
        places = [str(tmp_path / name) for name in "abcd"]
        made = [await other.editor.create(LOCAL, cwd=place, title="x") for place in places]
        await hub.agents.register_agent(
            LOCAL, "theirs", {"kind": "acp", "command": shlex.join(words)}
        )
        (source,) = hub.sources
        assert isinstance(source, acp_source.OtherAgent)

        async def listed(cwd: str | None = None) -> set[str]:
            return {row.id for row in (await hub.sessions.list(LOCAL, Query(cwd=cwd))).sessions}

        for place, session in zip(places, made, strict=True):
            assert await listed(place) == {session.id}
        assert source._lists.keys() == {None, *places[1:]}  # as many as are kept up with
        await other.editor.trash(LOCAL, made[1].id)
        assert await listed() == {made[0].id, made[2].id, made[3].id}

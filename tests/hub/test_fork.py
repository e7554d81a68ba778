"""Fork sessions, and purge forks."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.content import as_content
from segue.model.errors import InvalidInput
from segue.model.event import (
    StatusChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL

MakeHub = Callable[..., Hub]


async def test_fork_copies_the_history_up_to_an_event_and_ends_its_open_calls(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        parent = await hub.editor.create(LOCAL, cwd="/p", title="Plans", metadata={"k": "v"})
        await hub.editor.append(
            LOCAL,
            parent.id,
            StatusChanged(status="running", turn="t"),
            UserMessage(content=as_content("do it")),
            ToolCall(call_id="c", name="bash"),
            ToolResult(call_id="c"),
            StatusChanged(status="idle", stop_reason="end_turn", turn="t"),
        )
        full_fork = await hub.editor.fork(LOCAL, parent.id)
        assert (full_fork.title, full_fork.cwd, full_fork.metadata) == (
            "Plans (fork)",
            "/p",
            {"k": "v"},
        )
        assert full_fork.fork is not None and full_fork.fork.session == parent.id
        call = next(
            event
            for event in await hub.history.events(LOCAL, parent.id)
            if event.type == "tool_call"
        )
        partial_fork = await hub.editor.fork(LOCAL, parent.id, at=call.seq, title="Cut", cwd="/q")
        assert (
            partial_fork.status,
            partial_fork.turn,
            partial_fork.open_calls,
            partial_fork.title,
        ) == ("idle", None, (), "Cut")
        results = [
            event.body
            for event in await hub.history.events(LOCAL, partial_fork.id)
            if event.type == "tool_result"
        ]
        assert [(body.call_id, body.status) for body in results] == [("c", "cancelled")]
        with pytest.raises(InvalidInput):
            await hub.editor.fork(LOCAL, parent.id, at=99)


@pytest.mark.parametrize("path", ["work/..", "work/mine", "work/.", "mine/work"])
async def test_purging_a_fork_keeps_directories_that_segue_did_not_create(
    make_hub: MakeHub, tmp_path: Path, path: str
) -> None:
    user_file = tmp_path / "work" / "mine" / "kept"
    user_file.parent.mkdir(parents=True)
    user_file.touch()
    (tmp_path / "mine" / "work").mkdir(parents=True)
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/")
        fork = await hub.editor.fork(LOCAL, session.id, cwd=f"{tmp_path}/{path}")
        await hub.editor.purge(LOCAL, fork.id)
        assert user_file.exists() and (tmp_path / "mine" / "work").exists()


async def test_purging_the_last_fork_deletes_the_directory_for_any_form_of_its_path(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        Path(f"{session.cwd}.json").write_text("{}")
        fork = await hub.editor.fork(LOCAL, session.id, cwd=f"{session.cwd}/")
        await hub.editor.purge(LOCAL, session.id)
        assert os.path.isdir(fork.cwd)
        await hub.editor.purge(LOCAL, fork.id)
        assert list((tmp_path / "work").iterdir()) == []


async def test_fork_of_an_archived_session_is_active(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        parent = await hub.editor.create(LOCAL)
        await hub.editor.archive(LOCAL, parent.id)
        assert (await hub.editor.fork(LOCAL, parent.id)).state == "active"


async def test_fork_of_a_terminated_session_can_be_prompted(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        parent = await hub.editor.create(LOCAL)
        await hub.editor.append(LOCAL, parent.id, StatusChanged(status="terminated"))
        fork = await hub.editor.fork(LOCAL, parent.id)
        assert (fork.status, fork.terminated_at) == ("idle", None)
        assert await hub.turns.run(LOCAL, fork.id, "continue") == "end_turn"

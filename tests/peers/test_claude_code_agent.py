"""Claude Code answers prompts of segue and continues in its own file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

import segue
from segue import claude
from segue.model.event import AgentRef, Event, PermissionAsked
from tests.peers.test_claude_cli import Claude, cli, user_texts  # noqa: F401

pytestmark = pytest.mark.full
PATIENCE = 400.0  # seconds; only a test that fails comes near it


@pytest.fixture(autouse=True)
def surroundings(
    cli: Claude,  # noqa: F811
    claude_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(claude_program.parent.parent.parent))
    for name, value in cli.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SEGUE_DATA_DIR", str(tmp_path / "data"))


async def new_session(hub: segue.Hub, cli: Claude) -> segue.Session:  # noqa: F811
    built_in = await hub.records.built_in_agent("local")
    agent = AgentRef(id=built_in.id, version=built_in.version, overrides={"kind": "claude_code"})
    return await hub.editor.create(segue.LOCAL, cwd=str(cli.project), agent=agent)


async def spoken(hub: segue.Hub, id: str) -> list[str]:
    return [
        block.text
        async for event in hub.history.read(segue.LOCAL, id)
        if event.type in ("user_message", "agent_message")
        for block in event.body.content
    ]


async def test_claude_code_resumes_its_own_session_without_duplicates(
    cli: Claude,  # noqa: F811
) -> None:
    id = cli.say("first words")
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        async with asyncio.timeout(PATIENCE):
            assert await hub.turns.run(segue.LOCAL, id, "second words") == "end_turn"
        assert await spoken(hub, id) == ["first words", "answer 1", "second words", "answer 2"]
        assert user_texts(id) == ["first words", "second words"]  # in its file
        await asyncio.to_thread(cli.say, "third words", None, id)
        async with asyncio.timeout(PATIENCE):
            assert await hub.turns.run(segue.LOCAL, id, "fourth words") == "end_turn"
        texts = await spoken(hub, id)
        assert texts[-4:] == ["third words", "answer 3", "fourth words", "answer 4"]
        assert len(texts) == 8
        assert [info.session_id for info in await segue.list_sessions(store=hub)] == [id]
    assert user_texts(id) == ["first words", "second words", "third words", "fourth words"]
    assert claude.doctor(id).healthy


async def test_session_started_in_segue_is_a_claude_code_session_too(cli: Claude) -> None:  # noqa: F811
    async with await segue.open_hub() as hub:
        session = await new_session(hub, cli)
        for words in ("first words", "second words"):
            async with asyncio.timeout(PATIENCE):
                assert await hub.turns.run(segue.LOCAL, session.id, words) == "end_turn"
        assert await spoken(hub, session.id) == [
            "first words",
            "answer 1",
            "second words",
            "answer 2",
        ]
        assert len((await hub.sessions.list(segue.LOCAL)).sessions) == 1
        assert (await hub.sessions.get(segue.LOCAL, session.id)).usage.input_tokens > 0
    assert user_texts(session.id) == ["first words", "second words"]


@pytest.mark.parametrize(
    ("option", "given", "made"),
    [
        ("allow", None, ["made.txt"]),
        ("allow", {"command": "touch other.txt"}, ["other.txt"]),
        ("reject", None, []),
    ],
)
async def test_claude_code_tools_request_permission_through_segue(
    cli: Claude,  # noqa: F811
    option: str,
    given: dict[str, Any] | None,
    made: list[str],
) -> None:
    cli.model.calls = {"Bash": {"command": "touch made.txt", "description": "make a file"}}
    async with await segue.open_hub() as hub:
        session = await new_session(hub, cli)
        await hub.turns.submit(segue.LOCAL, session.id, "make it")
        kinds: list[str] = []
        async with asyncio.timeout(PATIENCE):
            async for event in hub.history.follow(segue.LOCAL, session.id):
                assert isinstance(event, Event)
                kinds.append(event.type)
                body: Any = event.body
                if isinstance(body, PermissionAsked):
                    await hub.turns.answer(
                        segue.LOCAL, session.id, body.ask_id, option, input=given
                    )
                if getattr(body, "stop_reason", None) not in (None, "requires_action"):
                    assert body.stop_reason == "end_turn"
                    break
    assert kinds.count("permission_asked") == kinds.count("tool_result") == 1
    assert [path.name for path in cli.project.glob("*.txt")] == made


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def test_cancelled_turn_ends_the_claude_code_process(cli: Claude) -> None:  # noqa: F811
    cli.model.silent = threading.Event()
    async with asyncio.timeout(PATIENCE), await segue.open_hub() as hub:
        session = await new_session(hub, cli)
        turn = await hub.turns.submit(segue.LOCAL, session.id, "never mind")
        while not cli.model.asked:
            await asyncio.sleep(0.05)
        programs = [process for process in psutil.Process().children() if cli.is_program(process)]
        programs += [below for process in programs for below in process.children(recursive=True)]
        assert programs
        await hub.turns.cancel(segue.LOCAL, session.id)
        assert await hub.turns.wait(segue.LOCAL, session.id, turn) == "cancelled"
        while any(alive(process) for process in programs):
            await asyncio.sleep(0.05)

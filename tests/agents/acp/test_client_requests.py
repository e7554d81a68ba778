"""Tests of file requests that agent processes send to segue as their client."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from segue.acp.rpc import RpcError
from segue.hub import Hub
from segue.hub.turns.opened import OpenSession
from segue.model.content import plain_text
from segue.model.event import ConfigChanged, Event, PermissionAsked, ToolCall
from segue.model.principal import LOCAL
from segue.model.tools.titles import request_title
from segue.store.memory import MemoryStore

PROGRAM = Path(__file__).parent / "programs" / "asking.py"


class AgentSession:
    """A session with an agent process that sends scripted requests."""

    def __init__(self, hub: Hub, id: str, opened: OpenSession) -> None:
        self.hub, self.id, self.opened = hub, id, opened
        self.permission_titles: list[str] = []

    async def __call__(
        self, *requests: Any, answer: str = "allow", input: dict[str, Any] | None = None
    ) -> list[Any]:
        """Let the process send requests, and return the answers."""
        seq = (await self.hub.sessions.get(LOCAL, self.id)).last_seq
        await self.hub.turns.submit(LOCAL, self.id, json.dumps(requests), opened=self.opened)
        calls: dict[str | None, ToolCall] = {}
        async for item in self.hub.history.follow(LOCAL, self.id, seq):
            assert isinstance(item, Event)
            if isinstance(item.body, ToolCall):
                calls[item.body.call_id] = item.body
            if isinstance(item.body, PermissionAsked):
                title = request_title(item.body, calls.get(item.body.call_id))
                self.permission_titles.append(title)
                await self.hub.turns.answer(LOCAL, self.id, item.body.ask_id, answer, input=input)
            if getattr(item.body, "stop_reason", None) not in (None, "requires_action"):
                break
        messages = await self.hub.history.events(LOCAL, self.id, types=["agent_message"])
        answers: list[Any] = json.loads(plain_text(messages[-1].body.content))
        return answers


@asynccontextmanager
async def open_session(
    home: Path, *args: Any, client: Any = None, **config: Any
) -> AsyncIterator[AgentSession]:
    (home / "cwd").mkdir(exist_ok=True)
    async with Hub(MemoryStore(), home) as hub:
        hub.agent_registry.client_proxy = client
        command = shlex.join([sys.executable, str(PROGRAM), *map(str, args)])
        agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": command})
        id = (await hub.editor.create(LOCAL, cwd=str(home / "cwd"))).id
        if config:
            await hub.editor.configure(LOCAL, id, ConfigChanged(**config))
        opened = await hub.turns.open(LOCAL, id, agent=agent)
        yield AgentSession(hub, id, opened)
        await opened.close()


def read(path: Path, **fields: Any) -> Any:
    return ["fs/read_text_file", {"path": str(path), **fields}]


def write(path: Path, content: Any = "new\n") -> Any:
    return ["fs/write_text_file", {"path": str(path), "content": content}]


async def test_the_process_receives_the_client_capabilities(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        ((client,),) = [await session(["capabilities", {}])]
    assert client["fs"] == {"readTextFile": True, "writeTextFile": True}
    assert "terminal" not in client and "elicitation" not in client
    async with open_session(tmp_path, 2) as session:
        (client,) = await session(["capabilities", {}])
    assert client.keys() == {"auth"}  # version 2 has no file methods


async def test_files_are_read_by_line_ranges(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        path = tmp_path / "cwd" / "a"
        path.write_bytes(b"one\r\ntwo\nthree\n")
        answers = await session(
            read(path),
            read(path, line=2),
            read(path, line=2, limit=1),
            read(path, line=1, limit=0),
            read(path, line=9),
        )
        assert [answer["content"] for answer in answers] == [
            "one\r\ntwo\nthree\n",
            "two\nthree\n",
            "two",
            "",
            "",
        ]
        assert session.permission_titles == []


async def test_missing_and_binary_files_are_errors(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        cwd = tmp_path / "cwd"
        (cwd / "image").write_bytes(b"\xff\xfe\x00")
        answers = await session(
            read(cwd / "gone"),
            read(cwd / "image"),
            read(cwd),
            ["fs/read_text_file", {"path": "relative"}],
            ["fs/read_text_file", {}],
            write(cwd / "a", 7),
            ["terminal/create", {"command": "true"}],
        )
        assert [answer["code"] for answer in answers] == [-32002, *[-32602] * 5, -32601]
        assert "not UTF-8" in answers[1]["message"]


@pytest.mark.parametrize("technique", ["absolute", "dots", "link"])
async def test_files_outside_the_session_directories_are_refused(
    tmp_path: Path, technique: str
) -> None:
    async with open_session(tmp_path) as session:
        secret, cwd = tmp_path / "secret", tmp_path / "cwd"
        secret.write_text("swordfish")
        os.symlink(secret, cwd / "link")
        path = {"absolute": secret, "dots": cwd / ".." / "secret", "link": cwd / "link"}[technique]
        answers = await session(read(path), write(path))
        assert [answer["code"] for answer in answers] == [-32602] * 2
        assert secret.read_text() == "swordfish" and session.permission_titles == []


async def test_files_in_additional_roots_are_readable(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("there")
    async with open_session(tmp_path, roots=(str(other),)) as session:
        assert await session(read(other / "a")) == [{"content": "there"}]


@pytest.mark.parametrize(
    ("mode", "answer", "asked", "written"),
    [
        ("default", "allow", True, True),
        ("default", "reject", True, False),
        ("acceptEdits", "allow", False, True),
        ("plan", "allow", False, False),
        ("bypassPermissions", "reject", False, True),
    ],
)
async def test_writing_follows_the_permission_rules_of_built_in_tools(
    tmp_path: Path, mode: str, answer: str, asked: bool, written: bool
) -> None:
    async with open_session(tmp_path, mode=mode) as session:
        path = tmp_path / "cwd" / "below" / "a"
        (answer_body,) = await session(write(path), answer=answer)
        assert session.permission_titles == ([f"Write {path}"] if asked else [])
        assert path.exists() is written
        assert (answer_body == {}) is written


async def test_an_always_allowed_write_asks_once(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        path = tmp_path / "cwd" / "a"
        await session(write(path, "one"), write(path, "two"), answer="allow_always")
        assert len(session.permission_titles) == 1 and path.read_text() == "two"


async def test_a_write_that_the_agent_asked_about_needs_no_second_permission(
    tmp_path: Path,
) -> None:
    async with open_session(tmp_path) as session:
        path, other = tmp_path / "cwd" / "a", tmp_path / "cwd" / "b"
        diff = {"type": "diff", "path": str(path), "newText": "new\n"}
        call = {"toolCallId": "c", "title": "Edit a", "kind": "edit", "content": [diff]}
        options = [
            {"optionId": "allow", "name": "Yes", "kind": "allow_once"},
            {"optionId": "reject", "name": "No", "kind": "reject_once"},
        ]
        question = ["session/request_permission", {"toolCall": call, "options": options}]
        await session(question, write(path), write(other))
        assert session.permission_titles == ["Edit a", f"Write {other}"]
        assert path.read_text() == other.read_text() == "new\n"
        await session(question, write(path, "newer"), answer="reject")
        assert path.read_text() == "new\n"


async def test_permission_with_a_changed_input_refuses_the_call(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        path = tmp_path / "cwd" / "a"
        option = {"optionId": "allow", "name": "Yes", "kind": "allow_once"}
        call = {"toolCallId": "c", "title": "Run", "rawInput": {"command": "rm"}}
        question = ["session/request_permission", {"toolCall": call, "options": [option]}]
        asked, written = await session(question, write(path), input={"command": "ls"})
        assert asked == {"outcome": {"outcome": "cancelled"}}
        assert "code" in written and not path.exists()


async def test_permission_to_read_a_file_does_not_allow_writing_it(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        path = tmp_path / "cwd" / "a"
        locations = [{"path": str(path)}, {"path": "no\0path"}]
        call = {"toolCallId": "c", "title": "Read a", "kind": "read", "locations": locations}
        options = [{"optionId": "allow", "name": "Yes", "kind": "allow_once"}]
        question = ["session/request_permission", {"toolCall": call, "options": options}]
        await session(question, write(path))
        assert session.permission_titles == ["Read a", f"Write {path}"]
        call["kind"] = "other"
        assert (await session(question, write(path)))[0]["outcome"]["outcome"] == "selected"
        assert session.permission_titles[2:] == ["Read a"]


@pytest.mark.parametrize("kind", ["write", "permission"])
async def test_pending_requests_are_answered_when_the_turn_is_cancelled(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "cwd" / "a"
    option = {"optionId": "allow", "name": "Yes", "kind": "allow_once"}
    call = {"toolCallId": "c", "title": "Edit a"}
    question = ["session/request_permission", {"toolCall": call, "options": [option]}]
    request = write(path) if kind == "write" else question
    others = set(psutil.Process().children(recursive=True))  # such as a database server
    async with open_session(tmp_path, 1, "patient") as session, asyncio.timeout(60):
        await session(["capabilities", {}])  # starts the process
        (child,) = set(psutil.Process().children(recursive=True)) - others
        turn = await session.hub.turns.submit(
            LOCAL, session.id, json.dumps([request]), opened=session.opened
        )
        while not (await session.hub.sessions.get(LOCAL, session.id)).open_asks:
            await asyncio.sleep(0.01)
        await session.hub.turns.cancel(LOCAL, session.id)
        assert await session.hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
        await session(["capabilities", {}])
        after = set(psutil.Process().children(recursive=True)) - others
        assert after == {child}  # the process was not replaced
        assert not path.exists()


class OtherClient:
    """A client that has only other sessions open."""

    version = 1
    initialize_params: Mapping[str, Any] = {}
    methods = frozenset({"fs/read_text_file", "fs/write_text_file", "elicitation/create"})
    forms: Mapping[str, Any] = {"form": {}}

    def has(self, session: str) -> bool:
        return False

    async def request(self, session: str, method: str, params: Mapping[str, Any]) -> Any:
        raise RpcError(-32002, "the session is not open")

    async def extension(self, method: str, params: Any) -> Any:
        raise AssertionError(method)

    async def notify(self, method: str, params: Any) -> None:
        raise AssertionError(method)


async def test_segue_serves_files_of_sessions_that_the_client_does_not_have_open(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cwd" / "a"
    async with open_session(tmp_path, client=OtherClient(), mode="acceptEdits") as session:
        form = {"mode": "form", "message": "Who?", "requestedSchema": {}}
        *answers, refused = await session(write(path), read(path), ["elicitation/create", form])
        assert answers == [{}, {"content": "new\n"}] and refused["code"] == -32002

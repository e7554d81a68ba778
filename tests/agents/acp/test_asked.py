"""What children ask of their client, where no editor is there to be asked: files, served here."""

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
from segue.model.content import plain_text
from segue.model.event import ConfigChanged, Event, PermissionAsked
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore

PROGRAM = Path(__file__).parent / "programs" / "asking.py"


class Talk:
    """One session that the child answers."""

    def __init__(self, hub: Hub, id: str) -> None:
        self.hub, self.id = hub, id
        self.asked: list[str] = []

    async def __call__(
        self, *requests: Any, answer: str = "allow", input: dict[str, Any] | None = None
    ) -> list[Any]:
        """What the child was answered."""
        seq = (await self.hub.sessions.get(LOCAL, self.id)).last_seq
        await self.hub.turns.submit(LOCAL, self.id, json.dumps(requests))
        async for item in self.hub.history.follow(LOCAL, self.id, seq):
            assert isinstance(item, Event)
            if isinstance(item.body, PermissionAsked):
                self.asked.append(item.body.title)
                await self.hub.turns.answer(LOCAL, self.id, item.body.ask_id, answer, input=input)
            if getattr(item.body, "stop_reason", None) not in (None, "requires_action"):
                break
        said = await self.hub.history.events(LOCAL, self.id, types=["agent_message"])
        found: list[Any] = json.loads(plain_text(said[-1].body.content))
        return found


@asynccontextmanager
async def talking(home: Path, *args: Any, editor: Any = None, **more: Any) -> AsyncIterator[Talk]:
    (home / "cwd").mkdir(exist_ok=True)
    async with Hub(MemoryStore(), home) as hub:
        hub.agent_registry.client_proxy = editor
        command = shlex.join([sys.executable, str(PROGRAM), *map(str, args)])
        agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": command})
        id = (await hub.editor.create(LOCAL, cwd=str(home / "cwd"))).id
        if more:
            await hub.editor.configure(LOCAL, id, ConfigChanged(**more))
        hold = await hub.turns.lease(LOCAL, id, agent=agent)
        yield Talk(hub, id)
        await hold.close()


def read(path: Path, **more: Any) -> Any:
    return ["fs/read_text_file", {"path": str(path), **more}]


def write(path: Path, content: Any = "new\n") -> Any:
    return ["fs/write_text_file", {"path": str(path), "content": content}]


async def test_a_child_is_told_what_its_client_can_do(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        ((client,),) = [await talk(["capabilities", {}])]
    assert client["fs"] == {"readTextFile": True, "writeTextFile": True}
    assert "terminal" not in client and "elicitation" not in client
    async with talking(tmp_path, 2) as talk:
        (client,) = await talk(["capabilities", {}])
    assert client.keys() == {"auth"}  # there are no files in version 2


async def test_files_are_read_by_their_lines(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        path = tmp_path / "cwd" / "a"
        path.write_bytes(b"one\r\ntwo\nthree\n")
        found = await talk(
            read(path),
            read(path, line=2),
            read(path, line=2, limit=1),
            read(path, line=1, limit=0),
            read(path, line=9),
        )
        assert [each["content"] for each in found] == [
            "one\r\ntwo\nthree\n",
            "two\nthree\n",
            "two",
            "",
            "",
        ]
        assert talk.asked == []


async def test_what_is_not_there_or_no_text_is_said(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        cwd = tmp_path / "cwd"
        (cwd / "picture").write_bytes(b"\xff\xfe\x00")
        found = await talk(
            read(cwd / "gone"),
            read(cwd / "picture"),
            read(cwd),
            ["fs/read_text_file", {"path": "relative"}],
            ["fs/read_text_file", {}],
            write(cwd / "a", 7),
            ["terminal/create", {"command": "true"}],
        )
        assert [each["code"] for each in found] == [-32002, *[-32602] * 5, -32601]
        assert "not UTF-8" in found[1]["message"]


@pytest.mark.parametrize("way", ["absolute", "dots", "link"])
async def test_nothing_outside_the_session_s_directories_is_reached(
    tmp_path: Path, way: str
) -> None:
    async with talking(tmp_path) as talk:
        secret, cwd = tmp_path / "secret", tmp_path / "cwd"
        secret.write_text("swordfish")
        os.symlink(secret, cwd / "link")
        path = {"absolute": secret, "dots": cwd / ".." / "secret", "link": cwd / "link"}[way]
        found = await talk(read(path), write(path))
        assert [each["code"] for each in found] == [-32602] * 2
        assert secret.read_text() == "swordfish" and talk.asked == []


async def test_further_roots_are_the_session_s_too(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "a").write_text("there")
    async with talking(tmp_path, roots=(str(beside),)) as talk:
        assert await talk(read(beside / "a")) == [{"content": "there"}]


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
async def test_writing_is_asked_for_as_by_our_own_tools(
    tmp_path: Path, mode: str, answer: str, asked: bool, written: bool
) -> None:
    async with talking(tmp_path, mode=mode) as talk:
        path = tmp_path / "cwd" / "below" / "a"
        (found,) = await talk(write(path), answer=answer)
        assert talk.asked == ([f"Write {path}"] if asked else [])
        assert path.exists() is written
        assert (found == {}) is written


async def test_what_is_always_allowed_is_asked_once(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        path = tmp_path / "cwd" / "a"
        await talk(write(path, "one"), write(path, "two"), answer="allow_always")
        assert len(talk.asked) == 1 and path.read_text() == "two"


async def test_what_the_child_asked_about_itself_is_not_asked_again(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        path, other = tmp_path / "cwd" / "a", tmp_path / "cwd" / "b"
        diff = {"type": "diff", "path": str(path), "newText": "new\n"}
        call = {"toolCallId": "c", "title": "Edit a", "kind": "edit", "content": [diff]}
        options = [
            {"optionId": "allow", "name": "Yes", "kind": "allow_once"},
            {"optionId": "reject", "name": "No", "kind": "reject_once"},
        ]
        question = ["session/request_permission", {"toolCall": call, "options": options}]
        await talk(question, write(path), write(other))
        assert talk.asked == ["Edit a", f"Write {other}"]
        assert path.read_text() == other.read_text() == "new\n"
        await talk(question, write(path, "newer"), answer="reject")
        assert path.read_text() == "new\n"


async def test_what_is_allowed_with_another_input_alone_is_not_done(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        path = tmp_path / "cwd" / "a"
        option = {"optionId": "allow", "name": "Yes", "kind": "allow_once"}
        call = {"toolCallId": "c", "title": "Run", "rawInput": {"command": "rm"}}
        question = ["session/request_permission", {"toolCall": call, "options": [option]}]
        asked, written = await talk(question, write(path), input={"command": "ls"})
        assert asked == {"outcome": {"outcome": "cancelled"}}
        assert "code" in written and not path.exists()


async def test_to_look_at_a_file_is_not_to_write_it(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        path = tmp_path / "cwd" / "a"
        places = [{"path": str(path)}, {"path": "no\0path"}]
        call = {"toolCallId": "c", "title": "Read a", "kind": "read", "locations": places}
        options = [{"optionId": "allow", "name": "Yes", "kind": "allow_once"}]
        question = ["session/request_permission", {"toolCall": call, "options": options}]
        await talk(question, write(path))
        assert talk.asked == ["Read a", f"Write {path}"]
        call["kind"] = "other"
        assert (await talk(question, write(path)))[0]["outcome"]["outcome"] == "selected"
        assert talk.asked[2:] == ["Read a"]


@pytest.mark.parametrize("what", ["write", "permission"])
async def test_what_is_asked_when_the_turn_is_cancelled_is_answered(
    tmp_path: Path, what: str
) -> None:
    path = tmp_path / "cwd" / "a"
    option = {"optionId": "allow", "name": "Yes", "kind": "allow_once"}
    call = {"toolCallId": "c", "title": "Edit a"}
    question = ["session/request_permission", {"toolCall": call, "options": [option]}]
    request = write(path) if what == "write" else question
    others = set(psutil.Process().children(recursive=True))  # such as a database's
    async with talking(tmp_path, 1, "patient") as talk, asyncio.timeout(60):
        await talk(["capabilities", {}])  # so that the child is there
        (child,) = set(psutil.Process().children(recursive=True)) - others
        turn = await talk.hub.turns.submit(LOCAL, talk.id, json.dumps([request]))
        while not (await talk.hub.sessions.get(LOCAL, talk.id)).open_asks:
            await asyncio.sleep(0.01)
        await talk.hub.turns.cancel(LOCAL, talk.id)
        assert await talk.hub.turns.wait(LOCAL, talk.id, turn) == "cancelled"
        await talk(["capabilities", {}])
        after = set(psutil.Process().children(recursive=True)) - others
        assert after == {child}  # it had obeyed
        assert not path.exists()


class Elsewhere:
    """An editor that has other sessions open."""

    methods = frozenset({"fs/read_text_file", "fs/write_text_file", "elicitation/create"})
    forms: Mapping[str, Any] = {"form": {}}

    def has(self, session: str) -> bool:
        return False

    async def request(self, session: str, method: str, params: Mapping[str, Any]) -> Any:
        raise RpcError(-32002, "the session is not open")

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        raise AssertionError(method)


async def test_files_of_a_session_that_the_editor_has_not_open_are_served_here(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cwd" / "a"
    async with talking(tmp_path, editor=Elsewhere(), mode="acceptEdits") as talk:
        form = {"mode": "form", "message": "Who?", "requestedSchema": {}}
        *found, refused = await talk(write(path), read(path), ["elicitation/create", form])
        assert found == [{}, {"content": "new\n"}] and refused["code"] == -32002

"""Every interface stores the same events for the same scripted turn."""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

import segue
from segue.model import ids
from segue.model.event import ConfigChanged, Created, Event, InfoChanged, PermissionAsked
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from tests.interfaces.acp.testbed import AcpTestbed
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_turns import rests, until
from tests.interfaces.web.site import Site, open_site

from .conftest import TIMEOUT_SECONDS
from .provider import Provider, Say, Step, Think, Use

ASK = "How many lines?"
MODEL = "anthropic:claude-sonnet-4-6"


def script(request: dict[str, Any]) -> Sequence[Step]:
    """Think, say, read, search and write, which needs permission; then say how it went."""
    if request["messages"][-1]["content"][-1]["type"] == "tool_result":
        return [Say("Two lines, as you can see.")]
    return [
        Think("a file, then"),
        Say("I look."),
        Use("read", {"file_path": "a.txt"}),
        Use("grep", {"pattern": "("}),
        Use("write", {"file_path": "b.txt", "content": "x"}),
    ]


def normalized(events: list[Event], cwd: str) -> list[Any]:
    """Return events without the values that differ between sessions."""
    names: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            ignored = ("extra", "duration", "asked_at")
            return {key: plain(item) for key, item in value.items() if key not in ignored}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, str) and ids.parse(value) == value:
            return names.setdefault(value, f"id {len(names)}")
        return value.replace(cwd, "CWD") if isinstance(value, str) else value

    return [
        plain(msgspec.to_builtins(event.body))
        for event in events
        if not isinstance(event.body, Created | InfoChanged | ConfigChanged)
    ]


async def prompt_in_terminal(cwd: Path, data: Path) -> None:
    """Run `segue prompt` in a terminal, and answer its permission request."""
    controller, terminal_fd = os.openpty()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "prompt", "new", ASK),
        cwd=cwd,
        env={**os.environ, "SEGUE_DATA_DIR": str(data)},
        stdin=terminal_fd,
        stdout=terminal_fd,
        stderr=terminal_fd,
    )
    os.close(terminal_fd)
    output, answered = b"", False
    with (
        os.fdopen(controller, "r+b", buffering=0) as terminal,
        suppress(OSError),
    ):  # reading fails at the end
        while chunk := await asyncio.to_thread(terminal.read, 65536):
            output += chunk
            if b"Your choice" in output and not answered:
                answered = True
                terminal.write(b"1\n")
    plain = re.sub(rb"\x1b\[\d*m", b"", output)
    assert await child.wait() == 0 and b"Two lines, as you can see." in plain, output


async def prompt_over_rest(api: Api, session: str) -> list[dict[str, Any]]:
    """Send a prompt over REST, confirm the tool call and return the events."""
    await api.send(session, message(ASK))
    events = await until(api, session, rests(1))
    use = next(event for event in events if event.get("name") == "write")
    assert use["evaluated_permission"] == "ask"
    confirmed = {"type": "user.tool_confirmation", "tool_use_id": use["id"], "result": "allow"}
    await api.send(session, confirmed)
    return await until(api, session, rests(2))


async def prompt_in_browser(site: Site, cwd: Path) -> str:
    """Send a prompt in the session browser, allow the tool call and return the session id."""
    response = await site.post("/new", project=str(cwd), text=ASK)
    page = urlsplit(response.headers["location"]).path
    id = page.rpartition("/")[2]
    async for event in site.hub.history.follow(LOCAL, id):
        assert isinstance(event, Event)
        if isinstance(event.body, PermissionAsked):
            choice = f"{event.body.ask_id} allow"
            assert f'value="{choice}"' in await site.get(page)
            await site.post(f"{page}/answer", choice=choice)
        if getattr(event.body, "stop_reason", None) == "end_turn":
            break
    return id


def without_waiting(bodies: list[Any]) -> list[Any]:
    """Return the bodies with each answer after its request, without the status of waiting.

    Parallel calls may end before an answer arrives: the turn waits then. In any case it stores that
    it runs again.
    """
    answers = {body["ask_id"]: body for body in bodies if body["type"] == "permission_answered"}
    ordered: list[Any] = []
    started = False
    for body in bodies:
        if body["type"] == "status_changed" and body["status"] == "running" and started:
            continue
        started = started or body["type"] == "status_changed"
        if body["type"] != "permission_answered" and not body.get("pending"):
            ordered.append(body)
        if body["type"] == "permission_asked":
            ordered.append(answers[body["ask_id"]])
    return ordered


async def test_every_interface_stores_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    acp = AcpTestbed(tmp_path)
    cwd = tmp_path / "work"
    cwd.mkdir()
    (cwd / "a.txt").write_text("one\ntwo\n")
    histories: dict[str, list[Any]] = {}
    async with Provider() as provider, asyncio.timeout(3 * TIMEOUT_SECONDS):
        provider.otherwise = script
        async with acp.hub() as hub:
            await hub.config.set("local", "model", MODEL)
            await hub.config.set("local", "model.base_url", provider.url)

            async def stored_events(id: str) -> list[Any]:
                session_cwd = (await hub.sessions.get(LOCAL, id)).cwd
                assert Path(session_cwd, "b.txt").read_text() == "x"
                Path(session_cwd, "b.txt").unlink()
                events = [event async for event in hub.history.read(LOCAL, id)]
                return without_waiting(normalized(events, session_cwd))

            async def allow(name: str, arguments: Any) -> bool:
                return name == "write"

            async with segue.create_session(
                model=MODEL, cwd=cwd, store=hub, can_use_tool=allow
            ) as session:
                await session.send(ASK)
                messages = [message async for message in session.stream()]
            assert messages[-1].result == "Two lines, as you can see."
            histories["python"] = await stored_events(session.session_id)

            for version in (1, 2):
                async with acp.connect_in_process(version) as client:
                    id = await client.new_session(cwd)
                    await client.run_prompt(id, ASK)
                    assert len(client.permission_requests) == 1
                    histories[f"acp {version}"] = await stored_events(id)

            await prompt_in_terminal(cwd, acp.data)
            newest = (await hub.sessions.list(LOCAL)).sessions[0]
            histories["cli"] = await stored_events(newest.id)

            async with open_api(tmp_path, store=SQLiteStore.open(acp.data / "segue.db")) as api:
                row = await api.session()
                id = ids.parse(row["id"]) or ""
                (Path((await hub.sessions.get(LOCAL, id)).cwd) / "a.txt").write_text("one\ntwo\n")
                events = await prompt_over_rest(api, row["id"])
                use = next(event for event in events if event["type"] == "agent.tool_use")
                assert use["evaluated_permission"] == "allow"
                allowed = {"type": "allow"}
                assert use["evaluation"] == {"type": "auto", "evaluated_permission": allowed}
                histories["rest"] = await stored_events(id)

            async with open_site(acp.data) as site:
                histories["web"] = await stored_events(await prompt_in_browser(site, cwd))
    first = histories.pop("python")
    kinds = [body["type"] for body in first]
    assert kinds.count("tool_result") == 3 and kinds.count("agent_message") == 2
    assert kinds.count("permission_answered") == 1
    assert histories.keys() == {"acp 1", "acp 2", "cli", "rest", "web"}
    for interface, history in histories.items():
        if interface == "rest":
            # Only requests in turns of the local user are for the local user alone.
            history = [
                {**body, "local": True} if body["type"] == "permission_asked" else body
                for body in history
            ]
        assert history == first, interface

"""Export sessions as Markdown and HTML documents."""

import re
import threading
from pathlib import Path
from typing import Any

import html5lib
import pytest
from markdown_it import MarkdownIt

from segue.hub import Hub
from segue.hub.history.reader import HistoryReader
from segue.model.content import Image, as_content
from segue.model.event import (
    AgentMessage,
    Event,
    Option,
    PermissionAnswered,
    PermissionAsked,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.render import documents
from segue.render.text import markdown
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
from tests.claude.entries import Home as Claude
from tests.claude.entries import S
from tests.claude.helpers import write_session_with_subagent


@pytest.mark.parametrize("document", [documents.markdown, documents.html])
async def test_a_long_session_is_read_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any
) -> None:
    reads: list[int] = []
    events = HistoryReader.events

    async def count_events(*args: Any, **options: Any) -> list[Event]:
        page = await events(*args, **options)
        reads.append(len(page))
        return page

    async with Hub(MemoryStore(), tmp_path) as hub:
        id = (await hub.editor.create(LOCAL, title="Long")).id
        for first in range(0, 1500, 500):
            await hub.editor.append(
                LOCAL,
                id,
                *(UserMessage(content=as_content(f"w{at}w")) for at in range(first, first + 500)),
            )
        session = await hub.sessions.get(LOCAL, id)
        monkeypatch.setattr(HistoryReader, "events", count_events)
        events_read: dict[int, int] = {}  # by message: how many events had been read by then
        text = ""
        async for piece in document(hub.history, LOCAL, session):
            text += piece
            events_read |= {int(at): sum(reads) for at in re.findall(r"w(\d+)w", piece)}
    assert sorted(events_read) == list(range(1500)) and text.count("w1499w") == 1
    assert events_read[0] <= 600 and max(reads) <= 600


async def test_markdown_contains_threads_and_permission_requests(tmp_path: Path) -> None:
    home = Claude(tmp_path / "claude")
    write_session_with_subagent(home)
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(home.root)))
    async with Hub(MemoryStore(), tmp_path, sources=[source]) as hub:
        session = await hub.sessions.get(LOCAL, S)
        text = "".join([piece async for piece in documents.markdown(hub.history, LOCAL, session)])
        assert "> **What the agent did** count birds\n\n> *asked*\n\n> Count them\n" in text
        assert "> *said*\n\n> A kingfisher, too\n" in text and "\nNine.\n" in text
        session = await hub.editor.create(LOCAL)
        option = Option(id="y", name="Yes, once", kind="allow_once")
        await hub.editor.append(
            LOCAL,
            session.id,
            ToolCall(call_id="c", name="paint", input={}),
            PermissionAsked(ask_id="q", title="Paint it?", options=(option,), call_id="c"),
            PermissionAnswered(ask_id="q", option="y"),
            ToolResult(
                call_id="c", status="failed", content=(Image(data="aGk=", mime="image/png"),)
            ),
        )
        session = await hub.sessions.get(LOCAL, session.id)
        text = "".join([piece async for piece in documents.markdown(hub.history, LOCAL, session)])
        assert "**paint**\n\n*(failed)*\n\n*(image)*\n\n*Asked: Paint it?* Yes, once\n" in text


async def test_a_document_names_the_author_of_each_message(tmp_path: Path) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        id = (await hub.editor.create(LOCAL, title="Odd \ud800\n<b>")).id
        await hub.editor.append(
            LOCAL,
            id,
            UserMessage(content=as_content("why \x1b[31m?")),
            AgentMessage(content=as_content("**so**")),
        )
        session = await hub.sessions.get(LOCAL, id)
        text = "".join([piece async for piece in documents.markdown(hub.history, LOCAL, session)])
        page = "".join([piece async for piece in documents.html(hub.history, LOCAL, session)])
    assert text.startswith("# Odd \ufffd <b>\n\n- Session ") and "- 2 messages\n" in text
    assert "## You · " in text and "why \ufffd[31m?" in text
    assert text.index("## Agent · ") < text.index("**so**")
    html5lib.HTMLParser(strict=True).parse(page)
    assert "<h1>Odd \ufffd\n&lt;b&gt;</h1>" in page and "<strong>so</strong>" in page


@pytest.mark.parametrize(
    ("message", "rendered"),
    [
        ("```py\nprint(1)", "```py\nprint(1)\n```"),
        ("~~~~\n```\n~~~", "~~~~\n```\n~~~\n~~~~"),
        ("1. so\n\n   ```\n   code", "1. so\n\n   ```\n   code\n   ```"),
        ("```\n````  \n```no```", "```\n````  \n```no```"),
        ("    ```", "    ```"),
    ],
)
async def test_an_open_code_fence_is_closed_at_the_end_of_the_message(
    tmp_path: Path, message: str, rendered: str
) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        id = (await hub.editor.create(LOCAL)).id
        call = ToolCall(call_id="c", name="ls", input={})
        result = ToolResult(call_id="c", content=as_content("\x1b[01;34mbin\x1b[0m"))
        await hub.editor.append(LOCAL, id, AgentMessage(content=as_content(message), partial=True))
        await hub.editor.append(LOCAL, id, call, result)
        session = await hub.sessions.get(LOCAL, id)
        text = "".join([piece async for piece in documents.markdown(hub.history, LOCAL, session)])
    assert text.endswith(f"\n\n{rendered}\n\n**ls**\n\n```\nbin\n```\n\n")
    ends = [token.content for token in MarkdownIt().parse(text)[-4:] if token.content]
    assert ends == ["**ls**", "bin\n"]


async def test_an_html_export_is_rendered_outside_the_event_loop_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def record_thread(text: str) -> str:
        threads.append(threading.current_thread())
        return text

    monkeypatch.setattr(markdown, "_markdown", record_thread)
    async with Hub(MemoryStore(), tmp_path) as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.append(LOCAL, id, *[AgentMessage(content=as_content("so"))] * 30)
        session = await hub.sessions.get(LOCAL, id)
        assert len([piece async for piece in documents.html(hub.history, LOCAL, session)]) > 3
    assert len(threads) == 30 and threading.current_thread() not in threads

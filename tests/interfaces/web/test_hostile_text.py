"""Hostile text in a transcript runs nothing in the pages and exports."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from segue.hub import Hub
from segue.model import ids
from segue.model.content import Diff, Image, Resource, ResourceLink, Text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Created,
    Failed,
    InfoChanged,
    Location,
    ModelCalled,
    Option,
    PermissionAsked,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.render.text.markdown import MAX_MARKDOWN_CHARACTERS, code, markdown, sendable
from tests.claude.test_user_markup import message
from tests.interfaces.web.harness import BrowserHarness
from tests.interfaces.web.site import open_site

HOSTILE_TEXTS = [
    "<script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 2'>",
    "<svg/onload=window.owned=3>",
    "</textarea></title></style></script><script>window.owned=4</script>",
    '"><script>window.owned=5</script>',
    "[click](javascript:window.owned=6)",
    "[click](JaVaScRiPt&colon;window.owned=7)",
    "[click](data:text/html,<script>window.owned=8</script>)",
    "![x](https://evil.example/pixel.png)",
    "![x](javascript:window.owned=9)",
    "<iframe src='https://evil.example'></iframe>",
    "<form action='https://evil.example'><input name=csrf></form>",
    "<base href='https://evil.example'><meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<link rel=stylesheet href='https://evil.example/x.css'><style>@import 'https://evil.example'</style>",
    "<a href='#' onclick='window.owned=10' style='position:fixed;inset:0'>x</a>",
    "```html\n</code></pre><script>window.owned=11</script>\n```",
    '```"><script>window.owned=12</script>\nx\n```',
    "| a |\n|---|\n| <script>window.owned=13</script> |",
    'https://evil.example/"onmouseover="window.owned=14',
    "{{ 7 * 7 }}{% raw %}",
    "\0 \ud800 \u202e \x1b[31m",
    "<![CDATA[<script>window.owned=15</script>]]><!-- --!><script>window.owned=16</script>",
    "<math><mtext><table><mglyph><style><!--</style>"
    "<img title='--&gt;&lt;img src=1 onerror=window.owned=17&gt;'>",
]
ALL_HOSTILE_TEXTS = "\n\n".join(HOSTILE_TEXTS)


def hostile_bodies() -> list[object]:
    """Return events with hostile text in every field."""
    block = (Text(text=ALL_HOSTILE_TEXTS),)
    return [
        UserMessage(content=block),
        AgentThought(content=block),
        AgentMessage(content=block),
        PlanChanged(entries=tuple(PlanEntry(content=text) for text in HOSTILE_TEXTS)),
        *(
            ToolCall(call_id=text, name=text, title=text, input={text: text, "command": text})
            for text in HOSTILE_TEXTS
        ),
        ToolCall(
            call_id="d",
            name="Edit",
            content=(Diff(path=ALL_HOSTILE_TEXTS, old="a\n", new=ALL_HOSTILE_TEXTS),),
            locations=(Location(path=ALL_HOSTILE_TEXTS),),
            server=ALL_HOSTILE_TEXTS,
        ),
        *(ToolResult(call_id=text, content=(Text(text=text),)) for text in HOSTILE_TEXTS),
        ToolResult(call_id="d", output={"x": ALL_HOSTILE_TEXTS}),
        PermissionAsked(
            ask_id=HOSTILE_TEXTS[4],
            title=ALL_HOSTILE_TEXTS,
            options=(Option(id=HOSTILE_TEXTS[4], name=HOSTILE_TEXTS[0], kind="allow_once"),),
        ),
        UserMessage(
            content=(
                Image(mime="image/svg+xml", data="PHN2Zy8+"),
                Image(mime='image/png" onerror="window.owned=20', data="AAAA"),
                Image(uri="https://evil.example/pixel.png"),
                ResourceLink(uri="javascript:window.owned=21", name=ALL_HOSTILE_TEXTS),
                Resource(uri=ALL_HOSTILE_TEXTS, text=ALL_HOSTILE_TEXTS),
                Resource(uri=ALL_HOSTILE_TEXTS, data="AAAA", mime="text/html"),
            )
        ),
        ModelCalled(model=ALL_HOSTILE_TEXTS, usage=Usage(input_tokens=1)),
        Failed(message=ALL_HOSTILE_TEXTS),
    ]


async def create_hostile_session(hub: Hub) -> str:
    """Create a session with hostile text in every field, and return its id."""
    title = " ".join(HOSTILE_TEXTS)
    created = Created(
        cwd=f"/{HOSTILE_TEXTS[4]}/\udc80", git_branch=HOSTILE_TEXTS[0], source=HOSTILE_TEXTS[4]
    )
    session = await hub.store.create(
        "local", ids.new_id(), [created, InfoChanged(title=title, tag=HOSTILE_TEXTS[4])]
    )
    await hub.editor.append(LOCAL, session.id, *hostile_bodies())
    return str(session.id)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_is_escaped(text: str) -> None:
    for html in (str(markdown(text)), str(code(text, "html")), str(code(text))):
        lower = html.lower()
        for tag in ("<script", "<img", "<svg", "<iframe", "<form", "<style", "<base", "<meta"):
            assert tag not in lower
        assert 'href="javascript' not in lower and 'href="data' not in lower
        html.encode()  # does not raise: it can be sent


async def test_pages_and_exports_with_hostile_text_are_valid(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        for _ in range(8):  # more than a project shows at first
            id = await create_hostile_session(site.hub)
        paths = (f"/s/{id}", f"/s/{id}?at=3", f"/s/{id}/share", f"/s/{id}/turns?q=script")
        fork = await site.hub.editor.fork(LOCAL, id, at=4, in_store=True)
        paths += (f"/s/{id}/preview?at=3", f"/s/{id}/changes", f"/s/{fork.id}/info", "/activity")
        paths += (f"/compare?a={id}", f"/compare?a={id}&b={fork.id}", "/search?q=script", "/new")
        paths += tuple(f"/dashboard?days=30&by={by}" for by in ("project", "model", "tool"))
        for path in ("/", "/?q=script", "/?group=project", "/dashboard", *paths):
            page = await site.get(path)
            assert "<script>" not in page and "evil.example/x.css'>" not in page
        exported = await site.get(f"/s/{id}/export.html")
        assert "<script" not in exported.lower()
        assert "owned" in await site.get(f"/s/{id}/export.md")
        picture = await site.client.get(f"/s/{id}/blob/{3 + len(hostile_bodies()) - 3}/0")
        assert picture.headers["content-type"] == "application/octet-stream"
        assert "sandbox" in picture.headers["content-security-policy"]
        assert picture.headers["content-disposition"] == "attachment"


async def test_a_hostile_transcript_runs_no_script_in_a_browser(harness: BrowserHarness) -> None:
    id = await create_hostile_session(harness.hub)
    page = await harness.window(f"/s/{id}")
    await expect(page.locator("#chunks .failed")).to_be_attached()
    await page.locator("details").evaluate_all("all => all.forEach(details => details.open = true)")
    links = await page.locator("#main a").evaluate_all("all => all.map(link => link.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}
    await harness.hub.editor.append(
        LOCAL, id, AgentMessage(content=(Text(text=ALL_HOSTILE_TEXTS),))
    )  # arrives live
    await expect(page.locator(".item.agent")).to_have_count(2)
    await page.goto(f"{harness.url}/?q=script")
    await expect(page.locator(".row .snippet")).to_be_attached()
    await page.goto(f"{harness.url}/s/{id}/share")
    await page.get_by_role("button", name="Create link").click()
    link = await page.locator("#link").input_value()
    await page.goto(link)
    await expect(page.locator("#chunks .failed")).to_be_attached()
    assert await page.evaluate("window.owned") is None
    # The harness fails the test if the page sends a request to another server.


async def test_deeply_nested_values_are_shown_and_stay_small(tmp_path: Path) -> None:
    value: list[object] = ["x"] * 1_000
    for _ in range(800):
        value = [value]
    call = ToolCall(call_id="c", name="n", input={"path": value})
    bodies = [call, ToolResult(call_id="c", output={"b": value})]
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL)
        await site.hub.editor.append(LOCAL, session.id, *bodies)
        page = await site.get(f"/s/{session.id}")
        assert "nested too deeply" in await site.get(f"/s/{session.id}/whole/2")
        exports = [await site.get(f"/s/{session.id}/export.{kind}") for kind in ("md", "html")]
        assert all(len(text) < 200_000 for text in (page, *exports))


@pytest.mark.parametrize("control_character", ["\u202e", "\u202a", "\u2067", "\u2069"])
def test_bidirectional_control_characters_are_replaced(control_character: str) -> None:
    command = f"rm {control_character}txt.exe"
    for html in (str(code(command, "bash")), str(markdown(command)), sendable(command)):
        assert control_character not in html and "\N{REPLACEMENT CHARACTER}" in html


def test_only_web_addresses_become_links() -> None:
    html = str(
        markdown("[a](src/a.py) [b](/logout) [c](//evil.example) [d](#e1) [e](https://e.example)")
    )
    assert (
        '<a title="src/a.py"' in html
        and html.count("href=") == 1
        and 'href="https://e.example"' in html
    )


def test_long_lines_and_slow_languages_are_not_highlighted() -> None:
    assert "k-" in str(code("x = 1", "python")) and "k-" in str(code("echo", "sh"))
    assert "k-" not in str(code("x = 1;" * 200, "python"))
    assert "k-" not in str(code("x = 1" + "\n" * 200 + "y = 1", "python"))
    assert "k-" not in str(code("x = 1", "autoit"))


async def test_a_page_shows_only_the_beginning_of_a_very_long_message(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Long")
        long = "z" * (2 * MAX_MARKDOWN_CHARACTERS) + " the end"
        text = f"<command-name>/log</command-name>\n<command-args>{long}</command-args>"
        messages = [
            AgentMessage(content=(Text(text=long),)),
            UserMessage(content=(Text(text=long),)),
            message(Text(text=text)),
            UserMessage(content=(Resource(uri="file:///log", text=long),)),
        ]
        for body in messages:
            [event] = await site.hub.editor.append(LOCAL, session.id, body)
            page = await site.get(f"/s/{session.id}/chunks?first=0")
            assert f"/whole/{event.seq}" in page and "the end" not in page
            assert "the end" in await site.get(f"/s/{session.id}/whole/{event.seq}")
        assert len(page) < 3 * MAX_MARKDOWN_CHARACTERS
        assert "the end" in await site.get(f"/s/{session.id}/export.html")

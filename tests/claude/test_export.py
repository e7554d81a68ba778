"""Exported conversations are complete and contain nothing that runs."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from segue import claude
from tests.claude.entries import Home, S, assistant, title, user

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&</pre></details>"
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


class Page(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def write_conversation(home: Home, *contents: Any) -> None:
    lines = [user("u1", None, contents[0], cwd="/w", gitBranch="main")]
    lines += [
        assistant(f"a{n}", "u1" if n == 1 else f"a{n - 1}", part)
        for n, part in enumerate(contents)
        if n
    ]
    home.write([*lines, title("My <title>")])


ALL = (
    f"hello {EVIL}",
    [{"type": "thinking", "thinking": f"hm {EVIL}"}],
    [{"type": "tool_use", "name": f"Bash {EVIL}", "id": "t", "input": {"command": f"ls {EVIL}"}}],
    [{"type": "tool_result", "tool_use_id": "t", "content": f"out {EVIL}", "is_error": True}],
    [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": PNG}]}],
    [
        {"type": f"odd{EVIL}", "data": EVIL},
        {"type": "text", "text": f"bye {EVIL}"},
        "bare",
        7,
        None,
    ],
)


def test_html_export_shows_every_text_escaped(home: Home) -> None:
    write_conversation(home, *ALL)
    page = Page(claude.export_html(S))
    assert not {"script", "iframe", "object", "embed", "link", "form"} & set(page.tags)
    assert page.tags.count("img") == 1  # the one of the tool result, none of EVIL's
    for text in ("hello", "hm", "ls", "out", "bye", "My <title>", "/w", "main", S, "bare", "7"):
        assert text in page.text
    assert page.text.count("<script>alert(1)</script>") >= 8


def test_html_export_loads_no_other_file_and_runs_no_script(home: Home) -> None:
    write_conversation(home, *ALL)
    page = Page(claude.export_html(S))
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on")]
    links = [value or "" for name, value in page.attributes if name in ("src", "href")]
    assert [link for link in links if not link.startswith("#")] == [
        "data:image/png;base64,iVBORw0KGgo="
    ]
    policy = next(value for _, value in page.attributes if value and "default-src" in value)
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize(
    "source",
    [
        {"media_type": "image/svg+xml", "data": "PHN2Zz4="},
        {"media_type": "text/html", "data": "PHN2Zz4="},
        {"media_type": "image/png", "data": '"><script>'},
        {"media_type": "image/png", "data": None},
        {"media_type": ["image/png"], "data": "AAAA"},
        "text",
        None,
    ],
)
def test_html_export_embeds_only_valid_images_of_known_types(home: Home, source: Any) -> None:
    write_conversation(home, [{"type": "text", "text": "see"}, {"type": "image", "source": source}])
    assert "img" not in Page(claude.export_html(S)).tags


def test_markdown_export_has_a_heading_per_message(home: Home) -> None:
    write_conversation(home, "hello", [{"type": "text", "text": "hi **there**"}])
    assert claude.export_markdown(S) == (
        f"# My <title>\n\n- Session {S}\n- Directory `/w`\n- Branch `main`\n"
        "- Started 1 Jan 2026, 00:00 UTC\n- 2 messages\n\n"
        "## You · 1 Jan 2026, 00:00 UTC\n\nhello\n\n"
        "## Agent · 1 Jan 2026, 00:00 UTC\n\nhi **there**\n\n"
    )


def test_markdown_fence_is_longer_than_any_fence_in_its_text(home: Home) -> None:
    text = "```\n# no heading\n````\n"
    write_conversation(home, "x", [{"type": "tool_result", "tool_use_id": "t", "content": text}])
    assert "\n`````\n```\n# no heading" in claude.export_markdown(S)


@pytest.mark.parametrize("export", [claude.export_html, claude.export_markdown])
def test_lone_surrogates_do_not_stop_an_export(home: Home, export: Any) -> None:
    home.write(['{"type":"user","uuid":"u1","parentUuid":null,"message":{"content":"a\\ud83d"}}'])
    assert "a\ufffd" in export(S)
    export(S).encode()

"""A conversation as a document: Markdown, or one HTML page that needs nothing else.

Text of models and tools is shown as text. In HTML every character of it is escaped, and an image
is put in only if it is one of the few kinds that cannot hold a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, NamedTuple

from segue.sources.claude.format.prompt import replace_lone_surrogates

from .sdk_types import SDKSessionInfo, SessionMessage

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
_LONGEST_LABEL = 80


class Part(NamedTuple):
    """A piece of a message: how to show it, a label, and its text."""

    kind: str  # text, thinking, call, result, image, other
    label: str
    text: str


def markdown(info: SDKSessionInfo, messages: Iterable[SessionMessage]) -> str:
    """The conversation as Markdown."""
    lines = [f"# {_one_line(info.summary)}", ""]
    lines += [f"- {name}: {value}" for name, value in _about(info)]
    for message in messages:
        lines += ["", f"## {message.type.capitalize()}"]
        for part in parts(message):
            lines += ["", *_markdown(part)]
    return replace_lone_surrogates("\n".join(lines) + "\n")


def _markdown(part: Part) -> list[str]:
    if part.kind == "text":
        return [part.text]
    if part.kind == "image":
        return [f"*{part.label}*"]
    if part.kind == "thinking":
        return ["> " + line for line in part.text.split("\n")]
    # A fence longer than any in the text, so that the text cannot end it.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", part.text)), default=0))
    return [f"**{part.label}**", "", fence, part.text, fence]


def html(info: SDKSessionInfo, messages: Iterable[SessionMessage]) -> str:
    """The conversation as an HTML page, complete in itself."""
    title = escape(_one_line(info.summary))
    about = "".join(f"<li>{escape(name)}: {escape(value)}</li>" for name, value in _about(info))
    body = "".join(
        f'<article class="{escape(message.type)}"><h2>{escape(message.type.capitalize())}</h2>'
        f"{''.join(map(_html, parts(message)))}</article>\n"
        for message in messages
    )
    return replace_lone_surrogates(
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        # Even if something in here were not escaped, nothing could run or be fetched.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head><body>\n"
        f"<header><h1>{title}</h1><ul>{about}</ul></header>\n{body}</body></html>\n"
    )


def _html(part: Part) -> str:
    text = escape(part.text)
    if part.kind == "text":
        return f"<pre>{text}</pre>"
    if part.kind == "image":
        return f'<img alt="{escape(part.label)}" src="{text}">' if text else f"<p>{part.label}</p>"
    return (
        f'<details class="{part.kind}"><summary>{escape(part.label)}</summary>'
        f"<pre>{text}</pre></details>"
    )


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}
article{border-left:4px solid #aaa;padding:.1rem 1rem;margin:1.5rem 0}
article.user{border-color:#3b82f6}article.assistant{border-color:#d97706}
h2{font-size:1rem;color:#666;margin:.3rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0;font-family:inherit}
details pre{font:13px/1.4 ui-monospace,monospace;background:#8881;padding:.6rem}
summary{cursor:pointer;color:#666}img{max-width:100%}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}
"""


def parts(message: SessionMessage) -> Iterator[Part]:
    """What a message shows."""
    said = message.message
    content = said.get("content") if isinstance(said, dict) else said
    try:
        yield from list(_parts(content))
    except RecursionError:
        yield Part("other", "Data", "(nested too deeply to be shown)")


def _parts(content: Any) -> Iterator[Part]:
    if isinstance(content, str):
        yield Part("text", "", content)
    elif isinstance(content, list):
        for block in content:
            yield from _block(block) if isinstance(block, dict) else _parts(block)
    elif content is not None:
        yield Part("other", "Data", _json(content))


def _block(block: dict[str, Any]) -> Iterator[Part]:
    kind = block.get("type")
    if kind == "text":
        yield Part("text", "", _text(block.get("text")))
    elif kind == "thinking":
        yield Part("thinking", "Thinking", _text(block.get("thinking")))
    elif kind == "tool_use":
        yield Part("call", _label("Tool", block.get("name")), _json(block.get("input")))
    elif kind == "tool_result":
        label = "Error" if block.get("is_error") is True else "Result"
        for part in _parts(block.get("content")):
            plain = part.kind == "text"
            yield Part("result", label, part.text) if plain else part
    elif kind in ("image", "document"):
        yield _pasted(str(kind), block.get("source"))
    else:
        yield Part("other", _label("Block", kind), _json(block))


def _pasted(kind: str, source: Any) -> Part:
    source = source if isinstance(source, dict) else {}
    media, data = source.get("media_type"), source.get("data")
    if not isinstance(media, str) or not isinstance(data, str):
        return Part("image", kind.capitalize(), "")
    if media in _IMAGES and _BASE64.fullmatch(data):
        return Part("image", "Image", f"data:{media};base64,{''.join(data.split())}")
    return Part("image", kind.capitalize(), "")


def _about(info: SDKSessionInfo) -> list[tuple[str, str]]:
    facts = {"Session": info.session_id, "Directory": info.cwd, "Branch": info.git_branch}
    return [(name, _one_line(value)) for name, value in facts.items() if value]


def _label(what: str, name: Any) -> str:
    return f"{what}: {_one_line(_text(name))[:_LONGEST_LABEL]}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)

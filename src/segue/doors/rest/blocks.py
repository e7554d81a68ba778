"""Content blocks, both ways."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from ...model.content import (
    Audio,
    Block,
    Content,
    Diff,
    Image,
    Other,
    Resource,
    ResourceLink,
    Text,
)
from .bodies import Body

_DIALECT = "rest"
Media = Annotated[str, Meta(min_length=3, max_length=255)]


class Base64Source(Body, frozen=True, tag_field="type", tag="base64"):
    media_type: Media
    data: str


class URLSource(Body, frozen=True, tag_field="type", tag="url"):
    url: Annotated[str, Meta(pattern=r"^https?://")]


class FileSource(Body, frozen=True, tag_field="type", tag="file"):
    file_id: str


class TextSource(Body, frozen=True, tag_field="type", tag="text"):
    data: str
    media_type: Media = "text/plain"


class TextIn(Body, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageIn(Body, frozen=True, tag_field="type", tag="image"):
    source: Base64Source | URLSource | FileSource


class DocumentIn(Body, frozen=True, tag_field="type", tag="document"):
    source: Base64Source | TextSource | URLSource | FileSource
    title: str | None = None
    context: str | None = None


class SearchResultIn(Body, frozen=True, tag_field="type", tag="search_result"):
    source: str
    title: str
    content: tuple[TextIn, ...]
    citations: dict[str, Any] | None = None


BlockIn = TextIn | ImageIn | DocumentIn


def read(blocks: Iterable[BlockIn | SearchResultIn]) -> Content:
    """A client's blocks as the model's; one that names a file of this dialect is kept as it is."""
    return tuple(_read(block) for block in blocks)


def _read(block: BlockIn | SearchResultIn) -> Block:
    match block:
        case TextIn(text=text):
            return Text(text=text)
        case ImageIn(source=Base64Source(media_type=mime, data=data)):
            return Image(mime=mime, data=data)
        case ImageIn(source=URLSource(url=url)):
            return Image(uri=url)
        case DocumentIn(source=FileSource()) | ImageIn() | SearchResultIn():
            return Other(dialect=_DIALECT, raw=to_builtins(block))
        case DocumentIn(source=source, title=title, context=context):
            said = {"title": title, "context": context}
            kept = {name: value for name, value in said.items() if value is not None}
            extra = {_DIALECT: kept} if kept else {}
            if isinstance(source, TextSource):
                return Resource(uri="", text=source.data, mime=source.media_type, extra=extra)
            if isinstance(source, URLSource):
                return ResourceLink(uri=source.url, name=title or "", extra=extra)
            assert isinstance(source, Base64Source)  # the only one left
            return Resource(uri="", data=source.data, mime=source.media_type, extra=extra)


def write(content: Sequence[Block]) -> list[dict[str, Any]]:
    """Content as text, images and documents; what is none of these is told in words."""
    return [_write(block) for block in content]


def words(content: Sequence[Block]) -> list[dict[str, Any]]:
    """Content where only text may stand."""
    return [_text(_worded(block)) for block in content]


def _write(block: Block) -> dict[str, Any]:
    match block:
        case Image(data=str(data)):
            return _with_source("image", type="base64", media_type=block.mime, data=data)
        case Image(uri=str(uri)) if uri.startswith(("http://", "https://")):
            return _with_source("image", type="url", url=uri)
        case Resource() if block.text is None and block.data is not None:
            source = {"type": "base64", "media_type": block.mime or "application/pdf"}
            return _document(block, **source, data=block.data)
        case Resource(text=str(text)):
            return _document(block, type="text", media_type="text/plain", data=text)
        case ResourceLink() if block.uri.startswith(("http://", "https://")):
            return _document(block, type="url", url=block.uri)
        case Other(dialect="rest", raw=raw) if isinstance(raw, dict):
            return raw
    return _text(_worded(block))


def _with_source(kind: str, **source: str) -> dict[str, Any]:
    return {"type": kind, "source": source}


def _document(block: Resource | ResourceLink, **source: str) -> dict[str, Any]:
    said = block.extra.get(_DIALECT, {})
    title = said.get("title") or (block.title if isinstance(block, ResourceLink) else None)
    about = {"title": title or block.uri or None, "context": said.get("context")}
    return {**_with_source("document", **source), **about}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _worded(block: Block) -> str:
    match block:
        case Text() | Resource(text=str()):
            return block.text or ""
        case Diff():
            return f"{'new file' if block.old is None else 'changed'}: {block.path}"
        case ResourceLink():
            return f"{block.name}: {block.uri}" if block.name else block.uri
        case Image() | Audio():
            return f"[{block.mime}]"
        case Resource():
            return f"[{block.uri or block.mime or 'resource'}]"
        case Other():
            return f"[{block.dialect}]"


def output(value: Any) -> list[dict[str, Any]]:
    """A tool's raw output, where it gave no content."""
    if value is None:
        return []
    return [_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]

"""Content blocks, both ways."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, to_builtins

from segue.interfaces.rest.schemas.requests import Body
from segue.model.content import (
    Block,
    Content,
    Image,
    Other,
    Resource,
    ResourceLink,
    Text,
    describe_block,
)

_DIALECT = "rest"
UNTITLED = "document"  # the address, elsewhere, of a document that came without a title
UNTYPED = "application/octet-stream"
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


class Uploaded(NamedTuple):
    """A file that a block names."""

    mime: str
    data: bytes


def named(blocks: Iterable[BlockIn | SearchResultIn]) -> Iterator[str]:
    """The ids of the files that some blocks name."""
    for block in blocks:
        if isinstance(block, ImageIn | DocumentIn) and isinstance(block.source, FileSource):
            yield block.source.file_id


def read(
    blocks: Iterable[BlockIn | SearchResultIn], files: Mapping[str, Uploaded] | None = None
) -> Content:
    """A client's blocks as the model's, with what is in the files that they name."""
    return tuple(_read(block, files or {}) for block in blocks)


def _included(block: ImageIn | DocumentIn, id: str, file: Uploaded) -> Block:
    """A file in a block: what it holds, and by which name it came."""
    encoded = base64.b64encode(file.data).decode()
    if isinstance(block, ImageIn):
        return Image(mime=file.mime, data=encoded, extra={_DIALECT: {"file_id": id}})
    extra = _about(block, file_id=id)
    try:
        text = file.data.decode() if file.mime != "application/pdf" else None
    except UnicodeDecodeError:
        text = None
    address = block.title or UNTITLED
    if text is not None:
        return Resource(uri=address, text=text, mime=file.mime, extra=extra)
    return Resource(uri=address, data=encoded, mime=file.mime, extra=extra)


def _about(block: DocumentIn, **more: str) -> dict[str, Any]:
    """What is said of a document, as it comes back through this door."""
    about = {**more, "title": block.title, "context": block.context}
    return {_DIALECT: {name: value for name, value in about.items() if value is not None}}


def _read(block: BlockIn | SearchResultIn, files: Mapping[str, Uploaded]) -> Block:
    match block:
        case ImageIn(source=FileSource(file_id=id)) | DocumentIn(source=FileSource(file_id=id)):
            return _included(block, id, files[id])
        case TextIn(text=text):
            return Text(text=text)
        case ImageIn(source=Base64Source(media_type=mime, data=data)):
            return Image(mime=mime, data=data)
        case ImageIn(source=URLSource(url=url)):
            return Image(uri=url)
        case ImageIn() | SearchResultIn():
            return Other(dialect=_DIALECT, raw=to_builtins(block))
        case DocumentIn(source=source, title=title):
            extra, address = _about(block), title or UNTITLED
            if isinstance(source, TextSource):
                return Resource(uri=address, text=source.data, mime=source.media_type, extra=extra)
            if isinstance(source, URLSource):
                return ResourceLink(uri=source.url, name=title or "", title=title, extra=extra)
            assert isinstance(source, Base64Source)  # the only one left
            return Resource(uri=address, data=source.data, mime=source.media_type, extra=extra)


def write(content: Sequence[Block]) -> list[dict[str, Any]]:
    """Content as text, images and documents; what is none of these is told in words."""
    return [_write(block) for block in content]


def words(content: Sequence[Block]) -> list[dict[str, Any]]:
    """Content where only text may stand."""
    return [_text(describe_block(block)) for block in content]


def _write(block: Block) -> dict[str, Any]:
    if isinstance(block, Image | Resource) and (file := _came_as(block)):
        source = {"type": "file", "file_id": file}
        if isinstance(block, Image):
            return _with_source("image", **source)
        return _document(block, **source)
    match block:
        case Image(data=str(data)):
            return _with_source("image", type="base64", media_type=block.mime, data=data)
        case Image(uri=str(uri)) if uri.startswith(("http://", "https://")):
            return _with_source("image", type="url", url=uri)
        case Resource() if block.text is None and block.data is not None:
            source = {"type": "base64", "media_type": block.mime or UNTYPED}
            return _document(block, **source, data=block.data)
        case Resource(text=str(text)):
            return _document(block, type="text", media_type="text/plain", data=text)
        case ResourceLink() if block.uri.startswith(("http://", "https://")):
            return _document(block, type="url", url=block.uri)
        case Other(dialect="rest", raw=raw) if isinstance(raw, dict):
            return raw
    return _text(describe_block(block))


def _came_as(block: Image | Resource) -> str | None:
    found: str | None = block.extra.get(_DIALECT, {}).get("file_id")
    return found


def _with_source(kind: str, **source: str) -> dict[str, Any]:
    return {"type": kind, "source": source}


def _document(block: Resource | ResourceLink, **source: str) -> dict[str, Any]:
    said = block.extra.get(_DIALECT)
    if said is None:  # it came by another door
        title = block.title if isinstance(block, ResourceLink) else None
        said = {"title": title or block.uri or None}
    about = {"title": said.get("title"), "context": said.get("context")}
    return {**_with_source("document", **source), **about}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def output(value: Any) -> list[dict[str, Any]]:
    """A tool's raw output, where it gave no content."""
    if value is None:
        return []
    return [_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]

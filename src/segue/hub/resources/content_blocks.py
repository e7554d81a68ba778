"""Content blocks of messages as clients send them and deployments store them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, to_builtins

from segue.model.codec import described_pattern
from segue.model.content import Block, Content, Image, Other, Resource, ResourceLink, Text

DIALECT = "rest"  # the key of these fields in a block's `extra`
UNTITLED = "document"  # the URI of a document without a title


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a message. Unknown fields are refused."""


Media = Annotated[str, Meta(min_length=3, max_length=255)]


class Base64Source(Body, frozen=True, tag_field="type", tag="base64"):
    media_type: Media
    data: str


class URLSource(Body, frozen=True, tag_field="type", tag="url"):
    url: Annotated[
        str, described_pattern("a URL that begins with http:// or https://", r"^https?://")
    ]


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
    """An uploaded file that a block refers to."""

    mime: str
    data: bytes


def file_ids(blocks: Iterable[BlockIn | SearchResultIn]) -> Iterator[str]:
    """Yield the ids of the files that blocks refer to."""
    for block in blocks:
        if isinstance(block, ImageIn | DocumentIn) and isinstance(block.source, FileSource):
            yield block.source.file_id


def parse_blocks(
    blocks: Iterable[BlockIn | SearchResultIn], files: Mapping[str, Uploaded] | None = None
) -> Content:
    """Return content of a message, with the contents of the files that its blocks refer to."""
    return tuple(_parse_block(block, files or {}) for block in blocks)


def _with_file(block: ImageIn | DocumentIn, id: str, file: Uploaded) -> Block:
    """Return a block with the contents of its file; `extra` has the id of the file."""
    encoded = base64.b64encode(file.data).decode()
    if isinstance(block, ImageIn):
        return Image(mime=file.mime, data=encoded, extra={DIALECT: {"file_id": id}})
    extra = _document_extra(block, file_id=id)
    try:
        text = file.data.decode() if file.mime != "application/pdf" else None
    except UnicodeDecodeError:
        text = None
    uri = block.title or UNTITLED
    if text is not None:
        return Resource(uri=uri, text=text, mime=file.mime, extra=extra)
    return Resource(uri=uri, data=encoded, mime=file.mime, extra=extra)


def _document_extra(block: DocumentIn, **more: str) -> dict[str, Any]:
    """Return the `extra` of a document: the fields that the model's blocks do not have."""
    fields = {**more, "title": block.title, "context": block.context}
    return {DIALECT: {name: value for name, value in fields.items() if value is not None}}


def _parse_block(block: BlockIn | SearchResultIn, files: Mapping[str, Uploaded]) -> Block:
    match block:
        case ImageIn(source=FileSource(file_id=id)) | DocumentIn(source=FileSource(file_id=id)):
            return _with_file(block, id, files[id])
        case TextIn(text=text):
            return Text(text=text)
        case ImageIn(source=Base64Source(media_type=mime, data=data)):
            return Image(mime=mime, data=data)
        case ImageIn(source=URLSource(url=url)):
            return Image(uri=url)
        case ImageIn() | SearchResultIn():
            return Other(dialect=DIALECT, raw=to_builtins(block))
        case DocumentIn(source=source, title=title):
            extra, uri = _document_extra(block), title or UNTITLED
            if isinstance(source, TextSource):
                return Resource(uri=uri, text=source.data, mime=source.media_type, extra=extra)
            if isinstance(source, URLSource):
                return ResourceLink(uri=source.url, name=title or "", title=title, extra=extra)
            assert isinstance(source, Base64Source)  # the only one left
            return Resource(uri=uri, data=source.data, mime=source.media_type, extra=extra)

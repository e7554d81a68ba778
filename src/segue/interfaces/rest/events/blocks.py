"""Encode content as text, image and document blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from segue.hub.resources.content_blocks import (
    DIALECT,
    Base64Source,
    DocumentIn,
    FileSource,
    ImageIn,
    SearchResultIn,
    TextIn,
    TextSource,
    URLSource,
)
from segue.interfaces.rest.schemas.events import ResultBlock
from segue.model.content import (
    Block,
    Image,
    Other,
    Resource,
    ResourceLink,
    describe_block,
)

UNTYPED = "application/octet-stream"
_WEB_SCHEMES = ("http://", "https://")


def encode_content(content: Sequence[Block]) -> list[ResultBlock]:
    """Return content as blocks; a block of another type is described in a text block."""
    return [_encode_block(block) for block in content]


def encode_as_text(content: Sequence[Block]) -> list[TextIn]:
    """Return content as text blocks."""
    return [TextIn(text=describe_block(block)) for block in content]


def encode_output(value: Any) -> list[ResultBlock]:
    """Return the raw output of a tool that returned no content."""
    if value is None:
        return []
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return [TextIn(text=text)]


def _encode_block(block: Block) -> ResultBlock:
    if isinstance(block, Image | Resource) and (file_id := _file_id(block)):
        file = FileSource(file_id=file_id)
        return ImageIn(source=file) if isinstance(block, Image) else _document(block, file)
    match block:
        case Image(data=str(data)):
            return ImageIn(source=Base64Source(media_type=block.mime, data=data))
        case Image(uri=str(uri)) if uri.startswith(_WEB_SCHEMES):
            return ImageIn(source=URLSource(url=uri))
        case Resource() if block.text is None and block.data is not None:
            return _document(block, Base64Source(media_type=block.mime or UNTYPED, data=block.data))
        case Resource(text=str(text)):
            return _document(block, TextSource(data=text))
        case ResourceLink() if block.uri.startswith(_WEB_SCHEMES):
            return _document(block, URLSource(url=block.uri))
        case Other(dialect="rest", raw=raw):
            return msgspec.convert(raw, SearchResultIn)
    return TextIn(text=describe_block(block))


def _file_id(block: Image | Resource) -> str | None:
    file_id: str | None = block.extra.get(DIALECT, {}).get("file_id")
    return file_id


def _document(
    block: Resource | ResourceLink, source: Base64Source | TextSource | URLSource | FileSource
) -> DocumentIn:
    fields = block.extra.get(DIALECT)
    if fields is None:  # the message was sent through another interface
        title = block.title if isinstance(block, ResourceLink) else None
        return DocumentIn(source=source, title=title or block.uri or None)
    return DocumentIn(source=source, title=fields.get("title"), context=fields.get("context"))

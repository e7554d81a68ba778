"""Show content as text, image and document blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from segue.hub.resources.content_blocks import DIALECT
from segue.model.content import (
    Block,
    Image,
    Other,
    Resource,
    ResourceLink,
    describe_block,
)

UNTYPED = "application/octet-stream"


def write(content: Sequence[Block]) -> list[dict[str, Any]]:
    """Return content as blocks; a block of another type is described in a text block."""
    return [_write(block) for block in content]


def text_blocks(content: Sequence[Block]) -> list[dict[str, Any]]:
    """Return content as text blocks."""
    return [_text(describe_block(block)) for block in content]


def _write(block: Block) -> dict[str, Any]:
    if isinstance(block, Image | Resource) and (file := _file_id(block)):
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


def _file_id(block: Image | Resource) -> str | None:
    file_id: str | None = block.extra.get(DIALECT, {}).get("file_id")
    return file_id


def _with_source(kind: str, **source: str) -> dict[str, Any]:
    return {"type": kind, "source": source}


def _document(block: Resource | ResourceLink, **source: str) -> dict[str, Any]:
    fields = block.extra.get(DIALECT)
    if fields is None:  # from another interface
        title = block.title if isinstance(block, ResourceLink) else None
        fields = {"title": title or block.uri or None}
    shown = {"title": fields.get("title"), "context": fields.get("context")}
    return {**_with_source("document", **source), **shown}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def output(value: Any) -> list[dict[str, Any]]:
    """Return the raw output of a tool that returned no content."""
    if value is None:
        return []
    return [_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]

"""Convert content blocks between the model and ACP; both protocol versions use the same blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from segue.model import codec
from segue.model.content import (
    Audio,
    Block,
    Diff,
    FileChange,
    Image,
    Other,
    Resource,
    ResourceLink,
    Text,
)

from . import wire

_DIALECT = "acp"


def read_block(data: Any) -> Block:
    """Return a block from decoded JSON. Raises ValidationError for an unknown type."""
    return _read(codec.convert(data, wire.ContentBlock))


def read_block_of_agent(data: Any) -> Block:
    """Return a block of an agent, without annotations and icons if those are malformed.

    Raises ValidationError if anything else is.
    """
    try:
        return read_block(data)
    except msgspec.ValidationError:
        if not isinstance(data, dict):
            raise
        optional = ("annotations", "icons")
        return read_block({name: value for name, value in data.items() if name not in optional})


def _read(block: wire.ContentBlock) -> Block:
    extra = _read_extra(block)
    match block:
        case wire.TextBlock():
            return Text(text=block.text, extra=extra)
        case wire.ImageBlock():
            return Image(mime=block.mime_type, data=block.data, uri=block.uri, extra=extra)
        case wire.AudioBlock():
            return Audio(mime=block.mime_type, data=block.data, extra=extra)
        case wire.ResourceLinkBlock():
            return ResourceLink(
                uri=block.uri,
                name=block.name,
                title=block.title,
                description=block.description,
                mime=block.mime_type,
                size=block.size,
                extra=extra,
            )
        case wire.ResourceBlock(resource=resource):
            if (resource.text is UNSET) == (resource.blob is UNSET):
                raise msgspec.ValidationError("a resource has either text or a blob")
            return Resource(
                uri=resource.uri,
                text=None if resource.text is UNSET else str(resource.text),
                data=None if resource.blob is UNSET else str(resource.blob),
                mime=resource.mime_type,
                extra=extra,
            )


def _read_extra(block: wire.ContentBlock) -> dict[str, Any]:
    """Return the fields that only ACP has, to send them back unchanged."""
    fields = {
        "annotations": block.annotations,
        "_meta": block.meta,
        "icons": block.icons if isinstance(block, wire.ResourceLinkBlock) else None,
        "contents_meta": block.resource.meta if isinstance(block, wire.ResourceBlock) else None,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return {_DIALECT: msgspec.to_builtins(present)} if present else {}


def write_blocks(content: Sequence[Block]) -> list[wire.ContentBlock]:
    """Return content as wire types, without blocks that ACP cannot express."""
    return [written for block in content if (written := _write(block)) is not None]


def _write(block: Block) -> wire.ContentBlock | None:
    extra = block.extra.get(_DIALECT, {})
    common = {"annotations": extra.get("annotations"), "meta": extra.get("_meta")}
    match block:
        case Text():
            return wire.TextBlock(text=block.text, **common)
        case Image():
            if block.data is None:
                link = block.uri or ""
                return wire.ResourceLinkBlock(name=link, uri=link, mime_type=block.mime)
            return wire.ImageBlock(data=block.data, mime_type=block.mime, uri=block.uri, **common)
        case Audio():
            return wire.AudioBlock(data=block.data, mime_type=block.mime, **common)
        case ResourceLink():
            return wire.ResourceLinkBlock(
                name=block.name or block.uri,
                uri=block.uri,
                title=block.title,
                description=block.description,
                mime_type=block.mime,
                size=block.size,
                icons=extra.get("icons"),
                **common,
            )
        case Resource():
            resource = wire.ResourceContents(
                uri=block.uri,
                text=UNSET if block.text is None else block.text,
                blob=UNSET if block.text is not None else (block.data or ""),
                mime_type=block.mime,
                meta=extra.get("contents_meta"),
            )
            return wire.ResourceBlock(resource=resource, **common)
        case Diff() | FileChange() | Other():
            return None

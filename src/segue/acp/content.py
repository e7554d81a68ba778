"""Content blocks between the model and the wire; the two protocol versions agree on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from segue.model.content import Audio, Block, Diff, Image, Other, Resource, ResourceLink, Text

from . import wire

_DIALECT = "acp"


def read_block(given: Any) -> Block:
    """A block as the wire has it; ValidationError for a kind that is not known."""
    return _read(msgspec.convert(given, wire.ContentBlock))


def _read(block: wire.ContentBlock) -> Block:
    kept = {
        name: value
        for name, value in (
            ("annotations", block.annotations),
            ("_meta", block.meta),
            ("icons", getattr(block, "icons", None)),
            (
                "contents_meta",
                block.resource.meta if isinstance(block, wire.ResourceBlock) else None,
            ),
        )
        if value is not None
    }
    extra: dict[str, Any] = {_DIALECT: kept} if kept else {}
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
        case wire.ResourceBlock(resource=held):
            if (held.text is UNSET) == (held.blob is UNSET):
                raise msgspec.ValidationError("a resource has either text or a blob")
            return Resource(
                uri=held.uri,
                text=None if held.text is UNSET else str(held.text),
                data=None if held.blob is UNSET else str(held.blob),
                mime=held.mime_type,
                extra=extra,
            )


def write_blocks(content: Sequence[Block]) -> list[wire.ContentBlock]:
    """Content as the wire has it; what only another dialect has is left out."""
    return [written for block in content if (written := _write(block)) is not None]


def _write(block: Block) -> wire.ContentBlock | None:
    kept = block.extra.get(_DIALECT, {})
    common = {"annotations": kept.get("annotations"), "meta": kept.get("_meta")}
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
                icons=kept.get("icons"),
                **common,
            )
        case Resource():
            held = wire.ResourceContents(
                uri=block.uri,
                text=UNSET if block.text is None else block.text,
                blob=UNSET if block.text is not None else (block.data or ""),
                mime_type=block.mime,
                meta=kept.get("contents_meta"),
            )
            return wire.ResourceBlock(resource=held, **common)
        case Diff() | Other():
            return None

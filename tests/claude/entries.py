"""Write transcripts of Claude Code: a home directory for them, and the entries in them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

S = "11111111-1111-4111-8111-111111111111"
S2 = "22222222-2222-4222-8222-222222222222"
VERSIONS = (
    "0.2.126",
    "1.0.30",
    "1.0.128",
    "2.0.0",
    "2.0.76",
    "2.1.19",
    "2.1.112",
    "sdkts-v2-2.1.141",
    "2.1.325",
)
Lines = Iterable["dict[str, Any] | str | bytes"]


class Home:
    """A home directory of Claude Code into which tests write transcripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.projects = root / "projects"

    def write(self, lines: Lines, id: str = S, project: str = "-w") -> Path:
        """Write a transcript with these lines: entries, text, or bytes."""
        path = self.projects / project / f"{id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(as_line, lines)))
        return path

    def write_conversation(
        self, id: str = S, project: str = "-w", prompt: str = "hi", **fields: Any
    ) -> Path:
        """Write a transcript with one prompt and its answer."""
        return self.write([user("u1", None, prompt, **fields), assistant("a1", "u1")], id, project)

    def write_process_file(self, id: str = S, status: str = "busy", **fields: Any) -> Path:
        """Write the file that says that Claude Code, here this process, has a session open."""
        path = self.root / "sessions" / f"{os.getpid()}.json"
        path.parent.mkdir(exist_ok=True)
        default_fields = {
            "pid": os.getpid(),
            "sessionId": id,
            "status": status,
            "updatedAt": 1_700_000_000_000,
        }
        path.write_text(json.dumps({**default_fields, **fields}))
        return path

    def touch(self, id: str, seconds: float, project: str = "-w") -> None:
        """Set the modification time of a transcript."""
        os.utime(self.projects / project / f"{id}.jsonl", (seconds, seconds))


def as_line(line: dict[str, Any] | str | bytes) -> bytes:
    if isinstance(line, bytes):
        return line + b"\n"
    if isinstance(line, dict):
        line = json.dumps(line, separators=(",", ":"), ensure_ascii=False)
    return line.encode("utf-8", "surrogatepass") + b"\n"


def entry(kind: str, uuid: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    header: dict[str, Any] = {"parentUuid": parent, "isSidechain": False, "type": kind}
    return {
        **header,
        "uuid": uuid,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "sessionId": S,
        **fields,
    }


def user(uuid: str, parent: str | None, content: Any = None, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": uuid if content is None else content}
    return entry("user", uuid, parent, message=message, **fields)


def assistant(
    uuid: str, parent: str | None, content: Any = None, id: str | None = None, **fields: Any
) -> dict[str, Any]:
    message = {"role": "assistant", "content": content or [{"type": "text", "text": uuid}]}
    return entry("assistant", uuid, parent, message=message | ({"id": id} if id else {}), **fields)


def system(uuid: str, parent: str | None, subtype: str = "x", **fields: Any) -> dict[str, Any]:
    return entry("system", uuid, parent, subtype=subtype, **fields)


def attachment(uuid: str, parent: str | None, **attached: Any) -> dict[str, Any]:
    return entry("attachment", uuid, parent, attachment=attached)


def boundary(
    uuid: str, anchor: str = "", preserved: Iterable[str] = (), **fields: Any
) -> dict[str, Any]:
    """Return the boundary of a compaction that preserved some messages after its summary."""
    metadata: dict[str, Any] = {"trigger": "manual"}
    if uuids := list(preserved):
        metadata["preservedSegment"] = {
            "headUuid": uuids[0],
            "anchorUuid": anchor,
            "tailUuid": uuids[-1],
        }
        metadata["preservedMessages"] = {"anchorUuid": anchor, "uuids": uuids, "allUuids": uuids}
    return system(uuid, None, "compact_boundary", compactMetadata=metadata, **fields)


def call(id: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": id, "name": "Bash", "input": {}}]


def result(id: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": id, "content": "ok"}]


def title(text: str) -> dict[str, Any]:
    return {"type": "custom-title", "customTitle": text, "sessionId": S}

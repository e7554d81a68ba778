"""Made-up homes of Claude Code: transcripts of the sizes that people have, from 5 KB to 5 MB."""

from __future__ import annotations

import json
import os
import random
import uuid
from pathlib import Path
from typing import Any

from _common import NOW, Words

from segue.model import clock
from segue.sources.claude.format.paths import project_key

PROJECTS = 40
SMALLEST, LARGEST = 5_000, 5_000_000


def home(root: Path, sessions: int, seed: int = 5) -> int:
    """Fill a home with sessions, each in one of forty projects; gives the bytes written."""
    chance, maker = random.Random(seed), _Maker(seed)
    total = 0
    for number in range(sessions):
        # A few projects have most of the sessions.
        project = min(int(chance.expovariate(0.15)), PROJECTS - 1)
        cwd = f"/home/ada/src/project-{project}"
        directory = root / "projects" / project_key(cwd)
        directory.mkdir(parents=True, exist_ok=True)
        id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        size = int(min(max(chance.lognormvariate(10.2, 1.2), SMALLEST), LARGEST))
        at = NOW // clock.SECOND - (sessions - number) * 100
        data = maker.transcript(id, cwd, size, at)
        path = directory / f"{id}.jsonl"
        path.write_bytes(data)
        ended = at + chance.randrange(50, 90)
        os.utime(path, (ended, ended))
        total += len(data)
    return total


class _Maker:
    """Writes conversations: a prompt, then thoughts, calls and results until an answer."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        words = Words()
        # Choosing every word anew would take longer than all that is measured.
        self._said = [words.text(self._chance, 15, 150) for _ in range(4000)]
        self._shown = [words.text(self._chance, 60, 900) for _ in range(2000)]

    def transcript(self, id: str, cwd: str, size: int, at: int) -> bytes:
        chance, lines, written, parent = self._chance, list[str](), 0, None
        shared = {"cwd": cwd, "sessionId": id, "version": "2.1.141", "gitBranch": "main"}

        def put(kind: str, message: dict[str, Any], **more: Any) -> str:
            nonlocal written, parent, at
            own = str(uuid.UUID(int=chance.getrandbits(128), version=4))
            entry = {"parentUuid": parent, "isSidechain": False, "type": kind, "message": message}
            entry |= {"uuid": own, "timestamp": clock.to_rfc3339(at * clock.SECOND)[:-4] + "Z"}
            line = json.dumps(entry | more | shared, separators=(",", ":"))
            lines.append(line)
            written, parent, at = written + len(line) + 1, own, at + 1
            return own

        def answer(*content: dict[str, Any]) -> str:
            response = f"msg_{chance.getrandbits(96):024x}"
            told = {"input_tokens": chance.randrange(20_000), "output_tokens": 400}
            own = ""
            for block in content:
                message = {"id": response, "type": "message", "role": "assistant", "model": "m"}
                own = put("assistant", message | {"content": [block], "usage": told})
            return own

        while written < size:
            prompt = chance.choice(self._said)
            put("user", {"role": "user", "content": prompt}, userType="external")
            for _ in range(chance.randrange(1, 5)):
                call = f"toolu_{chance.getrandbits(96):024x}"
                text = {"type": "text", "text": chance.choice(self._said)}
                given = {"command": chance.choice(self._said)[:60]}
                use = {"type": "tool_use", "id": call, "name": "Bash", "input": given}
                caller = answer(text, use)
                shown = chance.choice(self._shown)
                result = {"type": "tool_result", "tool_use_id": call, "content": shown}
                more = {"sourceToolAssistantUUID": caller, "toolUseResult": {"stdout": shown}}
                put("user", {"role": "user", "content": [result]}, **more)
            answer({"type": "text", "text": chance.choice(self._said)})
            note = {"type": "last-prompt", "lastPrompt": prompt[:200], "sessionId": id}
            lines.append(json.dumps(note, separators=(",", ":")))
        if chance.random() < 0.2:
            title = {"type": "custom-title", "customTitle": prompt[:40], "sessionId": id}
            lines.append(json.dumps(title, separators=(",", ":")))
        return ("\n".join(lines) + "\n").encode()

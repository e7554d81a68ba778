"""Generate Claude Code transcripts of realistic sizes, from 5 KB to 5 MB."""

from __future__ import annotations

import json
import os
import random
import uuid
from pathlib import Path
from typing import Any

from _common import NOW, Vocabulary

from segue.model import clock
from segue.sources.claude.format.paths import project_key

PROJECTS = 40
MIN_BYTES, MAX_BYTES = 5_000, 5_000_000


def write_transcripts(root: Path, sessions: int, seed: int = 5) -> int:
    """Write transcripts of so many sessions, in 40 projects; return the number of bytes."""
    rng, generator = random.Random(seed), _TranscriptGenerator(seed)
    total = 0
    for number in range(sessions):
        # Most sessions are in a few projects.
        project = min(int(rng.expovariate(0.15)), PROJECTS - 1)
        cwd = f"/home/ada/src/project-{project}"
        directory = root / "projects" / project_key(cwd)
        directory.mkdir(parents=True, exist_ok=True)
        id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        size = int(min(max(rng.lognormvariate(10.2, 1.2), MIN_BYTES), MAX_BYTES))
        at = NOW // clock.SECOND - (sessions - number) * 100
        data = generator.transcript(id, cwd, size, at)
        path = directory / f"{id}.jsonl"
        path.write_bytes(data)
        modified = at + rng.randrange(50, 90)
        os.utime(path, (modified, modified))
        total += len(data)
    return total


class _TranscriptGenerator:
    """Generates conversations: each prompt is followed by tool calls, results and an answer."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        words = Vocabulary()
        # Generating a new text for each message would take longer than the benchmark.
        self._messages = [words.text(self._rng, 15, 150) for _ in range(4000)]
        self._outputs = [words.text(self._rng, 60, 900) for _ in range(2000)]

    def transcript(self, id: str, cwd: str, size: int, at: int) -> bytes:
        """Return a transcript of at least `size` bytes that begins at the time `at`."""
        rng, lines, written, parent = self._rng, list[str](), 0, None
        shared = {"cwd": cwd, "sessionId": id, "version": "2.1.141", "gitBranch": "main"}

        def add_entry(kind: str, message: dict[str, Any], **extra: Any) -> str:
            nonlocal written, parent, at
            entry_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
            entry = {"parentUuid": parent, "isSidechain": False, "type": kind, "message": message}
            entry |= {"uuid": entry_id, "timestamp": clock.to_rfc3339(at * clock.SECOND)[:-4] + "Z"}
            line = json.dumps(entry | extra | shared, separators=(",", ":"))
            lines.append(line)
            written, parent, at = written + len(line) + 1, entry_id, at + 1
            return entry_id

        def add_response(*content: dict[str, Any]) -> str:
            response = f"msg_{rng.getrandbits(96):024x}"
            usage = {"input_tokens": rng.randrange(20_000), "output_tokens": 400}
            entry_id = ""
            for block in content:
                message = {"id": response, "type": "message", "role": "assistant", "model": "m"}
                entry_id = add_entry("assistant", message | {"content": [block], "usage": usage})
            return entry_id

        while written < size:
            prompt = rng.choice(self._messages)
            add_entry("user", {"role": "user", "content": prompt}, userType="external")
            for _ in range(rng.randrange(1, 5)):
                call = f"toolu_{rng.getrandbits(96):024x}"
                text = {"type": "text", "text": rng.choice(self._messages)}
                tool_input = {"command": rng.choice(self._messages)[:60]}
                use = {"type": "tool_use", "id": call, "name": "Bash", "input": tool_input}
                caller_id = add_response(text, use)
                output = rng.choice(self._outputs)
                result = {"type": "tool_result", "tool_use_id": call, "content": output}
                extra = {"sourceToolAssistantUUID": caller_id, "toolUseResult": {"stdout": output}}
                add_entry("user", {"role": "user", "content": [result]}, **extra)
            add_response({"type": "text", "text": rng.choice(self._messages)})
            note = {"type": "last-prompt", "lastPrompt": prompt[:200], "sessionId": id}
            lines.append(json.dumps(note, separators=(",", ":")))
        if rng.random() < 0.2:
            title = {"type": "custom-title", "customTitle": prompt[:40], "sessionId": id}
            lines.append(json.dumps(title, separators=(",", ":")))
        return ("\n".join(lines) + "\n").encode()

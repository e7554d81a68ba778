"""Sessions of tools with a generated secret in every turn, and where outputs show them."""

import base64
import html
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from segue.hub import Hub
from segue.model.content import as_content, plain_text
from segue.model.event import AgentMessage, AnyBody, ToolCall, ToolResult, UserMessage
from segue.model.principal import LOCAL
from segue.model.session import Session
from segue.sources import registry
from tests.secrets import generated_secrets as generated
from tests.sources.writing.tool_sessions import as_events, convert_for, writer_of

_WINDOW = 12  # consecutive characters from the middle of a secret that count as a leak
_CHUNK_WINDOW = 8  # of a secret that is split over messages
_TAG = re.compile(r"<[^>]*>")


class Planted(NamedTuple):
    """A secret in a turn of a session, in a text.

    `marker` is a word next to it, `place` says where it is.
    """

    kind: str
    secret: str
    marker: str
    place: str
    text: str


def _bodies(place: str, text: str, cwd: str, marker: str, rng: random.Random) -> list[AnyBody]:
    """Return what a turn does with a text that has a secret."""
    path = str(Path(cwd) / f"{marker}.py")
    match place:
        case "prompt":
            return [UserMessage(content=as_content(f"{marker} {text}"))]
        case "answer":
            return [AgentMessage(content=as_content(f"{marker} {text}"))]
        case "chunks":
            return [AgentMessage(content=as_content(part)) for part in generated.split(text, rng)]
        case "command":
            name, input, output = "Bash", {"command": f"{marker}; {text}"}, "done"
        case "output":
            name, input, output = "Bash", {"command": f"cat {marker}"}, f"{marker}\n{text}"
        case "failure":
            name, input, output = "Bash", {"command": "make"}, f"ValueError: {marker}\n{text}"
        case "write":
            name, input, output = "Write", {"file_path": path, "content": text}, "created"
        case _:
            edit = {"file_path": path, "old_string": f"{text}\n", "new_string": f"{text}!\n"}
            name, input, output = "Edit", edit, "done"
    failed = place == "failure"
    return [
        ToolCall(call_id=f"toolu_{marker}", name=name, input=input),
        ToolResult(
            call_id=f"toolu_{marker}",
            content=as_content(output),
            status="failed" if failed else "completed",
            exit_code=1 if failed else 0,
        ),
    ]


PLACES = ["prompt", "answer", "chunks", "command", "output", "failure", "write", "edit"]


def plant(
    kinds: Sequence[str], cwd: str, rng: random.Random
) -> tuple[list[Planted], list[AnyBody]]:
    """Return a secret of each kind, and a conversation that has one of them in each turn."""
    planted: list[Planted] = []
    bodies: list[AnyBody] = []
    for number, kind in enumerate(kinds):
        name, secret = generated.make(kind, rng)
        place = PLACES[number % len(PLACES)]
        marker = f"quokka{number}x{rng.randrange(10**6)}"
        text = rng.choice(generated.CONTEXTS)(kind, name, secret, rng)
        if place != "prompt":
            bodies.append(UserMessage(content=as_content(f"Please do step {number}.")))
        bodies += _bodies(place, text, cwd, marker, rng)
        bodies.append(AgentMessage(content=as_content(f"Step {number} is done.")))
        planted.append(Planted(kind, secret, marker, place, text))
    return planted, bodies


async def store_session(hub: Hub, tool: str, bodies: list[AnyBody], cwd: str) -> Session:
    """Write a conversation of Claude Code as a session of a tool, or of segue's own."""
    if tool == "segue":
        session = await hub.editor.create(LOCAL, cwd=cwd)
        await hub.editor.append(LOCAL, session.id, *bodies)
        return await hub.sessions.get(LOCAL, session.id)
    writer = writer_of(tool)
    names = registry.get("claude").tool_names()
    conversation, _ = convert_for(tool, as_events(bodies), names, cwd)
    native_id = writer.write(writer.prepare(conversation))
    return await hub.sessions.get(LOCAL, registry.get(tool).transcripts().read(native_id).id)


async def readable(hub: Hub, session: Session, planted: list[Planted]) -> list[Planted]:
    """Return the secrets that a reader of the session can put together.

    Some tools store messages that follow each other as paragraphs of one, which breaks up the
    secrets that were split over them.
    """
    events = [event async for event in hub.history.read(LOCAL, session.id)]
    answers = [e.body.content for e in events if isinstance(e.body, AgentMessage)]
    said = "".join(map(plain_text, answers))
    return [item for item in planted if item.place != "chunks" or item.text in said]


def hidden_parts(secret: str, window: int = _WINDOW) -> list[str]:
    """Return parts of a secret, and of its base64, that no output may have."""
    encoded = base64.b64encode(secret.encode()).decode()
    if "://" in secret and "@" in secret:
        secret = secret.split("://", 1)[1].split("@", 1)[0].split(":", 1)[1]
    if secret.startswith("https://"):
        secret = secret.rsplit("/", 1)[1]
    lines = secret.split("\n")[1:-1] if "PRIVATE KEY" in secret else [secret]
    parts: list[str] = []
    for line in [*lines, encoded]:
        middle = line if len(line) < 2 * window else line[len(line) // 4 : -len(line) // 4]
        size = min(window, len(middle))
        parts += [middle[at : at + size] for at in range(0, len(middle) - size + 1, size // 2)]
    return parts


def _parts_of(item: Planted) -> list[str]:
    return hidden_parts(item.secret, _CHUNK_WINDOW if item.place == "chunks" else _WINDOW)


def as_text(output: str) -> str:
    """Return an output as a reader sees it: without tags, entities and escapes of JSON."""
    text = html.unescape(_TAG.sub("", output)) if "<" in output else output
    return text.replace("\\/", "/").replace('\\"', '"').replace("\\\\", "\\")


def leaked(planted: Sequence[Planted], outputs: dict[str, str]) -> dict[str, list[Planted]]:
    """Return the secrets that each output has."""
    leaks: dict[str, list[Planted]] = {}
    for name, output in outputs.items():
        texts = (output, as_text(output))
        leaks[name] = [
            item
            for item in planted
            if any(part in text for part in _parts_of(item) for text in texts)
        ]
    return leaks


def described(leaks: dict[str, list[Planted]]) -> list[str]:
    """Return a line for each leak."""
    lines: list[Any] = []
    for name, items in leaks.items():
        lines += [f"{name}: {i.kind} in {i.place} ({i.marker}): {i.secret!r}" for i in items]
    return lines

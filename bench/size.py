"""Measure how many bytes an event takes in the store, in the search index and in an export.

The lower bound is the JSON of the events' bodies alone. Three shapes of sessions are stored: short
ones, which show the cost of a session; long ones, which show the cost of an event; and long ones
with large outputs of tools.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from _common import WORKSPACE, Bench, Vocabulary, temporary_directory

from segue.hub import Hub
from segue.model import codec, ids
from segue.model.content import Text
from segue.model.event import AgentMessage, AnyBody, Created, ToolCall, ToolResult, UserMessage
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from segue.store.sqlite.search_index import complete_index, index_path

MAX_RATIO_TO_BODIES = 2.0  # of the store's file, for long sessions


def session_bodies(rng: random.Random, words: Vocabulary, turns: int, lines: int) -> list[AnyBody]:
    """Return the events of a session whose turns each have a question, a tool and an answer."""
    bodies: list[AnyBody] = [Created(cwd="/home/ada/src/project", origin="cli")]
    for _ in range(turns):
        prompt = ids.new_id()
        call = ids.new_id()
        output = "\n".join(words.text(rng, 5, 15) for _ in range(lines))
        bodies += [
            UserMessage(content=(Text(text=words.text(rng)),)),
            ToolCall(call_id=call, name="bash", kind="execute", input={"command": "ls"}),
            ToolResult(call_id=call, content=(Text(text=output),), exit_code=0, turn=prompt),
            AgentMessage(content=(Text(text=words.text(rng)),), turn=prompt),
        ]
    return bodies


async def measure(
    bench: Bench, directory: Path, name: str, sessions: Iterator[list[AnyBody]]
) -> None:
    """Store the sessions, and add a row with the bytes of each event."""
    path = directory / f"{name.replace(' ', '-')}.db"
    hub = Hub(SQLiteStore.open(path), directory)
    events = body_bytes = export_bytes = 0
    for bodies in sessions:
        session = await hub.store.create(WORKSPACE, ids.new_id(), bodies)
        events += len(bodies)
        body_bytes += sum(len(codec.encode(body)) for body in bodies)
        async for chunk in hub.exchange.export(LOCAL, session.id):
            export_bytes += len(chunk)
    await hub.close()
    complete_index(path)
    store_bytes = path.stat().st_size
    ratio = store_bytes / body_bytes
    bench.row(
        name,
        target=f"≤ {MAX_RATIO_TO_BODIES:g}x" if name != "short" else "",
        ok=ratio <= MAX_RATIO_TO_BODIES if name != "short" else None,
        bodies=body_bytes / events,
        store=store_bytes / events,
        ratio=ratio,
        index=index_path(path).stat().st_size / events,
        export=export_bytes / events,
    )


async def main() -> int:
    bench = Bench("Bytes per event", ("bodies", "store", "ratio", "index", "export"))
    rng, words = random.Random(8), Vocabulary()
    count = 50 if bench.quick else 1_000
    shapes = {"short": (count, 1, 5), "long": (count // 5, 25, 5), "large outputs": (20, 25, 100)}
    with temporary_directory() as directory:
        for name, (sessions, turns, lines) in shapes.items():
            generated = (session_bodies(rng, words, turns, lines) for _ in range(sessions))
            await measure(bench, directory, name, generated)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""Example sessions: one with every kind of event, many small ones, and long ones."""

import asyncio
import base64
import zlib
from collections.abc import Iterator

from segue.hub import Hub
from segue.model import clock, ids
from segue.model.content import Diff, Image, ResourceLink, Text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Created,
    Draft,
    Failed,
    InfoChanged,
    Interrupted,
    Location,
    ModelCalled,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.model.session import Session

OLD_CODE = """def upload(path, client):
    data = path.read_bytes()
    client.put(path.name, data)
    return True
"""
NEW_CODE = """def upload(path, client, attempts=3):
    data = path.read_bytes()
    for attempt in range(attempts):
        try:
            client.put(path.name, data)
            return True
        except ConnectionError:
            time.sleep(2 ** attempt)
    return False
"""
ANSWER = """The upload now **retries three times**, with a pause that doubles each time.

```python
for attempt in range(attempts):
    try:
        client.put(path.name, data)
        return True
    except ConnectionError:
        time.sleep(2 ** attempt)
```

| attempt | pause |
|---|---|
| 1 | 1 s |
| 2 | 2 s |

See https://example.com/retries for the reasoning, and `upload.py` for the code:

1. It reads the file once.
2. It gives up with `False` and not with an exception.
"""


def text(value: str) -> tuple[Text, ...]:
    return (Text(text=value),)


def picture(width: int = 240, height: int = 90) -> str:
    """Return a PNG of a gradient in base64."""
    rows = b"".join(
        b"\0" + bytes(v for x in range(width) for v in (15, 118 + y, 90 + x % 160))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + check

    size = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size)
    png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


async def create_full_session(hub: Hub) -> Session:
    """Create a session with every kind of event that a transcript shows."""
    bodies = [
        Created(cwd="/home/me/src/courier", git_branch="retry-uploads", origin="acp"),
        InfoChanged(title="Retry the upload when the connection drops", tag="network"),
        UserMessage(content=text("The upload gives up at the first hiccup. Make it retry.")),
        AgentThought(content=text("First look at how uploads are done, then wrap the call.")),
        PlanChanged(
            entries=(
                PlanEntry(content="Find the upload", status="completed"),
                PlanEntry(content="Wrap it in a retry", status="in_progress"),
                PlanEntry(content="Test it with a cut connection"),
            )
        ),
        ToolCall(
            call_id="c1",
            name="Bash",
            kind="execute",
            input={"command": "grep -rn 'client.put' src/", "description": "Find the upload"},
        ),
        ToolResult(call_id="c1", content=text("src/courier/upload.py:3:    client.put(path.name)")),
        ToolCall(
            call_id="c2",
            name="Edit",
            title="Edit upload.py",
            kind="edit",
            content=(Diff(path="src/courier/upload.py", old=OLD_CODE, new=NEW_CODE),),
            locations=(Location(path="src/courier/upload.py", line=1),),
        ),
        ToolResult(call_id="c2", content=text("The file was changed.")),
        ToolCall(call_id="c3", name="Bash", kind="execute", input={"command": "pytest -q"}),
        ToolResult(call_id="c3", status="failed", content=text("1 failed, 41 passed")),
        AgentMessage(content=text(ANSWER)),
        ModelCalled(
            model="claude-sonnet-4-5",
            usage=Usage(
                input_tokens=1840, output_tokens=912, cache_read_tokens=52_000, cost=23_400
            ),
            duration=8_200_000,
            context_used=61_000,
            context_size=200_000,
        ),
        UserMessage(
            content=(
                Text(text="And this is what the graph looks like:"),
                Image(mime="image/png", data=picture()),
                ResourceLink(uri="file:///home/me/src/courier/graph.py", name="graph.py"),
            )
        ),
        Compacted(
            summary=text("Uploads retry three times."), tokens_before=61_000, tokens_after=4_000
        ),
        AgentMessage(content=text("The spikes are the retries: each one a dropped"), partial=True),
        Interrupted(),
        Failed(message="The model's service is overloaded.", code="overloaded"),
    ]
    session = await hub.store.create("local", ids.new_id(), bodies[:2])
    await hub.editor.append(LOCAL, session.id, *bodies[2:])
    return await hub.sessions.get(LOCAL, session.id)


async def create_many_sessions(hub: Hub, count: int, days: int = 40) -> list[Session]:
    """Create many small sessions in a few projects, over some weeks."""
    sessions = []
    now = clock.now()
    topics = ["parser", "login page", "nightly build", "schema", "retries", "icons", "docs"]
    for number in range(count):
        at = now - (number * days * clock.DAY) // max(1, count)
        topic = topics[number % len(topics)]
        bodies = [
            Created(cwd=f"/home/me/src/project-{number % 4}", origin="cli"),
            UserMessage(content=text(f"Look at the {topic}, number {number}")),
            AgentMessage(content=text(f"The {topic} is fine; I left it as it was.")),
            InfoChanged(title=f"Look at the {topic} ({number})", by="auto"),
        ]
        if number % 5 == 0:
            bodies.append(InfoChanged(tag="review"))
        drafts = [Draft(body=body, at=at) for body in bodies]
        sessions.append(hub.store.create("local", ids.new_id(), drafts))
    return await asyncio.gather(*sessions)


async def create_long_session(hub: Hub, messages: int, title: str = "A long one") -> Session:
    """Create a session of many messages and tool calls."""
    at = clock.now() - messages * clock.SECOND

    def drafts() -> Iterator[Draft]:
        yield Draft(body=Created(cwd="/home/me/src/long", origin="cli"), at=at)
        yield Draft(body=InfoChanged(title=title), at=at)
        for number in range(messages // 2):
            time = at + number * 2 * clock.SECOND
            yield Draft(body=UserMessage(content=text(f"Question {number}")), at=time)
            if number % 3 == 0:
                call = f"call-{number}"
                body = ToolCall(call_id=call, name="Read", kind="read", input={"path": "a.py"})
                yield Draft(body=body, at=time)
                result = ToolResult(call_id=call, content=text("x = 1\n" * 20))
                yield Draft(body=result, at=time)
            answer = f"Answer {number}. " + "It **depends**, as `most` things do. " * (number % 7)
            yield Draft(body=AgentMessage(content=text(answer)), at=time)

    all_drafts = list(drafts())
    session = await hub.store.create("local", ids.new_id(), all_drafts[:2])
    for start in range(2, len(all_drafts), 2000):
        await hub.editor.append(LOCAL, session.id, *all_drafts[start : start + 2000])
    return await hub.sessions.get(LOCAL, session.id)

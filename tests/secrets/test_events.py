"""Secrets are masked in every field of an event that has text."""

from collections.abc import Sequence
from typing import Any

import msgspec

from segue.model.content import (
    Diff,
    FileChange,
    InsertedText,
    Other,
    Resource,
    Text,
    as_content,
)
from segue.model.event import (
    AgentMessage,
    AnyBody,
    Compacted,
    Created,
    Event,
    Failed,
    Foreign,
    InfoChanged,
    PermissionAnswered,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.model.session import Session
from segue.render.reader import ConversationReader, MaskedReader
from segue.secrets.events import (
    SecretCounter,
    adjacent_messages,
    mask_event,
    mask_events,
    mask_session,
)

KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
SESSION = Session(
    id="1", workspace="default", cwd="/a", created_at=0, active_at=0, updated_at=0, last_seq=0
)
MASK = "ghp_…8B4a [masked]"


def event(body: AnyBody, seq: int = 1) -> Event:
    return Event(seq=seq, id=f"event-{seq}", at=seq, body=body)


def texts(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def test_every_text_of_every_kind_of_event_is_masked() -> None:
    bodies: list[AnyBody] = [
        UserMessage(content=(Text(text=f"use {KEY}"), Resource(uri="a.env", text=f"K={KEY}"))),
        AgentMessage(content=(Other(dialect="x", raw={"deep": [KEY]}),), extra={"raw": KEY}),
        ToolCall(call_id="1", name="bash", title=KEY, input={"command": f"curl -H 'X: {KEY}'"}),
        ToolCallChanged(call_id="1", input={"token": KEY}),
        ToolResult(
            call_id="1",
            content=(
                Diff(path="a", old=KEY, new=KEY),
                FileChange(path="a", before_sha256=None, after_sha256="0", patch=f"+{KEY}"),
            ),
            output={"stdout": KEY},
        ),
        PermissionAnswered(ask_id="1", note=KEY, input={"command": KEY}),
        PlanChanged(entries=(PlanEntry(content=KEY),)),
        InfoChanged(title=KEY, tag=KEY, metadata={"note": KEY}),
        Failed(message=KEY, remote_message=KEY),
        Compacted(summary=(Text(text=KEY),)),
        Created(cwd="/a", metadata={"key": KEY}, resources=({"token": KEY},)),
        Foreign(dialect="x", raw={"a": KEY}, words=KEY),
    ]
    for body in bodies:
        masked = mask_event(event(body))
        assert KEY in texts(body)
        assert KEY not in texts(masked.body), body
        assert type(masked.body) is type(body)


def test_an_event_without_secrets_is_returned_as_it_is() -> None:
    plain = event(ToolCall(call_id="call_1", name="read", input={"path": "/tmp/a"}))
    assert mask_event(plain) is plain


def test_a_secret_that_is_split_over_streamed_messages_is_masked() -> None:
    parts = [f"The key is {KEY[:9]}", KEY[9:30], f"{KEY[30:]} as you asked."]
    events = [
        event(AgentMessage(content=(Text(text=text),)), seq) for seq, text in enumerate(parts, 1)
    ]
    counter = SecretCounter()
    shown = [texts(masked.body) for masked in mask_events(events, counter)]
    assert MASK in shown[0]
    assert not any(KEY[12:28] in text for text in shown)
    assert "as you asked" in shown[2]
    assert counter.secrets == 1


async def test_a_secret_that_is_split_over_two_pages_is_masked_on_both() -> None:
    parts = ["first", "the key ghp_16C7e42F292c", "6912E7710c83", "8347Ae178B4a opens it", "last"]
    events = [event(AgentMessage(content=as_content(part)), seq) for seq, part in enumerate(parts)]
    reader = MaskedReader(ConversationReader(events))
    for cut in range(len(parts)):
        pages = [
            await reader.events(LOCAL, "1", after=-1, before=cut),
            await reader.events(LOCAL, "1", after=cut - 1),
        ]
        shown = [texts(page) for page in pages]
        assert not any(part in "".join(shown) for part in ("16C7e", "6912E", "8347A")), cut
        assert sum(map(len, pages)) == len(parts)


async def test_neighbours_of_a_whole_message_cost_one_event_on_each_side() -> None:
    whole = [
        event(kind(content=as_content("text")), seq)
        for seq in range(1, 41)
        for kind in (AgentMessage if seq % 2 else UserMessage,)
    ]
    split = [event(AgentMessage(content=as_content(part)), seq) for seq, part in enumerate(KEY, 1)]
    reader = ConversationReader([])
    events_read: list[int] = []

    async def read(**window: Any) -> Sequence[Event]:
        events = await reader.events(LOCAL, "1", **window)
        events_read.append(len(events))
        return events

    reader = ConversationReader(whole)
    assert await adjacent_messages(whole[20:21], read) == ([], [])
    assert events_read == [1, 1]
    reader = ConversationReader(split)
    assert await adjacent_messages(split[20:21], read) == (split[:20], split[21:])


def test_marked_parts_of_a_message_move_with_its_text() -> None:
    text = f"{KEY} <note>remember {KEY}</note> end"
    start, end = text.index("<note>"), text.index(" end")
    body = UserMessage(
        content=(Text(text=text),),
        inserted=(
            InsertedText(
                kind="note", start=start, end=end, inside_start=start + 6, inside_end=end - 7
            ),
        ),
    )
    masked = mask_event(event(body)).body
    assert isinstance(masked, UserMessage) and isinstance(masked.content[0], Text)
    part, shown = masked.inserted[0], masked.content[0].text
    assert shown[part.start : part.end] == f"<note>remember {MASK}</note>"
    assert shown[part.inside_start : part.inside_end] == f"remember {MASK}"


def test_the_title_of_a_session_is_masked() -> None:
    session = msgspec.structs.replace(SESSION, title=f"deploy with {KEY}")
    assert mask_session(session).title == f"deploy with {MASK}"
    assert mask_session(SESSION) is SESSION

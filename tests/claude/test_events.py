"""Translate lines to events: all lines of nine real homes, and each kind of line alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from segue.model import codec, projection
from segue.model.content import Diff, Image, Other, Resource, Text, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    ConfigChanged,
    Created,
    Event,
    Failed,
    Foreign,
    InfoChanged,
    Interrupted,
    ModelCalled,
    PlanChanged,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    decode_body,
)
from segue.model.session import Session
from segue.sources import safe_io
from segue.sources.claude.events import transcript_summary
from segue.sources.claude.events.summary import TranscriptSummary
from segue.sources.claude.events.transcript_reader import TranscriptReader
from segue.sources.claude.format.jsonl import parse_entries
from segue.sources.claude.sdk.quick_info import WINDOW_BYTES
from tests.claude.entries import (
    VERSIONS,
    Home,
    S,
    as_line,
    assistant,
    attachment,
    boundary,
    entry,
    system,
    title,
    user,
)
from tests.claude.test_golden import golden

CONVERSATION_TYPES = (
    UserMessage,
    AgentMessage,
    AgentThought,
    ToolCall,
    ToolResult,
    Failed,
    Interrupted,
)


@contextmanager
def reading(path: Path, id: str | None = None) -> Iterator[tuple[TranscriptReader, Session]]:
    with safe_io.open_for_reading(str(path)) as (descriptor, _):
        known = TranscriptSummary()
        for _text in transcript_summary.scan_lines(descriptor, known):
            pass
        session = transcript_summary.session_from_summary(
            known, id or path.stem, str(path), "local"
        )
        assert session is not None
        yield (
            TranscriptReader(descriptor, session.id, transcript_summary.creation_event(session)),
            session,
        )


def bodies(path: Path) -> list[AnyBody]:
    with reading(path) as (reader, _):
        first, *events = reader.all()
    assert isinstance(first.body, Created)
    return [event.body for event in events]


def uuid(event: Event) -> str:
    return str(event.body.extra["claude"]["uuid"])


def transcripts(homes: Path, version: str) -> Iterator[Path]:
    listed = {row["sessionId"] for row in golden(homes, version, "ts")["list"]}
    for path in sorted((homes / version / "projects").glob("*/*.jsonl")):
        if path.stem in listed:
            yield path


@pytest.mark.parametrize("version", VERSIONS)
def test_every_line_becomes_an_event(homes: Path, version: str) -> None:
    for path in transcripts(homes, version):
        with reading(path) as (reader, _):
            events = list(reader.all())
        places = {event.seq for event in events[1:]}
        offset = 0
        for line in path.read_bytes().splitlines(keepends=True):
            assert offset + 2 in places
            offset += len(line)
        assert len({event.id for event in events}) == len(events)
        assert [event.seq for event in events] == sorted(places | {1})


@pytest.mark.parametrize("version", VERSIONS)
def test_conversation_equals_the_sdk_messages(homes: Path, version: str) -> None:
    for path in transcripts(homes, version):
        expected = [uuid for _, uuid in golden(homes, version, "ts")["msgs"][path.stem]]
        with reading(path) as (reader, _):
            shown = [event for event in reader.conversation() if event.seq > 1]
        uuids = list(
            dict.fromkeys(
                uuid(e) for e in shown if isinstance(e.body, (*CONVERSATION_TYPES, Compacted))
            )
        )
        if any(isinstance(event.body, Compacted) for event in shown):
            # The messages before the compaction are included as well.
            assert set(expected) < set(uuids)
        else:
            assert sorted(uuids) == sorted(expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_reader_returns_equal_events_from_any_position(homes: Path, version: str) -> None:
    for path in list(transcripts(homes, version))[:4]:
        with reading(path) as (reader, _):
            events = list(reader.all())
            for at in range(0, len(events), 1 + len(events) // 8):
                assert list(reader.all(events[at].seq)) == events[at + 1 :]
                assert (
                    reader.page(before=events[at].seq, limit=5, backward=True)
                    == (events[max(0, at - 5) : at])
                )
            assert reader.page(limit=3) == events[:3]
            assert reader.page(limit=10_000, backward=True) == events
            assert reader.find_seq(events[-1].id) == events[-1].seq


@pytest.mark.parametrize("version", VERSIONS)
def test_session_row_equals_the_projection_of_its_events(homes: Path, version: str) -> None:
    rows = {row["sessionId"]: row for row in golden(homes, version, "ts")["list"]}
    for path in transcripts(homes, version):
        with reading(path) as (reader, session):
            events = list(reader.all())
        row = rows[path.stem]
        if path.stat().st_size <= WINDOW_BYTES:  # the SDK sees all of it, as we do
            assert (session.title, session.tag, session.cwd, session.git_branch) == (
                row["summary"],
                row.get("tag"),
                row.get("cwd", "/"),
                row.get("gitBranch"),
            )
            if "createdAt" in row:
                assert session.created_at // 1000 == row["createdAt"]
        folded = projection.project("local", session.id, events)
        for name in ("messages", "tool_calls", "errors", "days", "last_seq"):
            assert getattr(folded, name) == getattr(session, name)
        # Other lines than those of the responses report the cost of the session.
        assert without_cost(folded.usage) == without_cost(session.usage)
        assert folded.models.keys() == session.models.keys()
        for model, used in session.models.items():
            assert without_cost(folded.models[model]) == without_cost(used)
            if used.estimated_cost:
                assert folded.models[model] == used


def without_cost(usage: Usage) -> Usage:
    return replace(usage, cost=None, estimated_cost=UNSET)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_event_can_be_encoded_and_decoded(homes: Path, version: str) -> None:
    for path in transcripts(homes, version):
        with reading(path) as (reader, _):
            for event in reader.all():
                assert decode_body(codec.encode(event.body)) == event.body


def test_translator_translates_messages_of_users_and_models(home: Home) -> None:
    png = {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"}
    path = home.write(
        [
            user("u1", None, "look"),
            user("u2", "u1", [{"type": "text", "text": "this"}, {"type": "image", "source": png}]),
            assistant(
                "a1",
                "u2",
                [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I see"},
                    {"type": "novelty", "x": 1},
                ],
            ),
            user("u3", "a1", "a caveat", isMeta=True),
            user("u4", "u3", "[Request interrupted by user]"),
            user(
                "u5", "u4", [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
            ),
            attachment("q1", "u5", type="queued_command", prompt="and this"),
        ]
    )
    look, this, thought, redacted, see, novelty, caveat, cut, cut_too, queued = bodies(path)
    assert look.content == (Text(text="look"),)  # type: ignore[union-attr]
    assert this.content == (Text(text="this"), Image(mime="image/jpeg", data="QUJD"))  # type: ignore[union-attr]
    assert isinstance(thought, AgentThought) and plain_text(thought.content) == "hm"
    assert thought.extra["claude"]["signature"] == "sig"
    assert isinstance(redacted, AgentThought) and isinstance(redacted.content[0], Other)
    assert isinstance(see, AgentMessage) and plain_text(see.content) == "I see"
    assert isinstance(novelty, AgentMessage) and isinstance(novelty.content[0], Other)
    assert isinstance(caveat, SystemMessage)
    assert isinstance(cut, Interrupted) and isinstance(cut_too, Interrupted)
    assert isinstance(queued, UserMessage) and plain_text(queued.content) == "and this"


def test_translator_translates_documents(home: Home) -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}
    text = {"type": "text", "media_type": "text/plain", "data": "words"}
    blocks = [
        {"type": "document", "source": pdf, "title": "a.pdf"},
        {"type": "document", "source": text},
    ]
    (message,) = bodies(home.write([user("u1", None, blocks)]))
    assert isinstance(message, UserMessage)
    one, two = message.content
    assert isinstance(one, Resource) and (one.uri, one.data, one.text) == ("a.pdf", "QUJD", None)
    assert isinstance(two, Resource) and (two.data, two.text) == (None, "words")


def use(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": arguments}


def test_translator_translates_tool_calls_and_results(home: Home) -> None:
    todos = [{"content": "dig", "status": "in_progress", "activeForm": "digging"}]
    done = {"type": "tool_result", "tool_use_id": "toolu_Bash", "content": "a.txt"}
    failed = {"type": "tool_result", "tool_use_id": "x", "is_error": True}
    failed["content"] = "Exit code 2\nno such file"
    path = home.write(
        [
            user("u1", None, "go"),
            assistant(
                "a1",
                "u1",
                [
                    use("Bash", command="ls  -l"),
                    use("Edit", file_path="/w/a.py", old_string="a", new_string="b"),
                    use("mcp__files__read", path="x"),
                    use("TodoWrite", todos=todos),
                ],
            ),
            user(
                "u2", "a1", [done, failed, {"type": "text", "text": "well"}], toolUseResult={"n": 1}
            ),
        ]
    )
    _, bash, edit, mcp, todo, plan, result, failure, well = bodies(path)
    assert isinstance(bash, ToolCall) and isinstance(edit, ToolCall)
    assert (bash.title, bash.kind, bash.input) == ("ls -l", "execute", {"command": "ls  -l"})
    assert edit.content == (Diff(path="/w/a.py", old="a", new="b"),)
    assert [location.path for location in edit.locations] == ["/w/a.py"]
    assert isinstance(mcp, ToolCall) and (mcp.server, mcp.name) == ("files", "read")
    assert isinstance(todo, ToolCall) and isinstance(plan, PlanChanged)
    assert [(step.content, step.status) for step in plan.entries] == [("dig", "in_progress")]
    assert isinstance(result, ToolResult) and plain_text(result.content) == "a.txt"
    assert result.extra["claude"]["toolUseResult"] == {"n": 1}
    assert isinstance(failure, ToolResult)
    assert (result.exit_code, failure.status, failure.exit_code) == (None, "failed", 2)
    assert isinstance(well, UserMessage)


def test_translator_counts_the_usage_of_a_response_once(home: Home) -> None:
    def response(uuid: str, parent: str, id: str) -> dict[str, Any]:
        entry = assistant(uuid, parent, id=id)
        usage = {"input_tokens": 3, "output_tokens": 5, "cache_creation_input_tokens": 7}
        entry["message"] |= {"model": "m", "usage": usage}
        return entry

    path = home.write(
        [
            user("u1", None),
            response("a1", "u1", "msg_1"),
            user("u2", "a1"),
            response("a2", "a1", "msg_1"),
            response("a3", "a2", "msg_2"),
        ]
    )
    calls = [body for body in bodies(path) if isinstance(body, ModelCalled)]
    assert [(call.model, call.context_used) for call in calls] == [("m", 15), ("m", 15)]
    assert calls[0].usage.cache_write_tokens == 7


def test_translator_makes_one_event_of_a_compaction(home: Home) -> None:
    mark = boundary("b1")
    mark["compactMetadata"]["preTokens"] = 1234
    path = home.write([user("u1", None), mark, user("s1", "b1", "so far", isCompactSummary=True)])
    _, kept, compacted = bodies(path)
    assert isinstance(kept, Foreign) and kept.raw["subtype"] == "compact_boundary"
    assert isinstance(compacted, Compacted)
    assert (compacted.trigger, compacted.tokens_before) == ("manual", 1234)
    assert plain_text(compacted.summary) == "so far"
    with reading(path) as (reader, _):
        events = list(reader.all())
        assert list(reader.all(events[-2].seq)) == events[-1:]  # begun between the two lines


def test_translator_translates_titles_tags_and_modes(home: Home) -> None:
    path = home.write(
        [
            user("u1", None),
            title("Mine"),
            {"type": "ai-title", "aiTitle": "Made", "sessionId": S},
            {"type": "tag", "tag": "exp", "sessionId": S},
            {"type": "tag", "tag": "", "sessionId": S},
            {"type": "mode", "mode": "plan", "sessionId": S},
            {"type": "permission-mode", "permissionMode": "auto", "sessionId": S},
            {"type": "custom-title", "customTitle": 7},
        ]
    )
    _, own_title, generated_title, tag, no_tag, mode, permission, odd = bodies(path)
    assert isinstance(own_title, InfoChanged) and (own_title.title, own_title.by) == (
        "Mine",
        "person",
    )
    assert isinstance(generated_title, InfoChanged) and (
        generated_title.title,
        generated_title.by,
    ) == ("Made", "auto")
    assert isinstance(tag, InfoChanged) and tag.tag == "exp" and tag.title is UNSET
    assert isinstance(no_tag, InfoChanged) and no_tag.tag is None
    assert isinstance(mode, ConfigChanged) and mode.mode == "plan"
    assert isinstance(permission, ConfigChanged)
    assert permission.options == {"permission_mode": "auto"}
    assert isinstance(odd, Foreign)


def test_translator_translates_errors_and_system_messages(home: Home) -> None:
    path = home.write(
        [
            user("u1", None),
            assistant("a1", "u1", isApiErrorMessage=True, error="overloaded"),
            system("s1", "a1", "api_error", error={"message": "no route"}),
            system("s2", "s1", "local_command", content="cost: 0"),
            system("s3", "s2", "turn_duration", durationMs=3),
            entry("progress", "p1", "s3", data={}),
        ]
    )
    _, failed, retrying, notice, timed, progress = bodies(path)
    assert isinstance(failed, Failed) and (failed.message, failed.code) == ("a1", "overloaded")
    assert isinstance(retrying, Failed) and retrying.retry == "retrying"
    assert isinstance(notice, SystemMessage) and plain_text(notice.content) == "cost: 0"
    assert isinstance(timed, Foreign) and isinstance(progress, Foreign)


def test_lines_of_a_subagent_have_its_thread(home: Home) -> None:
    aside = {"isSidechain": True, "agentId": "a7"}
    path = home.write([user("u1", None), assistant("x1", "u1", **aside), user("u2", "u1")])
    assert [body.thread for body in bodies(path)] == [None, "a7", None]


def test_unparseable_lines_become_foreign_events(home: Home) -> None:
    path = home.write([user("u1", None), b"\xff torn", "[1]", b"", "7"])
    _, torn, array, number = bodies(path)
    assert isinstance(torn, Foreign) and torn.raw == "\udcff torn"
    assert isinstance(array, Foreign) and array.raw == "[1]"
    assert isinstance(number, Foreign) and number.raw == "7"


def test_joined_entries_become_separate_events(home: Home) -> None:
    glued = as_line(user("u1", None)).rstrip() + as_line(user("u2", "u1")).rstrip()
    path = home.write([glued, user("u3", "u2")])
    with reading(path) as (reader, _):
        assert [uuid(event) for event in reader.all(1)] == ["u1", "u2", "u3"]
        assert [uuid(event) for event in reader.all(2)] == ["u2", "u3"]


def test_reader_waits_for_the_end_of_an_incomplete_line(home: Home) -> None:
    path = home.write([user("u1", None)])
    line = as_line(user("u2", "u1"))
    with reading(path) as (reader, _):
        last = list(reader.all())[-1].seq
        for piece in (line[:20], line[20:-1]):
            assert list(reader.all(last)) == []
            with path.open("ab") as file:
                file.write(piece)
        (event,) = reader.all(last)  # the reader does not wait for the newline
        assert uuid(event) == "u2"
        with path.open("ab") as file:
            file.write(b"\n")
        assert list(reader.all(last)) == [event]


def test_reader_returns_an_incomplete_line_on_request(home: Home) -> None:
    path = home.write([user("u1", None)])
    with path.open("ab") as file:
        file.write(b'{"type":"us')
    with reading(path) as (reader, _):
        *_, torn = reader.all(include_incomplete=True)
        assert isinstance(torn.body, Foreign) and torn.body.raw == '{"type":"us'


def test_abandoned_branch_is_not_in_the_conversation(home: Home) -> None:
    path = home.write(
        [user("u1", None), assistant("a1", "u1"), user("u2", "a1"), user("u3", "a1"), title("T")]
    )
    with reading(path) as (reader, _):
        assert [uuid(event) for event in reader.all(1) if "uuid" in event.body.extra["claude"]] == [
            "u1",
            "a1",
            "u2",
            "u3",
        ]
        assert [uuid(event) for event in reader.conversation() if event.seq > 1] == [
            "u1",
            "a1",
            "u3",
        ]


def test_conversation_includes_messages_before_a_compaction(home: Home) -> None:
    path = home.write(
        [
            user("u1", None),
            assistant("a1", "u1"),
            boundary("b1", "s1", ["a1"], logicalParentUuid="a1"),
            user("s1", "b1", "so far", isCompactSummary=True),
            user("u2", "s1"),
        ]
    )
    with reading(path) as (reader, _):
        shown = [uuid(event) for event in reader.conversation() if event.body.extra]
        assert shown == ["u1", "a1", "s1", "u2"]  # the boundary is not a message


def test_scan_continues_at_the_end_of_the_last_scan(home: Home) -> None:
    path = home.write_conversation()
    known = TranscriptSummary()

    def scan() -> list[str]:
        nonlocal known
        with safe_io.open_for_reading(str(path)) as (descriptor, _):
            known = transcript_summary.resume_summary(descriptor, known)
            texts = [body for _, body in transcript_summary.scan_lines(descriptor, known)]
            return [plain_text(body.content) for body in texts]  # type: ignore[union-attr]

    assert scan() == ["hi", "a1"]
    assert scan() == []
    with path.open("ab") as file:
        file.write(as_line(user("u2", "a1")).rstrip())
    assert scan() == ["u2"]
    with path.open("ab") as file:
        file.write(b"\n" + as_line(assistant("a2", "u2")))
    assert scan() == ["a2"]
    assert (known.messages, known.end) == (4, os.path.getsize(path))
    home.write([user("v1", None), user("v2", "v1"), *(user(f"v{n}", "v2") for n in range(3, 9))])
    assert scan() == [f"v{n}" for n in range(1, 9)]  # another file replaced it


def test_scan_parses_each_line_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = home.write_conversation(), 0

    def counting(line: bytes) -> list[dict[str, Any]]:
        nonlocal read
        read += 1
        return parse_entries(line)

    monkeypatch.setattr("segue.sources.claude.format.jsonl.parse_entries", counting)
    with safe_io.open_for_reading(str(path)) as (descriptor, _):
        assert len(list(transcript_summary.scan_lines(descriptor, TranscriptSummary()))) == 2
    assert read == 2

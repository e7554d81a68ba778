"""The session functions over a SessionStore; the SDK's own tests of them run in tests/peers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from segue import claude
from segue.claude import InMemorySessionStore, SessionKey
from tests.claude.entries import S2, Home, S, assistant, boundary, call, result, title, user

T = TypeVar("T")
KEY: SessionKey = {"project_key": "-w", "session_id": S}


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Counting(InMemorySessionStore):
    loads = 0

    async def load(self, key: SessionKey) -> Any:
        self.loads += 1
        return await super().load(key)


def imported(home: Home, id: str = S) -> Counting:
    store = Counting()
    run(claude.import_session_to_store(id, store))
    return store


def test_import_continues_after_a_damaged_line(home: Home) -> None:
    home.write(
        [user("u1", None), b'{"type":"user","mess', b"\xff\xfe", b"[" * 5000, assistant("a1", "u1")]
    )
    assert [entry.get("uuid") for entry in imported(home).get_entries(KEY)] == ["u1", "a1"]


def test_import_keeps_lines_with_an_invalid_byte(home: Home) -> None:
    line = b'{"type":"user","uuid":"u1","message":{"content":"a\xffb"}}'
    home.write([b"\0" * 300 + line])
    (entry,) = imported(home).get_entries(KEY)
    assert entry["message"] == {"content": "a\ufffdb"}


def test_import_keeps_lines_with_unicode_line_separators(home: Home) -> None:
    home.write([user("u1", None, "a\u2028b\x85c"), assistant("a1", "u1")])
    assert len(imported(home).get_entries(KEY)) == 2


def test_list_with_summaries_loads_no_transcript(home: Home) -> None:
    for id in (S, S2):
        home.write_conversation(
            id, project=claude.project_key_for_directory("/w"), prompt=f"said in {id}"
        )
    store = imported(home)
    run(claude.import_session_to_store(S2, store))
    infos = run(claude.list_sessions_from_store(store, "/w"))
    assert [info.first_prompt for info in infos] == [f"said in {S2}", f"said in {S}"]
    assert store.loads == 0


def test_session_that_starts_with_an_image_is_listed(home: Home) -> None:
    store = InMemorySessionStore()
    run(store.append(KEY, [user("u1", None, [{"type": "image", "source": {}}])]))
    (info,) = run(claude.list_sessions_from_store(store, "/w"))
    assert info.summary == "Image"


def test_tool_input_is_not_a_title(home: Home) -> None:
    store = InMemorySessionStore()
    spoof = [{"type": "tool_use", "id": "t", "name": "X", "input": {"customTitle": "spoof"}}]
    run(store.append(KEY, [user("u1", None, "hi"), assistant("a1", "u1", spoof)]))
    info = run(claude.get_session_info_from_store(store, S, "/w"))
    assert info is not None
    assert (info.custom_title, info.summary) == (None, "hi")


def test_store_returns_preserved_messages_as_files_do(home: Home) -> None:
    entries = [
        user("u1", None),
        assistant("a1", "u1"),
        boundary("b1", "c1", ["a1"]),
        user("c1", "b1", "summary", isCompactSummary=True),
        user("u2", "c1"),
    ]
    home.write(entries, project=claude.project_key_for_directory("/w"))
    store = imported(home)
    stored = run(claude.get_session_messages_from_store(store, S, "/w"))
    assert stored == claude.get_session_messages(S)
    assert [message.uuid for message in stored] == ["c1", "a1", "u2"]


def test_fork_via_store_equals_the_fork_of_the_file(home: Home) -> None:
    entries = [user("u1", None), assistant("a1", "u1", call("t1")), user("u2", "a1", result("t1"))]
    home.write([*entries, title("Named")], project=claude.project_key_for_directory("/w"))
    store = imported(home)
    fork = run(claude.fork_session_via_store(store, S, "/w")).session_id
    on_disk = claude.fork_session(S).session_id
    assert [message.message for message in claude.get_session_messages(on_disk)] == [
        message.message
        for message in run(claude.get_session_messages_from_store(store, fork, "/w"))
    ]
    info = run(claude.get_session_info_from_store(store, fork, "/w"))
    assert info is not None
    assert info.custom_title == "Named (fork)"


def test_rename_via_store_reduces_a_title_to_one_line(home: Home) -> None:
    store = InMemorySessionStore()
    run(claude.rename_session_via_store(store, S, "\x1b[31mred\nand \ud800more", "/w"))
    (entry,) = store.get_entries(KEY)
    assert entry["customTitle"] == "red and more"


def test_invalid_entries_in_a_store_do_not_stop_readers(home: Home) -> None:
    odd: list[Any] = [
        {"type": ["user"], "uuid": 1},
        {"type": "user", "uuid": "u1", "parentUuid": {}, "message": "?"},
        None,
        [],
        {"type": "tag", "tag": 5},
        user("u2", "u1", "words"),
    ]
    store = InMemorySessionStore()
    run(store.append(KEY, [entry for entry in odd if isinstance(entry, dict)]))
    assert run(claude.get_session_messages_from_store(store, S, "/w"))[-1].uuid == "u2"
    assert run(claude.list_sessions_from_store(store, "/w"))[0].summary == "words"
    with pytest.raises(FileNotFoundError):
        run(claude.fork_session_via_store(store, S2, "/w"))

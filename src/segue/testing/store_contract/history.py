"""Contract: events are filtered by seq, type and time, and stored unchanged."""

from __future__ import annotations

from segue.model import ids
from segue.model.content import Audio, Diff, Image, Other, Resource, ResourceLink, Text
from segue.model.event import (
    AgentRef,
    AnyBody,
    ConfigChanged,
    Created,
    Delta,
    Foreign,
    InfoChanged,
    ModelCalled,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.query import Query, position
from segue.store.base import Store
from segue.testing.helpers import ids_of, message_texts

from .harness import (
    WORKSPACE,
    Contract,
    agent_message,
    append_events,
    at,
    check_projection,
    create_session,
    draft,
    list_ids,
    read_history,
    tag_change,
    title_change,
    user_message,
)

ODD = "nul \0, half an emoji \ud83d, the other half \ude00, \u2028, é"


class HistoryContract(Contract):
    # reading

    async def test_events_are_returned_in_order(self, store: Store) -> None:
        session = await create_session(store, *(user_message(str(i)) for i in range(5)))
        assert message_texts(await store.events(WORKSPACE, session.id)) == list("01234")

    async def test_range_of_events_excludes_both_its_ends(self, store: Store) -> None:
        session = await create_session(
            store, *(user_message(str(i)) for i in range(5))
        )  # seq 2 to 6
        assert message_texts(await store.events(WORKSPACE, session.id, after=3)) == list("234")
        assert message_texts(await store.events(WORKSPACE, session.id, before=4)) == list("01")
        assert message_texts(await store.events(WORKSPACE, session.id, after=2, before=5)) == list(
            "12"
        )
        assert await store.events(WORKSPACE, session.id, after=3, before=4) == []
        assert await store.events(WORKSPACE, session.id, after=6) == []
        assert await store.events(WORKSPACE, session.id, before=0) == []
        assert len(await store.events(WORKSPACE, session.id, after=-1, before=1 << 40)) == 6

    async def test_limit_returns_the_first_events(self, store: Store) -> None:
        session = await create_session(store, *(user_message(str(i)) for i in range(5)))
        assert message_texts(await store.events(WORKSPACE, session.id, after=1, limit=2)) == list(
            "01"
        )

    async def test_backward_returns_the_last_events_in_the_same_order(self, store: Store) -> None:
        session = await create_session(store, *(user_message(str(i)) for i in range(5)))
        assert message_texts(
            await store.events(WORKSPACE, session.id, limit=2, backward=True)
        ) == list("34")
        before = await store.events(WORKSPACE, session.id, before=5, limit=2, backward=True)
        assert message_texts(before) == list("12")

    async def test_events_are_filtered_by_type(self, store: Store) -> None:
        session = await create_session(
            store, user_message("a"), agent_message("b"), title_change("c"), user_message("d")
        )
        assert message_texts(await store.events(WORKSPACE, session.id, types=["user_message"])) == [
            "a",
            "d",
        ]
        message_types = ["user_message", "agent_message"]
        assert message_texts(
            await store.events(WORKSPACE, session.id, types=message_types, limit=2)
        ) == [
            "a",
            "b",
        ]
        assert message_texts(
            await store.events(WORKSPACE, session.id, types=message_types, limit=1, backward=True)
        ) == ["d"]
        assert await store.events(WORKSPACE, session.id, types=["tool_call"]) == []

    async def test_events_are_filtered_by_time_with_both_ends_included(self, store: Store) -> None:
        session = await create_session(
            store, *(draft(user_message(str(i)), seconds=i) for i in range(5))
        )
        assert message_texts(await store.events(WORKSPACE, session.id, since=at(3))) == list("34")
        assert message_texts(await store.events(WORKSPACE, session.id, until=at(1))) == list("01")
        assert message_texts(
            await store.events(WORKSPACE, session.id, since=at(1), until=at(2))
        ) == list("12")

    async def test_filters_of_events_can_be_combined(self, store: Store) -> None:
        drafts = [
            draft(user_message(str(i)) if i % 2 else agent_message(str(i)), seconds=i)
            for i in range(9)
        ]
        session = await create_session(store, *drafts)
        filtered = await store.events(
            WORKSPACE,
            session.id,
            after=2,
            before=10,
            types=["user_message"],
            since=at(2),
            until=at(7),
            limit=2,
            backward=True,
        )
        assert message_texts(filtered) == ["5", "7"]

    async def test_an_event_is_located_by_its_id(self, store: Store) -> None:
        id = ids.new_id()
        session = await create_session(store, user_message("a"), draft(user_message("b"), id=id))
        assert await store.locate(WORKSPACE, session.id, id) == 3
        assert await store.locate(WORKSPACE, session.id, ids.new_id()) is None
        other = await create_session(store)
        assert await store.locate(WORKSPACE, other.id, id) is None

    async def test_two_sessions_may_have_events_with_the_same_id(self, store: Store) -> None:
        id = ids.new_id()
        first = await create_session(store, draft(user_message("one"), id=id))
        second = await create_session(
            store, user_message("two"), draft(user_message("three"), id=id)
        )
        assert await store.locate(WORKSPACE, first.id, id) == 2
        assert await store.locate(WORKSPACE, second.id, id) == 3

    async def test_a_long_session_is_read_page_by_page(self, store: Store) -> None:
        session = await create_session(store, *(user_message(f"line {i}") for i in range(9_999)))
        assert session.last_seq == 10_000
        seqs: list[int] = []
        while page := await store.events(WORKSPACE, session.id, after=len(seqs), limit=1000):
            seqs += [event.seq for event in page]
        assert seqs == list(range(1, 10_001))
        seqs_backward: list[int] = []
        while page := await store.events(
            WORKSPACE,
            session.id,
            before=seqs_backward[0] if seqs_backward else None,
            limit=1000,
            backward=True,
        ):
            seqs_backward = [event.seq for event in page] + seqs_backward
        assert seqs_backward == seqs
        assert (await append_events(store, session, user_message("one more"))).last_seq == 10_001

    # unchanged content

    async def test_every_kind_of_content_is_read_back_unchanged(self, store: Store) -> None:
        content = (
            Text(text="plain", extra={"acp": {"annotations": [1, 2.5, None]}}),
            Image(data="aGk=", mime="image/png"),
            Audio(data="aGk=", mime="audio/wav"),
            ResourceLink(uri="file:///a", name="a", size=3),
            Resource(uri="file:///b", text="b"),
            Diff(path="/c", old="1", new="2"),
            Other(dialect="x", raw={"y": [True]}),
        )
        bodies: list[AnyBody] = [
            UserMessage(content=content, thread="t", extra={"rest": {"deep": {"er": []}}}),
            ToolCall(call_id="c", name="run", input={"big": 2**53 + 1, "none": None}),
            ToolResult(call_id="c", content=content, output=[1, "2"]),
            PlanChanged(entries=(PlanEntry(content="do", status="in_progress"),)),
            ConfigChanged(mode="plan", options={"a": {"b": 1}}, agent=AgentRef(id="x", version=2)),
            InfoChanged(title=None, metadata={"gone": None, "kept": "1"}),
            ModelCalled(usage=Usage(input_tokens=3, cost=12), model="m"),
            Foreign(dialect="x", raw={"any": ["thing"]}),
        ]
        session = await create_session(store, *bodies)
        assert [event.body for event in await read_history(store, session)][1:] == bodies
        await check_projection(store, session)

    async def test_odd_characters_survive_in_events(self, store: Store) -> None:
        session = await create_session(
            store, user_message(ODD), ToolResult(call_id=ODD, output={ODD: ODD})
        )
        message, result = [event.body for event in await read_history(store, session)][1:]
        assert message == user_message(ODD)
        assert result == ToolResult(call_id=ODD, output={ODD: ODD})

    async def test_odd_characters_survive_in_rows(self, store: Store) -> None:
        session = await create_session(
            store, title_change(ODD), tag_change(ODD), cwd=ODD, metadata={ODD: ODD}, git_branch=ODD
        )
        assert (session.title, session.tag, session.cwd, session.metadata) == (
            ODD,
            ODD,
            ODD,
            {ODD: ODD},
        )
        assert await store.get(WORKSPACE, session.id) == session
        assert await store.page(WORKSPACE, Query()) == [session]
        await check_projection(store, session)

    async def test_lists_can_be_filtered_by_odd_characters(self, store: Store) -> None:
        session = await create_session(store, tag_change(ODD), cwd=ODD)
        await create_session(store, tag_change("nul "), cwd="nul ")
        assert await list_ids(store, tag=ODD) == [session.id]
        assert await list_ids(store, directories=(ODD,)) == [session.id]

    async def test_long_names_are_distinguished(self, store: Store) -> None:
        long = "/deep" * 4000
        session = await create_session(store, tag_change(long + "1"), cwd=long + "1")
        await create_session(store, tag_change(long + "2"), cwd=long + "2")
        assert await list_ids(store, tag=long + "1") == [session.id]
        assert await list_ids(store, directories=(long + "1",)) == [session.id]

    async def test_odd_characters_survive_in_text_and_deltas(self, store: Store) -> None:
        session = await create_session(store, user_message(f"before {ODD} behind"))
        assert await list_ids(store, text="behind") == [session.id]
        assert await list_ids(store, text=f"before {ODD}") == [session.id]
        lease = await store.acquire(WORKSPACE, session.id, "holder")
        assert lease is not None
        piece = Delta(session=session.id, message="m", kind="message", offset=0, text=ODD)
        await store.put_deltas(lease, [piece])
        assert await store.deltas(WORKSPACE, session.id) == [piece]

    async def test_odd_characters_survive_in_records_and_settings(self, store: Store) -> None:
        session = await create_session(store)
        item = await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {ODD: [ODD]})
        assert await store.inbox(WORKSPACE, session.id) == [item]
        assert item.body == {ODD: [ODD]}
        await store.set_setting(WORKSPACE, "name", ODD)
        assert await store.settings(WORKSPACE) == {"name": ODD}
        await store.set_overlay(WORKSPACE, "source", session.id, {"title": ODD})
        assert await store.overlays(WORKSPACE, "source") == {session.id: {"title": ODD}}

    async def test_times_of_any_age_are_stored(self, store: Store) -> None:
        old = await create_session(store, seconds=-1_800_000_000)
        assert old.created_at < 0
        new = await create_session(store, seconds=200_000_000_000)
        assert ids_of(await store.page(WORKSPACE, Query(order="created"))) == [new.id, old.id]
        after = await store.page(WORKSPACE, Query(order="created"), position(new, "created"))
        assert ids_of(after) == [old.id]

    async def test_creation_event_can_be_long(self, store: Store) -> None:
        resources = tuple({"number": i, "text": "x" * 1000} for i in range(200))
        session = await create_session(store, user_message("word " * 100_000), resources=resources)
        assert await store.get(WORKSPACE, session.id) == session
        assert isinstance((await read_history(store, session))[0].body, Created)

"""Events: read by place, kind and time, and kept to the last odd character."""

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

from .harness import (
    HERE,
    MINUTE,
    Contract,
    add,
    agent,
    at,
    check_fold,
    draft,
    history,
    ids_of,
    listed,
    make,
    tagged,
    texts,
    titled,
    user,
)

ODD = "nul \0, half an emoji \ud83d, the other half \ude00, \u2028, é"


class HistoryContract(Contract):
    # read

    async def test_events_come_in_order(self, store: Store) -> None:
        made = await make(store, *(user(str(i)) for i in range(5)))
        assert texts(await store.events(HERE, made.id)) == list("01234")

    async def test_events_of_a_range_lie_between_its_ends(self, store: Store) -> None:
        made = await make(store, *(user(str(i)) for i in range(5)))  # seq 2 to 6
        assert texts(await store.events(HERE, made.id, after=3)) == list("234")
        assert texts(await store.events(HERE, made.id, before=4)) == list("01")
        assert texts(await store.events(HERE, made.id, after=2, before=5)) == list("12")
        assert await store.events(HERE, made.id, after=3, before=4) == []
        assert await store.events(HERE, made.id, after=6) == []
        assert await store.events(HERE, made.id, before=0) == []
        assert len(await store.events(HERE, made.id, after=-1, before=1 << 40)) == 6

    async def test_a_limit_takes_from_the_start(self, store: Store) -> None:
        made = await make(store, *(user(str(i)) for i in range(5)))
        assert texts(await store.events(HERE, made.id, after=1, limit=2)) == list("01")

    async def test_backward_takes_from_the_end_in_the_same_order(self, store: Store) -> None:
        made = await make(store, *(user(str(i)) for i in range(5)))
        assert texts(await store.events(HERE, made.id, limit=2, backward=True)) == list("34")
        before = await store.events(HERE, made.id, before=5, limit=2, backward=True)
        assert texts(before) == list("12")

    async def test_events_can_be_of_some_types_only(self, store: Store) -> None:
        made = await make(store, user("a"), agent("b"), titled("c"), user("d"))
        assert texts(await store.events(HERE, made.id, types=["user_message"])) == ["a", "d"]
        both = ["user_message", "agent_message"]
        assert texts(await store.events(HERE, made.id, types=both, limit=2)) == ["a", "b"]
        assert texts(await store.events(HERE, made.id, types=both, limit=1, backward=True)) == ["d"]
        assert await store.events(HERE, made.id, types=["tool_call"]) == []

    async def test_events_can_be_of_some_time_both_ends_included(self, store: Store) -> None:
        made = await make(store, *(draft(user(str(i)), seconds=i) for i in range(5)))
        assert texts(await store.events(HERE, made.id, since=at(3))) == list("34")
        assert texts(await store.events(HERE, made.id, until=at(1))) == list("01")
        assert texts(await store.events(HERE, made.id, since=at(1), until=at(2))) == list("12")

    async def test_all_that_events_are_asked_by_goes_together(self, store: Store) -> None:
        drafts = [draft(user(str(i)) if i % 2 else agent(str(i)), seconds=i) for i in range(9)]
        made = await make(store, *drafts)
        some = await store.events(
            HERE, made.id, after=2, before=10, types=["user_message"], since=at(2), until=at(7),
            limit=2, backward=True,
        )  # fmt: skip
        assert texts(some) == ["5", "7"]

    async def test_an_event_is_located_by_its_id(self, store: Store) -> None:
        id = ids.new_id()
        made = await make(store, user("a"), draft(user("b"), id=id))
        assert await store.locate(HERE, made.id, id) == 3
        assert await store.locate(HERE, made.id, ids.new_id()) is None
        other = await make(store)
        assert await store.locate(HERE, other.id, id) is None

    async def test_two_sessions_may_hold_an_event_of_the_same_id(self, store: Store) -> None:
        id = ids.new_id()
        one = await make(store, draft(user("one"), id=id))
        two = await make(store, user("two"), draft(user("three"), id=id))
        assert await store.locate(HERE, one.id, id) == 2
        assert await store.locate(HERE, two.id, id) == 3

    async def test_a_long_session_is_read_page_by_page(self, store: Store) -> None:
        made = await make(store, *(user(f"line {i}") for i in range(9_999)))
        assert made.last_seq == 10_000
        places: list[int] = []
        while page := await store.events(HERE, made.id, after=len(places), limit=1000):
            places += [event.seq for event in page]
        assert places == list(range(1, 10_001))
        back: list[int] = []
        while page := await store.events(
            HERE, made.id, before=back[0] if back else None, limit=1000, backward=True
        ):
            back = [event.seq for event in page] + back
        assert back == places
        assert (await add(store, made, user("one more"))).last_seq == 10_001

    # kept whole

    async def test_every_kind_of_content_comes_back_as_it_was(self, store: Store) -> None:
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
        made = await make(store, *bodies)
        assert [event.body for event in await history(store, made)][1:] == bodies
        await check_fold(store, made)

    async def test_odd_characters_survive_in_events(self, store: Store) -> None:
        made = await make(store, user(ODD), ToolResult(call_id=ODD, output={ODD: ODD}))
        message, result = [event.body for event in await history(store, made)][1:]
        assert message == user(ODD)
        assert result == ToolResult(call_id=ODD, output={ODD: ODD})

    async def test_odd_characters_survive_in_rows(self, store: Store) -> None:
        made = await make(
            store, titled(ODD), tagged(ODD), cwd=ODD, metadata={ODD: ODD}, git_branch=ODD
        )
        assert (made.title, made.tag, made.cwd, made.metadata) == (ODD, ODD, ODD, {ODD: ODD})
        assert await store.get(HERE, made.id) == made
        assert await store.page(HERE, Query()) == [made]
        await check_fold(store, made)

    async def test_lists_can_be_filtered_by_odd_characters(self, store: Store) -> None:
        made = await make(store, tagged(ODD), cwd=ODD)
        await make(store, tagged("nul "), cwd="nul ")
        assert await listed(store, tag=ODD) == [made.id]
        assert await listed(store, directories=(ODD,)) == [made.id]

    async def test_long_names_are_told_apart(self, store: Store) -> None:
        long = "/deep" * 4000
        one = await make(store, tagged(long + "1"), cwd=long + "1")
        await make(store, tagged(long + "2"), cwd=long + "2")
        assert await listed(store, tag=long + "1") == [one.id]
        assert await listed(store, directories=(long + "1",)) == [one.id]

    async def test_odd_characters_survive_in_text_and_deltas(self, store: Store) -> None:
        made = await make(store, user(f"before {ODD} behind"))
        assert await listed(store, text="behind") == [made.id]
        assert await listed(store, text=f"before {ODD}") == [made.id]
        lease = await store.acquire(HERE, made.id, "holder", MINUTE)
        assert lease is not None
        piece = Delta(session=made.id, message="m", kind="message", offset=0, text=ODD)
        await store.put_deltas(lease, [piece])
        assert await store.deltas(HERE, made.id) == [piece]

    async def test_odd_characters_survive_beside_the_sessions(self, store: Store) -> None:
        made = await make(store)
        item = await store.put_inbox(HERE, made.id, "prompt", "p", {ODD: [ODD]})
        assert await store.inbox(HERE, made.id) == [item]
        assert item.body == {ODD: [ODD]}
        await store.set_setting(HERE, "name", ODD)
        assert await store.settings(HERE) == {"name": ODD}
        await store.set_overlay(HERE, "source", made.id, {"title": ODD})
        assert await store.overlays(HERE, "source") == {made.id: {"title": ODD}}

    async def test_times_of_any_age_are_kept(self, store: Store) -> None:
        old = await make(store, seconds=-1_800_000_000)
        assert old.created_at < 0
        new = await make(store, seconds=200_000_000_000)
        assert ids_of(await store.page(HERE, Query(order="created"))) == [new.id, old.id]
        after = await store.page(HERE, Query(order="created"), position(new, "created"))
        assert ids_of(after) == [old.id]

    async def test_a_creation_can_be_as_long_as_anything(self, store: Store) -> None:
        resources = tuple({"number": i, "text": "x" * 1000} for i in range(200))
        made = await make(store, user("word " * 100_000), resources=resources)
        assert await store.get(HERE, made.id) == made
        assert isinstance((await history(store, made))[0].body, Created)

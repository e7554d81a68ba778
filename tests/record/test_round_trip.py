"""An export that is imported into an empty store and exported again is the same file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.hub import Hub
from segue.hub.sync.memory_source import MemorySource
from segue.hub.sync.validation import validate
from segue.model import projection
from segue.model.content import Audio, Image, Other, Resource, ResourceLink, Text, as_content
from segue.model.errors import IllegalTransition
from segue.model.event import (
    AgentMessage,
    AgentRef,
    AgentThought,
    AnyBody,
    Compacted,
    ConfigChanged,
    Created,
    Draft,
    Event,
    Failed,
    Foreign,
    ForkPoint,
    InfoChanged,
    Interrupted,
    OutcomeDefined,
    OutcomeEvaluated,
    PlanChanged,
    PlanEntry,
    SystemMessage,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.model.record import Record
from segue.model.session import Session
from segue.store.memory import MemoryStore
from segue.store.sqlite import SQLiteStore
from tests.store import strategies

ID = "01980000-0000-7000-8000-000000000001"
SAFE, PROGRAM, UNKNOWN = (f"01980000-0000-7000-8000-{number:012}" for number in (2, 3, 4))
ODD_TEXTS = ("plain", "nul \0", "half \ud83d", "two\nlines\u2028", '"quotes\\"', "東京 🙂")
odd_texts = st.sampled_from(ODD_TEXTS)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.just(0.5) | odd_texts,
    lambda values: st.lists(values, max_size=2) | st.dictionaries(odd_texts, values, max_size=2),
    max_leaves=4,
)
blocks = st.one_of(
    st.builds(Text, text=odd_texts, extra=st.just({}) | st.just({"rest": {"a": [1, None]}})),
    st.builds(Image, data=st.just("iVBORw0KGgo=")),
    st.builds(Audio, mime=st.just("audio/wav"), data=st.just("UklGRg==")),
    st.builds(ResourceLink, uri=odd_texts, size=st.none() | st.integers(0, 9)),
    st.builds(Resource, uri=odd_texts, data=st.none() | st.just("AA==")),
    st.builds(Other, dialect=st.just("rest"), raw=plain_values),
)
contents = st.lists(blocks, max_size=2).map(tuple)
threads = st.none() | st.just("thread-1")
agents = st.builds(
    AgentRef,
    id=st.sampled_from((SAFE, PROGRAM, UNKNOWN)),
    version=st.integers(1, 2),
    overrides=st.sampled_from(({}, {"system": "be brief"}, {"command": "rm -rf /"})),
)
bodies: st.SearchStrategy[AnyBody] = st.one_of(
    strategies.bodies.filter(
        lambda body: not isinstance(body, ConfigChanged)  # its agents have no records
    ),
    st.builds(UserMessage, content=contents),
    st.builds(SystemMessage, content=contents),
    st.builds(AgentMessage, content=contents, thread=threads),
    st.builds(AgentThought, content=contents, thread=threads),
    st.builds(ConfigChanged, agent=agents, by_key=st.booleans()),
    st.builds(
        ConfigChanged,
        mode=st.sampled_from(("plan", "acceptEdits", "bypassPermissions")),
        options=st.just({}) | st.just({"always_allow": ["bash"]}),
        by_key=st.booleans(),
    ),
    st.builds(PlanChanged, entries=st.just((PlanEntry(content="step"),))),
    st.builds(Compacted, summary=contents),
    st.builds(Interrupted, reason=odd_texts),
    st.builds(Failed, message=odd_texts),
    st.builds(OutcomeDefined, outcome_id=st.just("o"), description=odd_texts),
    st.builds(
        OutcomeEvaluated, outcome_id=st.just("o"), iteration=st.just(1), result=st.just("running")
    ),
    st.builds(Foreign, dialect=st.just("acp"), raw=plain_values, words=odd_texts),
)
creations = st.builds(
    Created,
    cwd=odd_texts.map("/{}".format),
    agent=st.none() | agents,
    origin=st.sampled_from(("cli", "rest", "claude")),
    native_id=st.none() | odd_texts,
    metadata=st.dictionaries(odd_texts, odd_texts, max_size=1),
    fork=st.none() | st.just(ForkPoint(session="parent", seq=2)),
    memory_store_ids=st.just(()) | st.just((ID,)),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Generate valid histories with every type of event and odd text."""
    first = Event(seq=1, id="e1", at=strategies.NOON, body=draw(creations))
    events, session = [first], projection.start("local", ID, first)
    for body in draw(st.lists(bodies, max_size=12)):
        seq = len(events) + 1
        event = Event(seq=seq, id=f"e{seq}", at=draw(strategies.times), body=body)
        try:
            session = projection.apply(session, event)
        except IllegalTransition:
            continue
        events.append(event)
    return events


def agent_records() -> list[Record]:
    """Return two versions of an agent that is safe to import, and of one that starts a program."""
    at = strategies.NOON
    specs = {SAFE: {"kind": "demo"}, PROGRAM: {"kind": "acp", "command": "evil --now"}}
    return [
        Record(
            workspace="local",
            kind="agent",
            id=id,
            version=version,
            created_at=at,
            updated_at=at + version,
            body={"name": f"{id} {version}", "spec": spec},
        )
        for id, spec in specs.items()
        for version in (1, 2)
    ]


async def export(hub: Hub, id: str) -> list[bytes]:
    return [line async for line in hub.exchange.export(LOCAL, id)]


def accepted_agent(agent: AgentRef | None) -> AgentRef | None:
    """Return the agent that may answer after an import; all that may not become the same one."""
    if agent is None:
        return None
    if agent.id != SAFE:
        return AgentRef(id="the built-in agent")
    overrides = {name: value for name, value in agent.overrides.items() if name != "command"}
    return replace(agent, overrides=overrides)


def added_types(session: Session) -> list[str]:
    """Return the types of the events that an import into an empty store may add, in order."""
    types = []
    if session.turn is not None:
        types += ["interrupted"]
        types += ["permission_answered"] * len(session.open_asks)
        types += ["tool_result"] * len(session.open_calls)
        types += ["outcome_evaluated"] * sum(
            outcome.completed_at is None for outcome in session.outcomes
        )
        types += ["status_changed"]
    own, of_keys = session.for_local_turn().agent, session.agent
    if "agent" in session.local_settings and accepted_agent(own) != own:
        types += ["config_changed"]  # which also ends what a key had chosen
        own = accepted_agent(own)
        types += ["config_changed"] * (accepted_agent(of_keys) != own)
    elif accepted_agent(of_keys) != of_keys:
        types += ["config_changed"]
    for settings_of_turn in (session, session.for_local_turn()):
        granting = settings_of_turn.mode in ("acceptEdits", "bypassPermissions")
        if granting or settings_of_turn.options.get("always_allow"):
            return [*types, "config_changed"]
    return types


@pytest.mark.parametrize("examples", [40, pytest.param(1500, marks=pytest.mark.full)])
def test_round_trip_through_an_empty_store_loses_nothing(examples: int, tmp_path: Path) -> None:
    number = 0

    def new_hub() -> Hub:
        nonlocal number
        number += 1
        directory = tmp_path / str(number)
        directory.mkdir()
        return Hub(SQLiteStore.open(directory / "segue.db"), directory)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(events=histories())
    def check(events: list[Event]) -> None:
        import asyncio

        asyncio.run(round_trip(events, new_hub))

    check()


async def round_trip(events: list[Event], new_hub: Callable[[], Hub]) -> None:
    async with Hub(MemoryStore(), Path("/nonexistent")) as hub:
        for record in agent_records():
            await hub.store.put_record(record)
        session = await hub.store.load("local", ID, events)
        exported = await export(hub, ID)
    assert validate_loosely(exported) == len(events)
    async with new_hub() as hub:
        imported = await hub.exchange.import_session(LOCAL, exported)
        stored = await hub.store.events("local", ID, limit=1000)
        again = await export(hub, ID)
    assert stored[: len(events)] == events
    assert [event.type for event in stored[len(events) :]] == added_types(session)
    assert again[1 : len(exported)] == exported[1:]
    first, second = (json.loads(lines[0]).get("agents", []) for lines in (exported, again))
    assert [record for record in second if record in first] == first
    if not added_types(session):
        assert imported == session and again == exported
    async with new_hub() as hub:  # nothing is added a second time
        assert await hub.exchange.import_session(LOCAL, again) == imported
        assert await export(hub, ID) == again


def validate_loosely(lines: list[bytes]) -> int:
    """Validate a generated history, whose events refer to nothing, as that of another tool."""
    header = json.loads(lines[0])
    header["interface"] = "another tool"
    return validate([json.dumps(header).encode(), *lines[1:]]).events


class TitledSource(MemorySource):
    """A source that knows a title, a tag and a state that are in no event."""

    async def get(self, id: str) -> Session | None:
        session = await super().get(id)
        if session is None:
            return None
        return replace(session, title="known \ud800", title_by="auto", tag="t", archived_at=5)


async def test_session_of_a_source_is_exported_as_its_import_exports_it(tmp_path: Path) -> None:
    source = TitledSource()
    created = Created(
        cwd="/w", source="memory", origin="memory", fork=ForkPoint(session="p", seq=2)
    )
    drafts: list[Any] = [Draft(id="c", body=created)]
    drafts += [UserMessage(content=as_content(text)) for text in ODD_TEXTS]
    await source.create(ID, drafts)
    async with Hub(MemoryStore(), tmp_path, sources=[source]) as hub:
        exported = await export(hub, ID)
        row = await hub.sessions.get(LOCAL, ID)
    assert validate(exported).events == len(exported) - 1
    async with Hub(MemoryStore(), tmp_path) as hub:
        imported = await hub.exchange.import_session(LOCAL, exported)
        assert (imported.title, imported.tag, imported.archived_at) == ("known \ud800", "t", 5)
        assert (imported.owner, imported.source, imported.fork) == ("segue", "memory", row.fork)
        assert await export(hub, ID) == exported


async def test_events_that_are_added_during_an_export_are_left_out(tmp_path: Path) -> None:
    """The header counts the events of the file."""
    async with Hub(MemoryStore(), tmp_path) as hub:
        id = (await hub.editor.create(LOCAL, cwd="/w")).id
        lines = []
        async for line in hub.exchange.export(LOCAL, id):
            lines.append(line)
            if len(lines) == 1:
                await hub.editor.append(LOCAL, id, InfoChanged(tag="later"))
        assert validate(lines).events == 1


async def test_copy_in_an_existing_directory_is_exported_as_the_original(tmp_path: Path) -> None:
    async with Hub(MemoryStore(), tmp_path / "data") as hub:
        id = (await hub.editor.create(LOCAL, cwd=str(tmp_path))).id
        await hub.turns.run(LOCAL, id, "/say hello")
        exported = await export(hub, id)
    async with Hub(MemoryStore(), tmp_path / "other") as hub:
        imported = await hub.exchange.import_session(LOCAL, exported)
        assert imported.directory_is_unconfirmed
        assert await export(hub, id) == exported
        await hub.turns.run(LOCAL, id, "/say again")  # now the event is not the last one
        assert validate(await export(hub, id)).events > len(exported)

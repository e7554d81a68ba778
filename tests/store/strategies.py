"""Hypothesis strategies for changes of sessions and for queries.

The pools are small, so that sessions have values in common and equal times.
"""

from hypothesis import strategies as st

from segue.model.content import as_content
from segue.model.event import (
    AgentMessage,
    AgentRef,
    AnyBody,
    ConfigChanged,
    Created,
    InfoChanged,
    ModelCalled,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.lifecycle import STATUSES
from segue.model.query import Query

Change = tuple[AnyBody, int | None]  # an event's body, and its time unless it is the current time

NOON = 1_700_000_000_000_000
WORDS = ("alpha", "alphabet", "beta", "gamma delta", "東京", "ΣΊΣΥΦΟΣ", "a\0b", "\ud83d half")

times = st.integers(0, 5).map(lambda tick: NOON + tick)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
agents = st.builds(AgentRef, id=st.sampled_from("pq"), version=st.integers(1, 2))
tags = st.none() | st.sampled_from(("red", "blue", "\ud83d\0"))
calls = st.sampled_from(("c1", "c2"))

creations = st.builds(
    Created,
    cwd=st.sampled_from(("/a", "/b")),
    real_cwd=st.none() | st.just("/b"),
    agent=st.none() | agents,
    deployment_id=st.none() | st.sampled_from("de"),
    memory_store_ids=st.lists(st.sampled_from("mn"), max_size=2).map(tuple),
    source=st.sampled_from(("segue", "claude")),
    origin=st.sampled_from(("cli", "codex")),
)
bodies: st.SearchStrategy[AnyBody] = st.one_of(
    st.builds(UserMessage, content=texts.map(as_content)),
    st.builds(AgentMessage, content=texts.map(as_content)),
    st.builds(InfoChanged, title=st.none() | texts, by=st.sampled_from(("person", "auto"))),
    st.builds(InfoChanged, tag=tags, metadata=st.just({"k": "v"})),
    st.builds(InfoChanged, archived=st.booleans()),
    st.builds(InfoChanged, deleted=st.booleans()),
    st.builds(ConfigChanged, agent=agents, options=st.just({"k": 1})),
    st.builds(
        StatusChanged,
        status=st.sampled_from([*STATUSES[:3]] * 3 + [*STATUSES]),
        turn=st.none() | st.just("t"),
    ),
    st.builds(ToolCall, call_id=calls, name=st.just("run")),
    st.builds(ToolResult, call_id=calls, content=texts.map(as_content)),
    st.builds(PermissionAsked, ask_id=calls, title=st.just("?"), options=st.just(())),
    st.builds(PermissionAnswered, ask_id=calls),
    st.builds(ModelCalled, usage=st.builds(Usage, input_tokens=st.integers(0, 9))),
)
change_lists = st.lists(st.tuples(bodies, st.none() | times), max_size=3)
several_statuses = st.lists(st.sampled_from(STATUSES), max_size=2).map(tuple)
searches = st.sampled_from(
    ["alpha", "alphab", '"gamma delta" alpha', "beta alphabet", "京", "σίσυφος ", "half", "?!", "x"]
)
queries = st.builds(
    Query,
    directories=st.lists(st.sampled_from(("/a", "/b")), max_size=2).map(tuple),
    agent_id=st.none() | st.sampled_from("pq"),
    agent_version=st.none() | st.integers(1, 2),
    created_gt=st.none() | times,
    created_gte=st.none() | times,
    created_lt=st.none() | times,
    created_lte=st.none() | times,
    active_after=st.none() | times,
    statuses=several_statuses,
    deployment_id=st.none() | st.sampled_from("de"),
    memory_store_id=st.none() | st.sampled_from("mn"),
    tag=tags,
    source=st.none() | st.sampled_from(("claude", "codex")),
    archived=st.sampled_from(("exclude", "include", "only")),
    archived_as=st.none() | st.just("terminated"),
    trash=st.booleans(),
    text=st.none() | searches,
    order=st.sampled_from(("active", "created")),
    descending=st.booleans(),
    limit=st.integers(1, 4),
)


@st.composite
def sparse_queries(draw: st.DrawFn) -> Query:
    """Draw a query with few filters: with all of them nothing would match."""
    query = draw(queries)
    names = draw(st.sets(st.sampled_from(query.__struct_fields__), max_size=4))
    paging = {"order", "descending", "limit"}
    chosen = {name: getattr(query, name) for name in names | paging}
    return Query(**chosen)

"""Sessions: create, list, retrieve, update, archive, delete."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.hub.resources.agent_settings import check_settings
from segue.hub.resources.first_events import InitialEvent
from segue.hub.resources.records import built_in_environment, patch_metadata
from segue.hub.resources.session_factory import SessionSetup
from segue.hub.sessions.editor import MAX_CHARACTERS
from segue.hub.turns.budgets import MICRODOLLARS_PER_CENT, budget_changes
from segue.interfaces.rest import paging
from segue.interfaces.rest.params import CREATED_AT
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import agent_settings, requests
from segue.interfaces.rest.schemas.session import SessionOut, show, status
from segue.model import clock, codec, ids, search_text
from segue.model.errors import Busy, InvalidInput
from segue.model.event import AgentRef, ConfigChanged, InfoChanged
from segue.model.query import Query
from segue.model.session import Session

from . import agents, resources

# The parameters of the hosted API, then those that only segue has.
FILTERS = (
    "agent_id",
    "agent_version",
    *CREATED_AT,
    "deployment_id",
    "include_archived",
    "limit",
    "memory_store_id",
    "order",
    "page",
    "statuses[]",
    "cwd",
    "tag",
    "source",
    "q",
)
Title = Annotated[str, Meta(max_length=MAX_CHARACTERS["title"])]
# Replaces a filter value that is not a valid id, and matches no session.
_MATCHES_NOTHING = "-"


class Money(requests.Body, frozen=True):
    """A number of whole cents, as text."""

    amount: Annotated[
        str, codec.described_pattern("a whole number above 0", "^[1-9][0-9]*$", max_length=14)
    ]
    currency: Literal["USD"]


class Budget(requests.Body, frozen=True, tag_field="type", tag="limit"):
    max_list_cost: Money


class Create(requests.Body, frozen=True):
    agent: str | requests.AgentById | requests.AgentWithOverrides
    environment_id: str
    metadata: requests.Metadata = msgspec.field(default_factory=dict)
    vault_ids: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    resources: Annotated[tuple[resources.Resource, ...], Meta(max_length=500)] = ()
    budget: Budget | None = None
    title: Title | None = None
    initial_events: Annotated[tuple[InitialEvent, ...], Meta(max_length=50)] = ()


class AgentChange(requests.Body, frozen=True):
    tools: requests.Tools | UnsetType | None = UNSET
    mcp_servers: requests.Servers | UnsetType | None = UNSET


class Update(requests.Body, frozen=True):
    title: Title | UnsetType | None = UNSET
    metadata: requests.MetadataPatch | UnsetType | None = UNSET
    agent: AgentChange | UnsetType = UNSET
    budget: Budget | UnsetType | None = UNSET
    vault_ids: tuple[str, ...] | UnsetType | None = UNSET


async def _show(request: RestRequest, session: Session) -> SessionOut:
    agent = await request.context.agents.get(request.workspace, session.agent)
    environment_id = session.environment_id or built_in_environment(request.workspace)
    directories = request.hub.session_directories
    return show(session, agent, environment_id, clock.now(), directories)


class SessionPage(requests.Page[SessionOut], frozen=True):
    """A page of sessions, with the tokens of the next and the previous page."""

    prev_page: str | None


class SessionDeleted(requests.Deleted, frozen=True, tag_field="type", tag="session_deleted"):
    """The session was deleted, with its events and its directory."""


async def list_(request: RestRequest) -> dict[str, Any]:
    token = request.params.text("page")
    page = await request.hub.sessions.list(
        request.principal,
        _query(request),
        None if token is None else paging.strip_prefix(token),
        bind_filters=False,
    )
    now, default_environment = clock.now(), built_in_environment(request.workspace)
    agent_cache, encoder = request.context.agents, request.context.session_encoder
    sessions = []
    for session in page.sessions:
        agent = agent_cache.find(request.workspace, session.agent)
        if agent is None:
            agent = await agent_cache.get(request.workspace, session.agent)
        environment = session.environment_id or default_environment
        sessions.append(encoder.show(session, agent, environment, now))
    return {
        "data": sessions,
        "next_page": None if page.next is None else paging.PREFIX + page.next,
        "prev_page": None if page.prev is None else paging.PREFIX + page.prev,
    }


def _query(request: RestRequest) -> Query:
    """Return the filters of a list request."""
    params = request.params
    window = params.window()
    agent = _id_filter(params.id("agent_id"), "agent")
    version = params.number("agent_version", 0, 1 << 31)
    words = params.text("q")
    if words is not None and not search_text.terms(words):
        raise InvalidInput("q: a search needs at least one word")
    return Query(
        agent_id=agent,
        agent_version=version if agent else None,
        created_gt=window.gt,
        created_gte=window.gte,
        created_lt=window.lt,
        created_lte=window.lte,
        deployment_id=_id_filter(params.id("deployment_id"), "depl"),
        memory_store_id=_id_filter(params.id("memory_store_id"), "memstore"),
        archived="include" if params.flag("include_archived") else "exclude",
        archived_as="terminated",
        statuses=params.statuses(),
        cwd=params.text("cwd"),
        tag=params.text("tag"),
        source=_source(request),
        text=words,
        order="created",
        descending=params.choice("order", "desc", "asc") == "desc",
        limit=params.limit(20, 1000),
    )


def _source(request: RestRequest) -> str | None:
    """Return the source to filter by, or None. Raises InvalidInput if there is none of its name."""
    name = request.params.text("source")
    known = request.hub.sources.names(request.workspace)
    if name is not None and name not in known:
        raise InvalidInput(f"source: {name!r} is not one of {', '.join(known)}")
    return name


def _id_filter(value: str | None, prefix: str) -> str | None:
    return None if value is None else ids.parse(value, prefix) or _MATCHES_NOTHING


async def create(request: RestRequest) -> SessionOut:
    sent = await request.body(Create)
    setup = SessionSetup(
        agent=await agents.choice(request, sent.agent),
        environment_id=sent.environment_id,
        vault_ids=sent.vault_ids,
        attachments=sent.resources,
        metadata=sent.metadata,
        budget=cost_limit(sent.budget),
    )
    factory = request.hub.session_factory
    prepared = await factory.prepare(request.workspace, setup)
    session = await factory.create(
        request.principal, prepared, sent.initial_events, title=sent.title
    )
    return await _show(request, session)


def cost_limit(budget: Budget | None) -> int | None:
    """Return a budget in the unit of costs."""
    return None if budget is None else int(budget.max_list_cost.amount) * MICRODOLLARS_PER_CENT


async def retrieve(request: RestRequest) -> SessionOut:
    return await _show(request, await request.session())


async def update(request: RestRequest) -> SessionOut:
    sent = await request.stored_body(Update)
    session = await request.session()
    if not isinstance(sent.vault_ids, UnsetType):
        raise InvalidInput("vault_ids: cannot be changed after a session was created")
    if status(session) == "terminated":
        raise InvalidInput("a terminated session cannot be changed")
    info = InfoChanged(
        title=UNSET if isinstance(sent.title, UnsetType) else (sent.title or "").strip() or None,
        metadata=UNSET if isinstance(sent.metadata, UnsetType) else sent.metadata or {},
    )
    if not isinstance(info.metadata, UnsetType):
        patch_metadata(session.metadata, info.metadata)
    if not isinstance(sent.budget, UnsetType):
        await _check_budget(request, session, sent.budget)
    if not isinstance(sent.agent, UnsetType):
        ref = await _agent_with_changes(request, session, sent.agent)
        session = await request.hub.editor.configure(
            request.principal, session.id, ConfigChanged(agent=ref)
        )
    if info != InfoChanged():
        session = await request.hub.editor.set_info(request.principal, session.id, info)
    if not isinstance(sent.budget, UnsetType):  # last, since this can resume a turn
        session = await request.hub.turns.set_budget(
            request.principal, session.id, cost_limit(sent.budget)
        )
    return await _show(request, session)


async def _check_budget(request: RestRequest, session: Session, budget: Budget | None) -> None:
    """Raise InvalidInput if `set_budget` would refuse the budget after other changes were made."""
    if budget_changes(session, cost_limit(budget)) and budget is not None:
        agent = session.agent or await request.hub.records.built_in_agent(request.workspace)
        await request.hub.session_factory.check_prices(request.workspace, agent)


async def _agent_with_changes(
    request: RestRequest, session: Session, change: AgentChange
) -> AgentRef:
    """Return a session's agent with changed tools or MCP servers.

    Raises InvalidInput while a turn runs or if the settings are not valid.
    """
    if session.status != "idle" or session.turn is not None:
        raise InvalidInput("agent: can only be changed while the session is idle")
    if request.principal.local:  # what keys have changed does not become the local user's
        session = session.for_local_turn()
    ref = session.agent or await request.hub.records.built_in_agent(request.workspace)
    changes = agent_settings.resolve(
        requests.Settings(tools=change.tools, mcp_servers=change.mcp_servers)
    )
    overrides = {**ref.overrides, **changes}
    snapshot = await request.hub.agent_resolver.snapshot(request.workspace, ref)
    check_settings({**snapshot, **overrides})
    return msgspec.structs.replace(ref, overrides=overrides)


async def archive(request: RestRequest) -> SessionOut:
    session = await request.session()
    try:
        archived = await request.hub.editor.archive(request.principal, session.id)
    except Busy as busy:
        raise InvalidInput(
            f"Session {ids.format_id('sesn', session.id)} cannot be archived while its status is"
            f' "{busy.data["status"]}". Only pending or idle sessions may be archived.'
        ) from None
    if archived.turn is not None:  # the turn waits for an answer that cannot come any more
        await request.hub.turns.cancel(request.principal, session.id)
    return await _show(request, archived)


async def delete(request: RestRequest) -> SessionDeleted:
    """Delete a session permanently; move a session of a source to the trash."""
    session = await request.session()
    editor = request.hub.editor
    owner = await request.hub.sessions.owner(request.principal, session.id)
    delete_session = editor.purge if owner is None else editor.trash
    try:
        await delete_session(request.principal, session.id)
    except Busy:
        raise InvalidInput(
            "Cannot delete session while it is running."
            " Send an interrupt event or wait for the session to complete."
        ) from None
    return SessionDeleted(id=ids.format_id("sesn", session.id))

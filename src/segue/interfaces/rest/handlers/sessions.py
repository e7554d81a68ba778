"""Sessions: create, list, retrieve, update, archive, delete."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.hub.resources.agent_settings import check_settings
from segue.hub.resources.first_events import InitialEvent
from segue.hub.resources.session_factory import SessionSetup
from segue.hub.turns.budgets import COST_PER_CENT, budget_changes
from segue.interfaces.rest import paging
from segue.interfaces.rest.params import CREATED_AT
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import agent_settings, requests
from segue.interfaces.rest.schemas.session import SessionOut, show, status
from segue.model import clock, ids, search_text
from segue.model.errors import Busy, InvalidInput
from segue.model.event import AgentRef, ConfigChanged, InfoChanged
from segue.model.lifecycle import STATUSES, Status
from segue.model.query import Query
from segue.model.session import Session

from . import agents, resources

# The hosted parameters, then our own: directory, tag, source, and words to search for.
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
# Stands for an id that cannot be one: it matches nothing.
_NOTHING = "-"


class Money(requests.Body, frozen=True):
    """Whole cents, as text."""

    amount: Annotated[str, Meta(pattern="^[1-9][0-9]*$", max_length=14)]
    currency: Literal["USD"]


class Budget(requests.Body, frozen=True, tag_field="type", tag="limit"):
    max_list_cost: Money


class Setup(requests.Body, frozen=True):
    """What sessions are made with, by a request or by a deployment."""

    agent: str | requests.AgentById | requests.AgentWithOverrides
    environment_id: str
    metadata: requests.Metadata = msgspec.field(default_factory=dict)
    vault_ids: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    resources: Annotated[tuple[resources.Resource, ...], Meta(max_length=500)] = ()
    budget: Budget | None = None


class Create(Setup, frozen=True):
    title: str | None = None
    initial_events: Annotated[tuple[InitialEvent, ...], Meta(max_length=50)] = ()


class AgentChange(requests.Body, frozen=True):
    tools: requests.Tools | UnsetType | None = UNSET
    mcp_servers: requests.Servers | UnsetType | None = UNSET


class Update(requests.Body, frozen=True):
    title: str | UnsetType | None = UNSET
    metadata: requests.MetadataPatch | UnsetType | None = UNSET
    agent: AgentChange | UnsetType = UNSET
    budget: Budget | UnsetType | None = UNSET
    vault_ids: tuple[str, ...] | UnsetType | None = UNSET


async def one(request: RestRequest, session: Session) -> SessionOut:
    agent = await request.context.agents.get(request.workspace, session.agent)
    return show(session, agent, session.environment_id or _here(request), clock.now())


def _here(request: RestRequest) -> str:
    return request.hub.records.built_in_environment(request.workspace)


class SessionPage(requests.Page[SessionOut], frozen=True):
    """It can be left both ways."""

    prev_page: str | None


class SessionDeleted(requests.Deleted, frozen=True, tag_field="type", tag="session_deleted"):
    """It is gone, with all that was its own."""


async def list_(request: RestRequest) -> dict[str, Any]:
    token = request.params.text("page")
    page = await request.hub.sessions.list(
        request.principal,
        query(request),
        None if token is None else paging.strip_prefix(token),
        bind_filters=False,
    )
    now, here = clock.now(), _here(request)
    agents, kept = request.context.agents, request.context.session_encoder
    shown = []
    for session in page.sessions:
        agent = agents.find(request.workspace, session.agent)
        if agent is None:
            agent = await agents.get(request.workspace, session.agent)
        shown.append(kept.show(session, agent, session.environment_id or here, now))
    return {
        "data": shown,
        "next_page": None if page.next is None else paging.PREFIX + page.next,
        "prev_page": None if page.prev is None else paging.PREFIX + page.prev,
    }


def query(request: RestRequest) -> Query:
    """A list's parameters as the hub's filters."""
    params = request.params
    window = params.window()
    agent = _filter(params.text("agent_id"), "agent")
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
        deployment_id=_filter(params.text("deployment_id"), "depl"),
        memory_store_id=_filter(params.text("memory_store_id"), "memstore"),
        archived="include" if params.flag("include_archived") else "exclude",
        archived_as="terminated",
        statuses=tuple(_status(name) for name in params.values("statuses")),
        cwd=params.text("cwd"),
        tag=params.text("tag"),
        source=params.text("source"),
        text=words,
        order="created",
        descending=params.choice("order", "desc", "asc") == "desc",
        limit=params.limit(20, 1000),
    )


def _filter(given: str | None, prefix: str) -> str | None:
    return None if given is None else ids.parse(given, prefix) or _NOTHING


def _status(name: str) -> Status:
    for known in get_args(Status):
        if name == known:
            found: Status = known
            return found
    raise InvalidInput(f"statuses: {name!r} is not one of {', '.join(STATUSES)}")


async def create(request: RestRequest) -> SessionOut:
    given = await request.body(Create)
    setup = await _setup(request, given)
    factory = request.hub.session_factory
    prepared = await factory.prepare(request.workspace, setup)
    session = await factory.create(
        request.principal, prepared, given.initial_events, title=given.title
    )
    return await one(request, session)


async def _setup(request: RestRequest, given: Setup) -> SessionSetup:
    return SessionSetup(
        agent=await agents.choice(request, given.agent),
        environment_id=given.environment_id,
        vault_ids=given.vault_ids,
        attachments=given.resources,
        metadata=given.metadata,
        budget=cost_limit(given.budget),
    )


def cost_limit(budget: Budget | None) -> int | None:
    """Return a budget in the unit of costs."""
    return None if budget is None else int(budget.max_list_cost.amount) * COST_PER_CENT


async def retrieve(request: RestRequest) -> SessionOut:
    return await one(request, await request.session())


async def update(request: RestRequest) -> SessionOut:
    given = await request.body(Update)
    session = await request.session()
    if not isinstance(given.vault_ids, UnsetType):
        raise InvalidInput("vault_ids: cannot be changed after a session was created")
    if status(session) == "terminated":
        raise InvalidInput("a terminated session cannot be changed")
    info = InfoChanged(
        title=UNSET if isinstance(given.title, UnsetType) else (given.title or "").strip() or None,
        metadata=UNSET if isinstance(given.metadata, UnsetType) else given.metadata or {},
    )
    if not isinstance(info.metadata, UnsetType):
        agent_settings.metadata(session.metadata, info.metadata)
    if not isinstance(given.budget, UnsetType):
        await _check_budget(request, session, given.budget)
    if not isinstance(given.agent, UnsetType):
        ref = await _changed(request, session, given.agent)
        session = await request.hub.editor.configure(
            request.principal, session.id, ConfigChanged(agent=ref)
        )
    if info != InfoChanged():
        session = await request.hub.editor.set_info(request.principal, session.id, info)
    if not isinstance(given.budget, UnsetType):  # last, since this can resume a turn
        session = await request.hub.turns.set_budget(
            request.principal, session.id, cost_limit(given.budget)
        )
    return await one(request, session)


async def _check_budget(request: RestRequest, session: Session, given: Budget | None) -> None:
    """Refuse what would be refused in the end, before anything else is changed."""
    if budget_changes(session, cost_limit(given)) and given is not None:
        usual = await request.hub.records.built_in_agent(request.workspace)
        agent = session.agent or usual
        await request.hub.session_factory.check_prices(request.workspace, agent)


async def _changed(request: RestRequest, session: Session, given: AgentChange) -> AgentRef:
    if session.status != "idle" or session.turn is not None:
        raise InvalidInput("agent: can only be changed while the session is idle")
    ref = session.agent or await request.hub.records.built_in_agent(request.workspace)
    changes = agent_settings.resolve(
        requests.Settings(tools=given.tools, mcp_servers=given.mcp_servers)
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
    if archived.turn is not None:
        await request.hub.turns.cancel(
            request.principal, session.id
        )  # it waits for an answer: none will come
    return await one(request, archived)


async def delete(request: RestRequest) -> SessionDeleted:
    """Delete a session permanently; move a session of a source to the trash."""
    session = await request.session()
    kept = await request.hub.sessions.owner(request.principal, session.id) is not None
    try:
        await (request.hub.editor.trash if kept else request.hub.editor.purge)(
            request.principal, session.id
        )
    except Busy:
        raise InvalidInput(
            "Cannot delete session while it is running."
            " Send an interrupt event or wait for the session to complete."
        ) from None
    return SessionDeleted(id=ids.format_id("sesn", session.id))

"""Start a session: choose its project, agent, model and mode, and write the first message.

Nothing is stored before the first message is sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from segue.agents.base.spec import MODE_LABELS
from segue.hub.resources.agents import AgentChoice
from segue.interfaces.web.request import WebRequest
from segue.model.content import Block
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef, ConfigChanged
from segue.model.query import Query
from segue.model.session import Session
from segue.render import project_names

from . import actions, listing

MAX_PROJECTS = 30
MAX_AGENTS = 50
MAX_MODELS = 20
SCANNED_SESSIONS = 500  # that were active last, for projects and models
OTHER = "other"  # the project of a directory that is typed


class AgentOption(NamedTuple):
    """An agent that the user can choose for a new session."""

    id: str
    name: str


async def page(request: WebRequest) -> Response:
    """GET /new: the pickers and the first message. `cwd` chooses a project at first."""
    sessions = await _recent(request)
    directories = _projects(sessions) if request.principal.local else []
    chosen = request.param("cwd") if request.principal.local else ""
    if chosen and chosen not in directories:
        directories.insert(0, chosen)
    built_in = await request.hub.records.built_in_agent(request.principal.workspace)
    spec = await request.hub.agents.spec_of(
        request.principal.workspace, built_in, local=request.principal.local
    )
    values: dict[str, Any] = {
        "names": project_names.unique_names(directories),
        "directories": directories,
        "chosen": chosen,
        "agents": await _agents(request),
        "models": _models(sessions, spec["config"].get("model")),
        "answering": request.hub.agents.describe_spec(spec),
        "modes": MODE_LABELS,
        "other": OTHER,
    }
    template, values = await listing.with_sidebar(request, "new.html", values)
    return request.render_page(template, **values)


async def start(request: WebRequest) -> Response:
    """POST /new: create a session and send its first message.

    Only the local user may choose the directory, because the agent's tools can read it. If the
    message cannot be sent, the session is deleted again.
    """
    fields = await request.fields()
    content = actions.prompt_content(fields)
    form = {name: values[-1].strip() for name, values in fields.items()}
    directory = _directory(form) if request.principal.local else None
    mode = form.get("mode") or "default"
    if mode not in MODE_LABELS:
        raise InvalidInput(f"mode must be one of {', '.join(MODE_LABELS)}, not {mode!r}")
    agent = await _chosen_agent(request, form.get("agent", ""), form.get("model", ""))
    hub, principal = request.hub, request.principal
    session = await hub.editor.create(principal, cwd=directory, agent=agent, origin="web")
    try:
        if mode != "default":
            await hub.editor.configure(principal, session.id, ConfigChanged(mode=mode))
        turn = await _send(request, session, content)
    except BaseException:
        await hub.editor.purge(principal, session.id)
        raise
    return request.redirect(f"/s/{session.id}", turn)


async def _send(request: WebRequest, session: Session, content: list[Block]) -> str:
    return await request.hub.turns.submit(request.principal, session.id, content)


def _directory(form: dict[str, str]) -> str | None:
    """Return the chosen directory; None for a new one."""
    project = form.get("project", OTHER)
    return actions.check_directory(form.get("cwd", "") if project == OTHER else project)


async def _chosen_agent(request: WebRequest, agent: str, model: str) -> AgentRef | None:
    """Return the chosen agent with the chosen model. Raises if no session can be created with it.

    None stands for the agent of sessions that name none.
    """
    hub, principal = request.hub, request.principal
    if agent:
        overrides = {"model": model} if model else None
        choice = AgentChoice(agent, overrides=overrides)
        return await hub.agent_resolver.choose(principal.workspace, choice)
    if not model:
        return None
    await hub.agents.require_model(principal, model)
    built_in = await hub.records.built_in_agent(principal.workspace)
    return replace(built_in, overrides={"model": model})


async def _recent(request: WebRequest) -> list[Session]:
    query = Query(limit=SCANNED_SESSIONS)
    listed = await request.hub.sessions.list(request.principal, query, bind_filters=False)
    return list(listed.sessions)


def _projects(sessions: list[Session]) -> list[str]:
    """Return the directories of the sessions that were active last, if they still exist."""
    import os

    directories = dict.fromkeys(session.directory for session in sessions)
    existing = (
        directory
        for directory in directories
        if project_names.is_project(directory) and os.path.isdir(directory)
    )
    return [directory for directory, _ in zip(existing, range(MAX_PROJECTS), strict=False)]


async def _agents(request: WebRequest) -> list[AgentOption]:
    """Return the agents that this server can run, besides the one of sessions that name none."""
    workspace = request.principal.workspace
    usual = await request.hub.records.built_in_agent(workspace)
    records = await request.hub.records.list(workspace, "agent", limit=MAX_AGENTS)
    return [
        AgentOption(record.id, str(record.body.get("name") or record.id))
        for record in records
        if record.id != usual.id
        and request.hub.agents.registry.can_build(record.body.get("spec", {"kind": "default"}))
    ]


def _models(sessions: list[Session], configured: str | None) -> list[str]:
    """Return models that were chosen before, as PROVIDER:NAME."""
    models = dict.fromkeys([configured] if configured else [])
    for session in sessions:
        model = None if session.agent is None else session.agent.overrides.get("model")
        if isinstance(model, str) and ":" in model:
            models[model] = None
    return list(models)[:MAX_MODELS]

"""Start a session: choose its project, agent, model and mode, and write the first message.

Nothing is stored before the first message is sent. The model that answers in all sessions which
name no other is chosen here, too.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from segue.agents.base.spec import MODE_LABELS
from segue.hub.access.config import models_with_keys
from segue.hub.resources.agents import AgentChoice
from segue.interfaces.web.request import WebRequest
from segue.model.content import Block
from segue.model.errors import InvalidInput, NotPermitted
from segue.model.event import AgentRef, ConfigChanged
from segue.model.query import Query
from segue.model.session import Session
from segue.render import project_names

from . import actions, listing

MAX_PROJECTS = 30
MAX_AGENTS = 50
SCANNED_SESSIONS = 500  # the last active ones, for their projects


class AgentOption(NamedTuple):
    """An agent that the user can choose for a new session."""

    id: str
    name: str


async def page(request: WebRequest) -> Response:
    """GET /new: the pickers and the first message. `cwd` chooses a project at first."""
    projects = await _projects(request) if request.principal.local else {}
    chosen = request.param("cwd") if request.principal.local else ""
    built_in = await request.hub.records.built_in_agent(request.principal.workspace)
    spec = await request.hub.agents.spec_of(
        request.principal.workspace, built_in, local=request.principal.local
    )
    values: dict[str, Any] = {
        "projects": projects,
        "chosen": next((name for name, path in projects.items() if path == chosen), chosen),
        "agents": await _agents(request),
        "models": await request.hub.model_choices.in_use(request.principal),
        "answering": request.hub.agents.describe_spec(spec),
        "modes": MODE_LABELS,
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
    directory = await _directory(request, form) if request.principal.local else None
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
    return request.redirect(await actions.page_after_turn(request, session, turn), turn)


async def model_page(request: WebRequest) -> Response:
    """GET /model: the model of sessions that name no other, and whether it can be used."""
    _require_local(request)
    problem = await request.hub.model_choices.problem(request.principal)
    values = await model_choice(request) | {"problem": problem}
    template, values = await listing.with_sidebar(request, "model.html", values)
    return request.render_page(template, **values)


async def set_model(request: WebRequest) -> Response:
    """POST /model: change the model of sessions that name no other."""
    _require_local(request)
    model = (await request.form()).get("model", "").strip()
    if not model:
        raise InvalidInput("Enter a model, such as anthropic:claude-sonnet-4-6.")
    problem = await request.hub.model_choices.set(request.principal, model)
    return request.redirect("/model" if problem else "/new")


async def model_choice(request: WebRequest) -> dict[str, Any]:
    """Return what the form for the model needs."""
    config = await request.hub.config.all(request.principal.workspace)
    in_use = await request.hub.model_choices.in_use(request.principal)
    return {
        "model": config.get("model", ""),
        "models": list(dict.fromkeys([*in_use, *models_with_keys(os.environ)])),
    }


def _require_local(request: WebRequest) -> None:
    if not request.principal.local:
        raise NotPermitted("Only the user of this computer can choose the model.")


async def _send(request: WebRequest, session: Session, content: list[Block]) -> str:
    return await request.hub.turns.submit(request.principal, session.id, content)


async def _directory(request: WebRequest, form: dict[str, str]) -> str | None:
    """Return the directory of the chosen project, which is a name or a path; None for a new one."""
    project = form.get("project", "")
    if not project or os.path.isabs(os.path.expanduser(project)):
        return actions.check_directory(project)
    projects = await _projects(request)
    for name, directory in projects.items():
        if name.casefold() == project.casefold():
            return directory
    raise InvalidInput(
        f"No project is called {project!r}. Choose one of the list, or enter a full path,"
        " such as /home/you/project."
    )


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


async def _projects(request: WebRequest) -> dict[str, str]:
    """Return the directories of recent sessions by their names, if they still exist."""
    query = Query(limit=SCANNED_SESSIONS)
    listed = await request.hub.sessions.list(request.principal, query, bind_filters=False)
    directories = dict.fromkeys(session.directory for session in listed.sessions)
    existing = (
        directory
        for directory in directories
        if project_names.is_project(directory) and os.path.isdir(directory)
    )
    names = project_names.unique_names(list(islice(existing, MAX_PROJECTS)))
    return {name: directory for directory, name in names.items()}


async def _agents(request: WebRequest) -> list[AgentOption]:
    """Return the agents that this server can run, besides the one of sessions that name none."""
    workspace = request.principal.workspace
    usual = await request.hub.records.built_in_agent(workspace)
    records = await request.hub.records.list(workspace, "agent", limit=MAX_AGENTS)
    agents = [
        record
        for record in records
        if record.id != usual.id and await request.hub.agents.answers_itself(record)
    ]
    names = Counter(str(record.body.get("name") or record.id) for record in agents)
    options = []
    for record in agents:
        name = str(record.body.get("name") or record.id)
        options.append(AgentOption(record.id, f"{name} ({record.id})" if names[name] > 1 else name))
    return options

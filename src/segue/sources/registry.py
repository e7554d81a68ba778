"""The tools whose sessions segue reads.

A tool joins with one line here: the module that has its `SourceDefinition`. Another Python package
adds a source with an entry point of the group `segue.sources`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from segue.model.errors import InvalidInput

if TYPE_CHECKING:
    from segue.model.event import AgentRef
    from segue.model.session import Session

    from .base import SourceDefinition

_MODULES = {
    "claude": "segue.sources.claude.definition",
    "codex": "segue.sources.codex.definition",
    "copilot": "segue.sources.copilot.definition",
    "opencode": "segue.sources.opencode.definition",
    "gemini": "segue.sources.gemini.definition",
    "goose": "segue.sources.goose.definition",
    "qwen": "segue.sources.qwen.definition",
    "kimi": "segue.sources.kimi.definition",
}
NONE = "none"  # the name that selects no source


@cache
def _installed() -> dict[str, str]:
    """Return the sources of other packages, without those whose name a source of segue has."""
    from .entry_points import installed_sources

    return {name: value for name, value in installed_sources().items() if name not in _MODULES}


def built_in_names() -> list[str]:
    """Return the names of segue's own sources, which costs nothing: help texts show them."""
    return list(_MODULES)


def names() -> list[str]:
    """Return the names of all sources, those of other packages last."""
    return [*_MODULES, *_installed()]


@cache
def get(name: str) -> SourceDefinition:
    """Return the definition of a source.

    Raises InvalidInput for an unknown name, and for a source of another package that fails to load.
    """
    definition: SourceDefinition
    if name in _MODULES:
        definition = import_module(_MODULES[name]).DEFINITION
        return definition
    if name not in _installed():
        choices = ", ".join([*names(), NONE])
        raise InvalidInput(f"there is no source {name!r}; the sources are {choices}")
    from .entry_points import load

    try:
        definition = load(_installed()[name])
    except Exception as error:  # another package may raise anything
        raise InvalidInput(f"the source {name!r} cannot be loaded: {error!r}") from error
    return definition


def definitions() -> list[SourceDefinition]:
    """Return the definitions of all sources that can be loaded."""
    loaded = []
    for name in names():
        try:
            loaded.append(get(name))
        except InvalidInput as error:
            import logging  # a list does not need it

            logging.getLogger("segue.sources").warning("%s", error.message)
    return loaded


def find(name: str | None) -> SourceDefinition | None:
    """Return the definition of a source; None if it has none."""
    return get(name) if name is not None and name in names() else None


def label(name: str) -> str:
    """Return the name of a source as people read it."""
    definition = find(name)
    return name if definition is None else definition.label


def of_copy(session: Session) -> SourceDefinition | None:
    """Return the source whose transcript lines a stored session carries."""
    return next((get(name) for name in session.extra if name in names()), None)


def resuming(session: Session) -> SourceDefinition | None:
    """Return the tool that resumes a session; an imported one is resumed by its tool.

    A copy in which segue has run a turn is segue's own.
    """
    from segue.model.session import OWN  # help texts import this module

    answered_here = session.turn is not None or session.stop_reason is not None
    return None if session.owner == OWN and answered_here else find(session.source)


def of_agent(workspace: str, agent: AgentRef | None) -> SourceDefinition | None:
    """Return the source whose sessions are those of an agent."""
    if agent is None:
        return None
    from .base import agent_id

    matches = (name for name in names() if agent_id(workspace, name) == agent.id)
    return next((get(name) for name in matches), None)


def answering(workspace: str, agent: AgentRef | None) -> SourceDefinition | None:
    """Return the source in whose own files an agent answers."""
    if agent is None:
        return None
    source = of_agent(workspace, agent)
    kind = agent.overrides.get("kind", None if source is None else source.agent)
    return next(
        (
            definition
            for definition in definitions()
            if definition.agent and definition.agent == kind
        ),
        None,
    )

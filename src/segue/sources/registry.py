"""The tools whose sessions segue reads.

A tool joins with one line here: the module that has its `SourceDefinition`.
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
}
NONE = "none"  # the name that selects no source


def names() -> list[str]:
    """Return the names of all sources."""
    return list(_MODULES)


@cache
def get(name: str) -> SourceDefinition:
    """Return the definition of a source; raises InvalidInput for an unknown name."""
    if name not in _MODULES:
        choices = ", ".join([*_MODULES, NONE])
        raise InvalidInput(f"there is no source {name!r}; the sources are {choices}")
    definition: SourceDefinition = import_module(_MODULES[name]).DEFINITION
    return definition


def definitions() -> list[SourceDefinition]:
    """Return the definitions of all sources."""
    return [get(name) for name in _MODULES]


def find(name: str | None) -> SourceDefinition | None:
    """Return the definition of a source; None if it has none."""
    return get(name) if name in _MODULES else None


def label(name: str) -> str:
    """Return the name of a source as people read it."""
    definition = find(name)
    return name if definition is None else definition.label


def of_copy(session: Session) -> SourceDefinition | None:
    """Return the source whose transcript lines a stored session carries."""
    return next((get(name) for name in session.extra if name in _MODULES), None)


def of_agent(workspace: str, agent: AgentRef | None) -> SourceDefinition | None:
    """Return the source whose sessions are those of an agent."""
    if agent is None:
        return None
    from .base import agent_id

    matches = (name for name in _MODULES if agent_id(workspace, name) == agent.id)
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

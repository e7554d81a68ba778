"""The agents that a session's history chooses, for the local user's turns and for those of keys."""

from __future__ import annotations

from segue.model.event import AnyBody, ConfigChanged
from segue.model.session import Session


def agent_events(session: Session, accepted: Session) -> list[AnyBody]:
    """Return the events that replace a session's agents with those of `accepted`, if they differ.

    Turns of the local user and turns of API keys can have different agents: both count.
    """
    own, known = session.for_local_turn(), accepted.for_local_turn()
    bodies: list[AnyBody] = []
    if known.agent is not None and _choice(own) != _choice(known):
        bodies.append(ConfigChanged(agent=known.agent, by_key=known.agent_by_key))
        session = known  # the change ends what keys had chosen
    if accepted.agent is not None and session.agent != accepted.agent:
        bodies.append(ConfigChanged(agent=accepted.agent, by_key=accepted.agent_by_key))
    return bodies


def _choice(session: Session) -> tuple[object, bool]:
    return session.agent, session.agent_by_key

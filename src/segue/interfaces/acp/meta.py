"""Build `_meta` objects: facts about a session that the protocol has no field for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from .errors import DIALECT

if TYPE_CHECKING:
    from segue.model.event import InfoChanged
    from segue.model.session import Session

# The key of segue's own parameters and results in `_meta`.
NAMESPACE = "segue"


def session_meta(session: Session) -> dict[str, Any]:
    """Return the `_meta` of a session in a list, with that of an external agent's own list."""
    of_agent = session.extra.get(DIALECT, {}).get("_meta")
    meta: dict[str, Any] = {
        **(of_agent if isinstance(of_agent, dict) else {}),
        **turn_meta(session),
        "source": session.source,
        "status": session.status,
    }
    if session.tag is not None:
        meta["tag"] = session.tag
    if session.git_branch is not None:
        meta["gitBranch"] = session.git_branch
    if session.fork is not None:
        meta["forkedFrom"] = session.fork.session
    return meta


def turn_meta(session: Session) -> dict[str, Any]:
    """Return the part of a session's `_meta` that a turn changes."""
    return {"messageCount": session.messages, "hasErrors": session.errors > 0}


def info_meta(body: InfoChanged) -> dict[str, Any]:
    """Return the `_meta` of a change: a patch by key, where None removes the key."""
    patch: dict[str, Any] = {}
    if body.tag is not UNSET:
        patch["tag"] = body.tag
    if body.archived is not UNSET:
        patch["archived"] = body.archived
    if body.deleted is not UNSET:
        patch["deleted"] = body.deleted
    return patch

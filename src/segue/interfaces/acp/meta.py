"""What goes into `_meta`: facts about a session that the protocol has no field for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

if TYPE_CHECKING:
    from segue.model.event import InfoChanged
    from segue.model.session import Session

# The key of our own requests and answers within `_meta`.
NAMESPACE = "segue"


def session_meta(session: Session) -> dict[str, Any]:
    """Of a row in a list."""
    found: dict[str, Any] = {
        **turn_meta(session),
        "source": session.source,
        "status": session.status,
    }
    if session.tag is not None:
        found["tag"] = session.tag
    if session.git_branch is not None:
        found["gitBranch"] = session.git_branch
    return found


def turn_meta(session: Session) -> dict[str, Any]:
    """What a turn changes of that."""
    return {"messageCount": session.messages, "hasErrors": session.errors > 0}


def info_meta(body: InfoChanged) -> dict[str, Any]:
    """Of a change, as a patch by key: None removes it."""
    found: dict[str, Any] = {}
    if body.tag is not UNSET:
        found["tag"] = body.tag
    if body.archived is not UNSET:
        found["archived"] = body.archived
    if body.deleted is not UNSET:
        found["deleted"] = body.deleted
    return found

"""Return the user's edits of a tool's session as events, for the copy in the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from segue.model.event import Draft, InfoChanged


def overlay_edits(overlay: Mapping[str, Any]) -> list[Draft]:
    """Return the title, the tag and the archived state that the store's overlay has of a session.

    The time of archiving is kept. The overlay's trash is left out: an import is a copy to work
    with.
    """
    drafts = []
    if "archived_at" in overlay:
        at = overlay["archived_at"]
        drafts.append(Draft(body=InfoChanged(archived=at is not None), at=at))
    fields = {name: overlay[name] for name in ("title", "tag") if name in overlay}
    if fields:
        drafts.append(Draft(body=InfoChanged(**fields)))
    return drafts

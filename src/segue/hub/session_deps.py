"""What the services that change sessions have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from segue.store.base import Store

from .sessions.lookup import SessionLookup, SourceSet

if TYPE_CHECKING:
    from segue.hub.access.quotas import Quotas
    from segue.hub.resources.records import Records


class SessionDeps(NamedTuple):
    """The store and sources of a hub's sessions, and the records and quotas that apply to them."""

    store: Store
    data_dir: Path
    sources: SourceSet
    lookup: SessionLookup
    records: Records
    quotas: Quotas

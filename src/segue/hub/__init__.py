"""The application core: the services that every interface calls.

Each name is imported when it is first used: a command that only needs `segue.hub.tools` or
`segue.hub.location` does not wait for the import of the hub and the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segue.store.base import Store

    from .hub import Hub
    from .sessions.pagination import Page
    from .sessions.search import SearchMatch, SearchPage
else:
    _MODULES = {
        "Hub": "segue.hub.hub",
        "Page": "segue.hub.sessions.pagination",
        "SearchMatch": "segue.hub.sessions.search",
        "SearchPage": "segue.hub.sessions.search",
        "Store": "segue.store.base",
    }

    def __getattr__(name: str) -> type:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


__all__ = ["Hub", "Page", "SearchMatch", "SearchPage", "Store"]

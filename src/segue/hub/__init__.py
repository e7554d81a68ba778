"""The application core: the services that every interface calls."""

from segue.store.base import Store

from .hub import Hub
from .sessions.catalog import SearchMatch, SearchPage
from .sessions.pagination import Page

__all__ = ["Hub", "Page", "SearchMatch", "SearchPage", "Store"]

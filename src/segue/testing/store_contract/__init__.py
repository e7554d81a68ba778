"""What every store promises, as tests: one sentence of behaviour each."""

from __future__ import annotations

from .forks import ForkContract
from .harness import OpenStore
from .history import HistoryContract
from .lists import ListContract
from .records import BesideContract
from .search import TextContract
from .sessions import SessionContract
from .turns import TurnContract
from .watching import WatchContract

__all__ = ["OpenStore", "StoreContract"]


class StoreContract(
    SessionContract,
    HistoryContract,
    ForkContract,
    ListContract,
    TextContract,
    TurnContract,
    WatchContract,
    BesideContract,
):
    """Subclass it with a fixture `open_store`: a callable whose result, awaited, is the store.

    Each test has its own, empty when it is first opened; called again, `open_store` opens the same
    store once more.
    """

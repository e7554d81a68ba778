"""What every store promises, as tests: one sentence of behaviour each."""

from __future__ import annotations

from .checkpoints import CheckpointContract
from .deliveries import DeliveryContract
from .forks import ForkContract
from .harness import OpenStore
from .history import HistoryContract
from .lists import ListContract
from .records import RecordContract
from .search import TextContract
from .sessions import SessionContract
from .turns import TurnContract
from .usage import UsageContract
from .watching import WatchContract

__all__ = ["OpenStore", "StoreContract"]


class StoreContract(
    SessionContract,
    HistoryContract,
    ForkContract,
    CheckpointContract,
    ListContract,
    TextContract,
    TurnContract,
    WatchContract,
    RecordContract,
    UsageContract,
    DeliveryContract,
):
    """Subclass it with a fixture `open_store`: a callable whose result, awaited, is the store.

    Each test has its own, empty when it is first opened; called again, `open_store` opens the same
    store once more.
    """

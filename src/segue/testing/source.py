"""A source in memory: what a hub that merges store and sources is tested with."""

from ..hub.remembered import MemorySource

__all__ = ["MemorySource"]

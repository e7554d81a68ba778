"""A source in memory: what a hub that merges store and sources is tested with."""

from segue.hub.sync.memory_source import MemorySource

__all__ = ["MemorySource"]

"""The store in memory: the store interface in plain dicts and lists.

It is simple rather than fast, and tests compare the other stores with it. Operations await nothing
and compute before they assign, so each happens completely or not at all. Values are encoded and
decoded on their way in, as on their way to a disk, so a caller that changes a dict later changes
nothing here.
"""

from .store import MemoryStore

__all__ = ["MemoryStore"]

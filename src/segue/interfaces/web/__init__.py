"""The session browser: pages for people, over the hub."""

from __future__ import annotations

from .app import WebApp

__all__ = ["WebApp"]

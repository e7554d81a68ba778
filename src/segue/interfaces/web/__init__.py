"""The session browser: pages for people."""

from __future__ import annotations

from .app import WebApp

__all__ = ["WebApp"]

"""Estimate what model requests cost, from their tokens and the list prices of genai-prices.

This module only says where looked-up prices are saved: a list of sessions imports nothing else.
"""

from __future__ import annotations

from pathlib import Path

_directory: Path | None = None


def remember_in(directory: Path) -> None:
    """Save prices in a directory, so that later processes need not import the price table."""
    global _directory
    _directory = directory


def saved_in() -> Path | None:
    """Return the directory of saved prices; None if they are not saved."""
    return _directory

"""A pytest plugin that puts `claude_alias` in the place of `claude_agent_sdk`.

The SDK's own tests then run against us, unchanged: `pytest -p claude_shim <the SDK's tests>`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_PARTS = ("_internal", "_internal.sessions", "_internal.session_mutations")


def _install() -> None:
    sys.modules["claude_agent_sdk"] = importlib.import_module("claude_alias")
    for part in _PARTS:
        module: ModuleType = importlib.import_module(f"claude_alias.{part}")
        sys.modules[f"claude_agent_sdk.{part}"] = module


_install()

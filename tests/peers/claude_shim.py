"""A pytest plugin that puts `claude_alias` in the place of `claude_agent_sdk`.

The SDK's own tests then run against us, unchanged: `pytest -p claude_shim <the SDK's tests>`.
Its suite for stores is the SDK's own file, read from the source that CLAUDE_SDK_SOURCE names.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

_PARTS = (
    "types",
    "_internal",
    "_internal.sessions",
    "_internal.session_mutations",
    "_internal.session_store",
    "_internal.session_store_validation",
    "_internal.session_summary",
)


def _install() -> None:
    sys.modules["claude_agent_sdk"] = importlib.import_module("claude_alias")
    for part in _PARTS:
        module: ModuleType = importlib.import_module(f"claude_alias.{part}")
        sys.modules[f"claude_agent_sdk.{part}"] = module
    _install_testing()


def _install_testing() -> None:
    home = os.path.join(os.environ["CLAUDE_SDK_SOURCE"], "claude_agent_sdk", "testing")
    package = ModuleType("claude_agent_sdk.testing")
    package.__path__ = [home]
    sys.modules["claude_agent_sdk.testing"] = package
    suite = importlib.import_module("claude_agent_sdk.testing.session_store_conformance")
    vars(package)["run_session_store_conformance"] = suite.run_session_store_conformance


_install()

"""The SDK's types, as far as they are about sessions."""

from __future__ import annotations

from typing import Any

from segue.claude import *  # noqa: F403


class ClaudeAgentOptions:
    """How the SDK runs its process. We run none."""

    def __init__(self, **_: Any) -> None:
        raise NotImplementedError

"""The SDK's checks before it starts its process. We start none."""

from __future__ import annotations

from claude_alias.types import ClaudeAgentOptions
from segue.claude.protocol import implements

_store_implements = implements


def validate_session_store_options(options: ClaudeAgentOptions) -> None:
    raise NotImplementedError

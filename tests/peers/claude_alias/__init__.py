"""Our session functions under the module layout of `claude_agent_sdk`, for its own tests."""

from segue.claude import *  # noqa: F403

from .types import ClaudeAgentOptions

__all__ = ["ClaudeAgentOptions"]

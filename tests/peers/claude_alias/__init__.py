"""Our session functions under the module layout of `claude_agent_sdk`, for its own tests."""

from segue.claude import *  # noqa: F403

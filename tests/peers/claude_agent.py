"""Sends one prompt through the real claude-agent-sdk, whose sessions SegueSessionStore mirrors.

`python claude_agent.py PROMPT [SESSION]` continues or starts a session and prints its id.
"""

from __future__ import annotations

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, SystemMessage, query

from segue.claude import SegueSessionStore


async def main(prompt: str, session: str | None = None) -> None:
    async with SegueSessionStore() as store:
        options = ClaudeAgentOptions(session_store=store, resume=session)
        id = ""  # an agent that ends later makes a second result
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, SystemMessage) and message.subtype == "mirror_error":
                raise SystemExit(f"the mirror failed: {message.data}")
            if isinstance(message, ResultMessage):
                assert not message.is_error, message
                id = message.session_id
        print(id)


asyncio.run(main(*sys.argv[1:]))

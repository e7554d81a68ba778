"""A minimal agent with the official Python SDK: it only answers `initialize`."""

import asyncio
from typing import Any

import acp


class Minimal(acp.Agent):
    async def initialize(self, protocol_version: int, **options: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)


asyncio.run(acp.run_agent(Minimal()))

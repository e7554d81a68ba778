"""A minimal agent on the official Python SDK: it can be initialized, and no more."""

import asyncio
from typing import Any

import acp


class Minimal(acp.Agent):
    async def initialize(self, protocol_version: int, **more: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)


asyncio.run(acp.run_agent(Minimal()))

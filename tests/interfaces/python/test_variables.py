"""Commands and MCP servers of a session get the environment variables of its options."""

import sys
from typing import Any

import pytest

import segue
from segue.model.errors import InvalidInput
from segue.model.event import ConfigChanged
from segue.model.principal import LOCAL
from tests import small_mcp_server
from tests.agents.provider import Use
from tests.interfaces.python.model_session import (
    MODEL,
    Environment,
    last_message,
    with_open_hub,
)


@with_open_hub
async def test_commands_and_mcp_servers_get_the_variables(
    environment: Environment,
) -> None:
    servers = {
        "little": {
            "command": sys.executable,
            "args": [small_mcp_server.PROGRAM],
            "env": {"SHAPE": "round"},
        }
    }
    environment.script(
        [
            Use("bash", {"command": "echo bash has $COLOUR"}),
            Use("mcp__little__variable", {"name": "COLOUR"}),
            Use("mcp__little__variable", {"name": "SHAPE"}),
        ]
    )
    result = await environment.run(
        env={"COLOUR": "teal", "SHAPE": "square"},
        mcp_servers=servers,
        permission_mode="bypassPermissions",
    )
    received = last_message(environment.provider.requests[1])
    assert "bash has teal" in received
    assert "MCP has COLOUR=teal" in received and "MCP has SHAPE=round" in received
    # The variables are not stored, and a turn without them has a shell without them.
    environment.script([Use("bash", {"command": "echo bash has $COLOUR."})])
    await environment.hub.editor.configure(
        LOCAL, result.session_id, ConfigChanged(mode="bypassPermissions")
    )
    await environment.hub.turns.run(LOCAL, result.session_id, "Again")
    assert "bash has ." in last_message(environment.provider.requests[-1])
    history = [event async for event in environment.hub.history.read(LOCAL, result.session_id)]
    assert not any("square" in str(event.body) for event in history)


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A": 1}, {"A B": "c"}])
def test_invalid_variables_are_refused(env: Any) -> None:
    with pytest.raises(InvalidInput, match="env"):
        segue.create_session(model=MODEL, env=env)

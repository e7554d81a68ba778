"""agent.json: the requirements of the ACP registry."""

import json
import re
import tomllib
from pathlib import Path

from tests.interfaces.acp.testbed import AcpTestbed

ROOT = Path(__file__).parent.parent.parent.parent
ENTRY = json.loads((ROOT / "agent.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_registry_entry_has_the_known_fields() -> None:
    required = {"id", "name", "version", "description", "distribution"}
    assert required <= set(ENTRY) <= required | {"repository", "authors", "license", "icon"}
    assert re.fullmatch(r"[a-z][a-z0-9-]*", ENTRY["id"])
    assert all(isinstance(ENTRY[name], str) and ENTRY[name] for name in ("name", "description"))


def test_registry_entry_pins_the_project_s_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ENTRY["version"])
    assert ENTRY["version"] == PROJECT["version"]
    assert ENTRY["license"] == PROJECT["license"]
    assert ENTRY["distribution"] == {
        "uvx": {"package": f"{PROJECT['name']}=={PROJECT['version']}", "args": ["acp"]}
    }


async def test_registry_command_offers_a_login_method(testbed: AcpTestbed) -> None:
    """Run the command as the registry does: with terminals, in an empty home directory."""
    command = ("-m", "segue", *ENTRY["distribution"]["uvx"]["args"])
    async with testbed.connect_program(1, *command, initialize=False) as (client, _):
        capabilities = {"auth": {"terminal": True}}
        methods = (await client.initialize(clientCapabilities=capabilities))["authMethods"]
        kinds = [method.get("type", "agent") for method in methods]
        assert set(kinds) == {"agent", "terminal"}

"""agent.json: what the ACP registry asks of an entry."""

import json
import re
import tomllib
from pathlib import Path

from tests.interfaces.acp.testbed import House

ROOT = Path(__file__).parent.parent.parent.parent
ENTRY = json.loads((ROOT / "agent.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_it_has_what_every_entry_has_and_nothing_unknown() -> None:
    required = {"id", "name", "version", "description", "distribution"}
    assert required <= set(ENTRY) <= required | {"repository", "authors", "license", "icon"}
    assert re.fullmatch(r"[a-z][a-z0-9-]*", ENTRY["id"])
    assert all(isinstance(ENTRY[name], str) and ENTRY[name] for name in ("name", "description"))


def test_its_version_is_the_project_s_and_pinned() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ENTRY["version"])
    assert ENTRY["version"] == PROJECT["version"]
    assert ENTRY["license"] == PROJECT["license"]
    assert ENTRY["distribution"] == {
        "uvx": {"package": f"{PROJECT['name']}=={PROJECT['version']}", "args": ["acp"]}
    }


async def test_what_it_starts_offers_a_way_to_log_in(house: House) -> None:
    """As the registry tries it: a client with terminals, in an empty home."""
    words = ("-m", "segue", *ENTRY["distribution"]["uvx"]["args"])
    async with house.child(1, program=words, greet=False) as (client, _):
        capabilities = {"auth": {"terminal": True}}
        methods = (await client.initialize(clientCapabilities=capabilities))["authMethods"]
        kinds = [method.get("type", "agent") for method in methods]
        assert set(kinds) == {"agent", "terminal"}

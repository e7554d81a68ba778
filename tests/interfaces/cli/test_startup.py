"""The modules that short commands load: imports take most of such a command's time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from segue.sources import registry
from tests.claude.entries import Home

PROGRAM = """
import atexit, sys
path = sys.argv.pop(1)
atexit.register(lambda: open(path, "w").write(" ".join(sys.modules)))
from segue.__main__ import main
main()
"""
PACKAGES = {"segue", "click", "msgspec", "typing_extensions"}

# How many modules of segue each command may load. Lower a number when fewer are needed.
LIST_MODULES = 65
# The list needs the definition of each source and its package; one source is in the number.
LIST_WITH_SOURCES_MODULES = 93 + 2 * (len(registry.names()) - 1)
ACP_INITIALIZE_MODULES = 34


@pytest.fixture
def modules_file(tmp_path: Path) -> Path:
    return tmp_path / "modules"


def loaded_modules(
    modules_file: Path, environment: dict[str, str], *words: str, stdin: str = ""
) -> set[str]:
    """Run `segue` in a new interpreter, and return the modules that it has loaded at its end."""
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(modules_file), *words],
        env=environment,
        input=stdin,
        text=True,
        check=True,
        capture_output=True,
    )
    return set(modules_file.read_text().split())


def of_segue(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.split(".")[0] == "segue")


def other_packages(modules: set[str]) -> set[str]:
    """Return the packages that are neither in the standard library nor loaded by every program."""
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    ignored = {*bare.stdout.split(), *sys.stdlib_module_names}
    return {name.split(".")[0] for name in modules} - ignored


def test_list_loads_few_modules(modules_file: Path, environment: dict[str, str]) -> None:
    words = ["list", "--sources", "none", "--format", "json"]
    modules = loaded_modules(modules_file, environment, *words)
    assert len(of_segue(modules)) <= LIST_MODULES, of_segue(modules)
    assert other_packages(modules) <= PACKAGES
    assert not modules & {"asyncio", "logging", "subprocess", "tempfile", "shutil"}
    # Only lists of more than one page need these: they sign a cursor.
    assert not modules & {"hashlib", "hmac", "base64"}
    # Only text that is not valid UTF-8 needs the standard library's JSON.
    assert "json" not in modules
    assert "segue.sources.base" not in modules


def test_list_of_indexed_sources_loads_few_modules(
    modules_file: Path, environment: dict[str, str], home: Home
) -> None:
    loaded_modules(modules_file, environment, "list")  # which builds the index
    modules = loaded_modules(modules_file, environment, "list")
    assert "segue.sources.claude.source" in modules
    assert len(of_segue(modules)) <= LIST_WITH_SOURCES_MODULES, of_segue(modules)
    assert other_packages(modules) <= PACKAGES
    assert not modules & {"asyncio", "logging", "subprocess", "tempfile", "shutil", "hmac"}


@pytest.mark.parametrize("version", [1, 2])
def test_acp_answers_initialize_before_it_loads_the_hub_and_the_store(
    modules_file: Path, environment: dict[str, str], version: int
) -> None:
    params = {"protocolVersion": version, "info": {"name": "test", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    modules = loaded_modules(modules_file, environment, "acp", stdin=json.dumps(request) + "\n")
    assert len(of_segue(modules)) <= ACP_INITIALIZE_MODULES, of_segue(modules)
    assert other_packages(modules) <= PACKAGES
    assert not modules & {"sqlite3", "json", "hashlib", "hmac", "shutil"}
    assert not modules & {"segue.hub.hub", "segue.store", "segue.model.event", "segue.sources.base"}

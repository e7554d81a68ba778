"""Other Python packages add sources with entry points."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.factory import open_hub
from segue.model.errors import InvalidInput
from segue.model.principal import LOCAL
from segue.sources import entry_points, registry
from tests.sources.test_documented_source import documented_code


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of installed packages, which the registry does not know yet."""
    directory = tmp_path / "site-packages"
    directory.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(directory))
    _forget()
    yield directory
    _forget()


def _forget() -> None:
    registry._installed.cache_clear()
    registry.get.cache_clear()


def install(packages: Path, name: str, value: str) -> None:
    """Install the metadata of a package with a source."""
    metadata = packages / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[segue.sources]\n{name} = {value}\n")


def install_example(packages: Path) -> None:
    """Install the source that docs/sources.md shows."""
    definition, reader = documented_code()[:2]
    package = packages / "segue_example"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "definition.py").write_text(definition)
    (package / "reader.py").write_text(reader)
    install(packages, "example", "segue_example.definition:DEFINITION")


async def test_source_of_another_package_lists_its_sessions(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_example(packages)
    home = tmp_path / "example"
    monkeypatch.setenv("EXAMPLE_HOME", str(home))
    (home / "chats").mkdir(parents=True)
    records = [
        {"type": "start", "cwd": "/work", "time": "2026-01-01T12:00:00Z"},
        {"type": "prompt", "text": "from a plug-in", "time": "2026-01-01T12:00:00Z"},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (home / "chats" / "one.jsonl").write_text(lines)
    assert registry.names()[-1] == "example"
    async with await open_hub(tmp_path / "data") as hub:
        (session,) = (await hub.sessions.list(LOCAL)).sessions
    assert (session.source, session.native_id, session.title) == (
        "example",
        "one",
        "from a plug-in",
    )


async def test_source_that_cannot_be_loaded_hides_no_other_source(
    packages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(packages, "broken", "no_such_package:DEFINITION")
    with caplog.at_level(logging.WARNING, "segue.sources"):
        async with await open_hub(tmp_path / "data", lasting=True) as hub:
            assert {"claude", "codex"} <= {source.name for source in hub.sources}
    assert "'broken' cannot be loaded" in caplog.text
    with pytest.raises(InvalidInput, match="cannot be loaded"):
        await open_hub(tmp_path / "data", sources="broken")


def test_source_of_segue_cannot_be_replaced(packages: Path) -> None:
    install(packages, "codex", "no_such_package:DEFINITION")
    assert registry.get("codex").label == "Codex"


def test_names_are_kept_until_a_package_is_installed(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = []
    look_up = entry_points._look_up
    monkeypatch.setattr(entry_points, "_look_up", lambda: lookups.append(1) or look_up())
    assert "later" not in entry_points.installed_sources()
    entry_points.installed_sources()
    assert len(lookups) == 1
    install(packages, "later", "segue_later:DEFINITION")
    assert entry_points.installed_sources()["later"] == "segue_later:DEFINITION"
    assert len(lookups) == 2


def test_list_imports_no_reader_of_an_unused_tool_and_no_package_metadata(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from segue.interfaces.cli.main import main\n"
        "try: main(['list'])\n"
        "except SystemExit: pass\n"
        "print(','.join(name for name in sys.modules if name.startswith('segue.sources')\n"
        "      or name == 'importlib.metadata'))\n"
    )
    environment = {
        **os.environ,
        "SEGUE_DATA_DIR": str(tmp_path / "data"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    for _ in range(2):  # the first command looks up the entry points
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    modules = done.stdout.splitlines()[-1].split(",")
    assert "segue.sources.codex.definition" in modules
    assert "importlib.metadata" not in modules
    assert not {"segue.sources.codex.reader", "segue.sources.kit.source"} & set(modules)

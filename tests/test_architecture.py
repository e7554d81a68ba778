"""The shape of the code: which way imports point, what is public, what a plain import costs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import segue

SOURCE = Path(segue.__file__).parent
# What each part may import of ours. `model` imports nothing.
ALLOWED = {
    "model": set(),
    "acp": {"model"},
    "sqlite_wal": set(),
    "event_loop": set(),
    "store": {"model", "sqlite_wal"},
    "sources": {"model", "sqlite_wal"},
    "agents": {"model", "acp"},
    "encryption": {"model"},
    "http": {"model"},
    "hub": {"model", "encryption", "event_loop", "store", "sources", "agents"},
    "render": {"model", "hub"},
    "testing": {"model", "store", "sources", "hub"},
    "claude": {"model", "sources", "store", "hub", "factory"},  # the last three for its store alone
    "factory": {"model", "store", "sources", "hub"},
    "server": {"model", "hub", "http", "interfaces", "factory"},
    "sync": {"model", "interfaces"},
}


def imports(path: Path) -> set[str]:
    """The parts of segue that a module names in its import statements."""
    package = ["segue", *path.relative_to(SOURCE).with_suffix("").parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = [*base, *(node.module.split(".") if node.module else [])]
            if names[:1] == ["segue"]:
                found |= {names[1]} if len(names) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("segue.")}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p)[-40:])
def test_imports_only_point_down(path: Path) -> None:
    part = path.relative_to(SOURCE).with_suffix("").parts[0]
    if part in ("interfaces", "__init__", "__main__"):
        return
    assert imports(path) - {part} <= ALLOWED[part]


def test_interfaces_import_neither_each_other_nor_a_database() -> None:
    for path in (SOURCE / "interfaces").rglob("*.py"):
        interface = path.relative_to(SOURCE / "interfaces").parts[0]
        text = path.read_text()
        for other in ("cli", "acp", "rest", "web"):
            if other != interface and interface != "cli":
                assert f"interfaces.{other}" not in text, path
        for database in ("sqlite", "postgres", "memory"):
            assert f"store.{database}" not in text, path


def test_the_public_names_are_these() -> None:
    assert sorted(segue.__all__) == [
        "Agent",
        "AgentRegistry",
        "Answer",
        "AssistantMessage",
        "Block",
        "Event",
        "Found",
        "Hub",
        "LOCAL",
        "Message",
        "Page",
        "PartialMessage",
        "Policy",
        "Principal",
        "Query",
        "ResultMessage",
        "Results",
        "SDKSession",
        "SegueError",
        "Session",
        "SessionInfo",
        "StopReason",
        "Store",
        "SystemMessage",
        "Text",
        "Turn",
        "UserMessage",
        "content",
        "create_session",
        "data_dir",
        "errors",
        "event",
        "fork_session",
        "get_session_info",
        "get_session_messages",
        "list_sessions",
        "open_hub",
        "prompt",
        "rename_session",
        "resume_session",
        "serve_acp",
        "tag_session",
        "unstable_v2_create_session",
        "unstable_v2_prompt",
        "unstable_v2_resume_session",
    ]
    for name in segue.__all__:
        assert getattr(segue, name) is not None


def loaded(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_segue_loads_next_to_nothing() -> None:
    assert not loaded("import segue") & {"msgspec", "asyncio", "sqlite3", "click"}


def test_reading_a_store_needs_no_event_loop(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
hub = Hub(SQLiteStore.open(Path({str(tmp_path)!r}) / "segue.db"), Path("/"))
try:
    hub.list(LOCAL).send(None)
except StopIteration as done:
    assert done.value.sessions == []
"""
    assert not loaded(code) & {"asyncio", "asyncpg", "rich", "click", "uvicorn"}


def test_listing_files_that_are_indexed_needs_none_of_what_reads_them(tmp_path: Path) -> None:
    project = tmp_path / "claude" / "projects" / "-w"
    project.mkdir(parents=True)
    line = '{"type":"user","uuid":"u","message":{"role":"user","content":"hi"}}'
    (project / "11111111-1111-4111-8111-111111111111.jsonl").write_text(line + "\n")
    code = f"""
import sys
from pathlib import Path
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.sources.claude.format.paths import Home
from segue.sources.claude.source import ClaudeSource
from segue.store.sqlite import SQLiteStore
root = Path({str(tmp_path)!r})
source = ClaudeSource(root / "index", Home(str(root / "claude")))
hub = Hub(SQLiteStore.open(root / "segue.db"), root, sources=[source])
try:
    hub.list(LOCAL).send(None)
except StopIteration as done:
    assert len(done.value.sessions) == 1
"""
    claude = "segue.sources.claude"
    reading = {
        f"{claude}.index.transcript_summary",
        f"{claude}.events.transcript_reader",
        f"{claude}.index.index_update",
    }
    assert loaded(code) >= reading
    others = {"asyncio", "logging", "subprocess", "tempfile"}
    assert not loaded(code) & (reading | others)


@pytest.mark.parametrize("tool", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]])
def test_the_code_is_clean(tool: list[str]) -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", *tool], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_has_outgrown_one_sitting() -> None:
    long = {
        str(path.relative_to(SOURCE)): lines
        for path in SOURCE.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 600
    }
    assert long == {}


def test_architecture_md_names_every_package_and_no_other() -> None:
    text = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text()
    rows = dict(re.findall(r"^\| `([\w/]+)/` \|(.*)\|$", text, re.MULTILINE))
    packages = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")} - {
        "."
    }
    named = set(rows)
    for package, contents in rows.items():
        inner = re.findall(r"`([\w/]+)/`", contents)
        named |= {name if name.startswith(package) else f"{package}/{name}" for name in inner}
    assert packages - named == {"interfaces", "testing/store_contract"}
    assert named - packages == {"store/migrations"} - packages

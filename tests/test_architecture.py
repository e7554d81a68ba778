"""The shape of the code: which way imports point, what is public, what a plain import costs."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from os.path import commonpath
from pathlib import Path, PurePosixPath

import pytest

import segue
from segue.sources import registry
from tests.clients import toolbox
from tests.code_blocks import write_programs
from tests.default_tier import SAMPLES

SOURCE = Path(segue.__file__).parent
# What each part may import of ours. `model` imports nothing.
ALLOWED = {
    "model": set(),
    "acp": {"model"},
    "sqlite_files": set(),
    "fts5": {"model"},
    "event_loop": set(),
    "extras": set(),
    "gc_pause": set(),
    "jsonc": set(),
    "prices": {"model"},
    "redact": set(),
    "secrets": {"model"},
    "untrusted": set(),
    "store": {"model", "event_loop", "extras", "redact", "sqlite_files", "fts5"},
    "sources": {"model", "prices", "event_loop", "gc_pause", "jsonc", "sqlite_files", "fts5"},
    "agents": {"model", "acp", "extras", "gc_pause", "prices", "untrusted"},
    "encryption": {"model", "extras"},
    "http": {"model", "untrusted"},
    "hub": {
        "model",
        "prices",
        "encryption",
        "secrets",
        "untrusted",
        "event_loop",
        "store",
        "sources",
        "agents",
    },
    "render": {"model", "event_loop", "secrets", "untrusted"},
    "testing": {"model", "store", "sources", "hub"},
    "claude": {
        "model",
        "secrets",
        "sources",
        "render",
        "store",
        "hub",
        "factory",
    },  # the last three for its store
    "factory": {"model", "prices", "store", "sources", "hub"},
    "server": {"model", "untrusted", "agents", "hub", "http", "interfaces", "factory"},
    "sync": {"model", "interfaces"},
}


# Each list of known violations below only shrinks: a test fails when an entry is no longer needed.

# Packages whose modules import each other in cycles, and how many modules are part of a cycle.
KNOWN_CYCLES: dict[str, int] = {}

MAX_MODULES = 16  # in a package, besides __init__.py
KNOWN_LARGE_PACKAGES: set[str] = set()

# What every interface may import, apart from its own modules. The CLI may import `server` too.
INTERFACES_MAY_IMPORT = (
    "hub",
    "model",
    "render",
    "acp",
    "http",
    "extras",
    "jsonc",
    "redact",
    "secrets",
    "agents.base",
    "factory.open_hub",
)
KNOWN_INTERFACE_IMPORTS = {
    "acp": set(),
    "ahp": set(),
    "cli": {
        "agents.registry",  # `segue acp --agent` is checked before a hub is open
        "interfaces.acp",  # `segue acp` serves this interface
        "interfaces.mcp.scope",  # `segue mcp` serves this one
        "interfaces.mcp.server",
    },
    "mcp": set(),
    # Its functions are those of the Agent SDK, which `segue.claude` implements for Claude Code.
    "python": {"claude", "claude.event_messages"},
    "rest": set(),
    "web": set(),
}

# The tools whose sessions segue reads, by registry name.
TOOLS = set(registry.built_in_names())

# Modules of the core and of interfaces that know a tool by name.
KNOWN_TO_NAME_A_TOOL = {
    # Claude Code's own sessions have the messages and message ids of its files.
    "interfaces/python/functions.py",
    # Events name the dialect of blocks that only Anthropic's API has.
    "model/anthropic/content_blocks.py",
}


@cache
def syntax(path: Path) -> ast.Module:
    """Return the parsed module."""
    return ast.parse(path.read_text())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements inside a node, nested ones included, without their expressions."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        children = getattr(node, field, ())
        for child in children if isinstance(children, list) else ():
            yield child
            yield from statements(child)


@cache
def modules() -> dict[str, Path]:
    """Return the file of every module, by its dotted name without `segue.`."""
    paths = {path.relative_to(SOURCE): path for path in sorted(SOURCE.rglob("*.py"))}
    names = {path: path.with_suffix("").as_posix().replace("/", ".") for path in paths}
    return {names[path].removesuffix("__init__").rstrip("."): paths[path] for path in paths}


@cache
def imported_names(path: Path) -> frozenset[str]:
    """Return the dotted names that a module imports from segue, late and type-only ones included.

    `from segue.model import clock` is "model.clock". The version is a constant of the root
    package, whose names are imported on first use, so that importing it imports nothing else.
    """
    package = ["segue", *path.relative_to(SOURCE).parts[:-1]]
    names = set()
    for node in statements(syntax(path)):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {name.removeprefix("segue.") for name in names if name.startswith("segue.")}
    return frozenset(ours - {"__version__"})


def imported_modules(path: Path) -> set[str]:
    """Return the modules of segue that a module imports, itself excluded."""
    names = imported_names(path)
    imports = {name if name in modules() else name.rpartition(".")[0] for name in names}
    return {name for name in imports if modules()[name] != path}


def imports(path: Path) -> set[str]:
    """The parts of segue that a module names in its import statements."""
    return {name.split(".")[0] for name in imported_names(path)}


def cycles() -> list[set[str]]:
    """Return the sets of modules that import each other, directly or through others."""
    edges = {name: imported_modules(path) for name, path in modules().items()}
    reachable = {name: reach(name, edges) for name in edges}
    mutual = {
        name: {other for other in reachable[name] if name in reachable[other]} for name in edges
    }
    return [set(cycle) for cycle in {frozenset(names) for names in mutual.values() if names}]


def reach(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Return the modules that `start` imports, directly or through others."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def test_imports_only_point_down() -> None:
    violations: dict[str, set[str]] = {}
    for path in modules().values():
        part = path.relative_to(SOURCE).with_suffix("").parts[0]
        if part not in ("interfaces", "__init__", "__main__"):
            violations[str(path)] = imports(path) - {part} - ALLOWED[part]
    assert {path: names for path, names in violations.items() if names} == {}
    assert len(violations) > 100


def test_interfaces_import_neither_each_other_nor_a_database() -> None:
    for path in (SOURCE / "interfaces").rglob("*.py"):
        interface = path.relative_to(SOURCE / "interfaces").parts[0]
        text = path.read_text()
        for other in KNOWN_INTERFACE_IMPORTS.keys() - {interface}:
            if interface != "cli":
                assert f"interfaces.{other}" not in text, path
        for database in ("sqlite", "postgres", "memory"):
            assert f"store.{database}" not in text, path


def test_modules_do_not_import_each_other_in_cycles() -> None:
    sizes: dict[str, int] = {}
    by_package: dict[str, list[str]] = {}
    for cycle in cycles():
        packages = [PurePosixPath(*name.split(".")).parent for name in cycle]
        package = commonpath(packages).replace("/", ".")
        sizes[package] = sizes.get(package, 0) + len(cycle)
        by_package.setdefault(package, []).append(" ".join(sorted(cycle)))
    for package in sizes.keys() | KNOWN_CYCLES.keys():
        known = KNOWN_CYCLES.get(package, 0)
        assert sizes.get(package, 0) == known, (package, by_package.get(package))


def test_packages_have_few_modules() -> None:
    large = {
        init.parent.relative_to(SOURCE).as_posix()
        for init in SOURCE.rglob("__init__.py")
        if len(list(init.parent.glob("*.py"))) - 1 > MAX_MODULES
    }
    assert large == KNOWN_LARGE_PACKAGES


@pytest.mark.parametrize("interface", sorted(KNOWN_INTERFACE_IMPORTS))
def test_interfaces_import_the_application_only(interface: str) -> None:
    allowed = (*INTERFACES_MAY_IMPORT, f"interfaces.{interface}")
    allowed += ("server",) if interface == "cli" else ()
    others = {
        name if name in modules() or name.startswith("factory.") else name.rpartition(".")[0]
        for path in (SOURCE / "interfaces" / interface).rglob("*.py")
        for name in imported_names(path)
        if not any(f"{name}.".startswith(f"{prefix}.") for prefix in allowed)
    }
    assert others == KNOWN_INTERFACE_IMPORTS[interface]


def test_the_core_and_the_interfaces_know_no_tool() -> None:
    named = {
        path.relative_to(SOURCE).as_posix()
        for package in ("hub", "store", "model", "interfaces", "render", "server", "http")
        for path in (SOURCE / package).rglob("*.py")
        if imports_a_tool(path) or names_a_tool(path)
    }
    assert named == KNOWN_TO_NAME_A_TOOL


def imports_a_tool(path: Path) -> bool:
    """Return whether a module imports code that is for one tool only."""
    packages = ("agents.claude_code", "claude", *(f"sources.{tool}" for tool in TOOLS))
    prefixes = tuple(f"{package}." for package in packages)
    return any(
        f"{name}.".startswith(prefixes) or TOOLS & {*name.rpartition(".")[2].lower().split("_")}
        for name in imported_names(path)
    )


def names_a_tool(path: Path) -> bool:
    """Return whether a module has a tool's registry name, or that of its agent, as a string."""
    names = TOOLS | {"claude_code"}
    return any(name in path.read_text() for name in names) and any(
        isinstance(node, ast.Constant) and node.value in names for node in ast.walk(syntax(path))
    )


def test_package_exports_exactly_these_names() -> None:
    assert sorted(segue.__all__) == [
        "Agent",
        "AgentRegistry",
        "Answer",
        "AssistantMessage",
        "Block",
        "Choice",
        "Client",
        "Command",
        "Event",
        "Hub",
        "LOCAL",
        "LoginMethod",
        "Message",
        "Page",
        "PartialMessage",
        "Principal",
        "Query",
        "ResultMessage",
        "ResumeInResult",
        "RetentionPolicy",
        "SDKSession",
        "SearchMatch",
        "SearchPage",
        "SearchResult",
        "SegueError",
        "Select",
        "Session",
        "SessionInfo",
        "StopReason",
        "Store",
        "Switch",
        "SystemMessage",
        "Terminal",
        "Text",
        "ToolRun",
        "Turn",
        "UserMessage",
        "archive_session",
        "content",
        "create_session",
        "data_dir",
        "delete_session",
        "errors",
        "event",
        "fork_session",
        "get_session_info",
        "get_session_messages",
        "list_sessions",
        "open_hub",
        "prompt",
        "rename_session",
        "resume_in",
        "resume_session",
        "search_sessions",
        "serve_acp",
        "serve_agent",
        "tag_session",
        "unarchive_session",
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
    hub.sessions.list(LOCAL).send(None)
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
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.sqlite import SQLiteStore
root = Path({str(tmp_path)!r})
source = ClaudeSource(root / "index", ClaudeHome(str(root / "claude")))
hub = Hub(SQLiteStore.open(root / "segue.db"), root, sources=[source])
try:
    hub.sessions.list(LOCAL).send(None)
except StopIteration as done:
    assert len(done.value.sessions) == 1
"""
    claude = "segue.sources.claude"
    reading = {
        f"{claude}.events.transcript_summary",
        f"{claude}.events.transcript_reader",
        f"{claude}.index.index_update",
    }
    assert loaded(code) >= reading
    others = {"asyncio", "logging", "subprocess", "tempfile"}
    assert not loaded(code) & (reading | others)


@pytest.mark.parametrize("tool", [["ruff", "check"], ["ruff", "format", "--check"]])
def test_the_code_is_clean(tool: list[str]) -> None:
    _run_checker([sys.executable, "-m", *tool])


def test_mypy_accepts_the_code_the_example_agent_and_the_documentation(tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    code = ["src/segue", "bootstrap.py", "examples/gardener_agent.py"]
    command = [sys.executable, "-m", "mypy", *code, *map(str, programs)]
    _run_checker(command, MYPYPATH=str(tmp_path))


@pytest.mark.full  # mypy checks the same programs in the default tier
def test_pyright_accepts_the_documentation(tmp_path: Path) -> None:
    write_programs(tmp_path)
    (tmp_path / "claude_agent_sdk.py").write_text("from typing import Any\n" + _AGENT_SDK_NAMES)
    environment = Path(sys.prefix)
    config = {"venvPath": str(environment.parent), "venv": environment.name}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    pyright = toolbox.node_package("pyright@1.1.414") / "node_modules" / "pyright" / "index.js"
    _run_checker([toolbox.node(), str(pyright), "-p", str(tmp_path)])


# The Agent SDK is not installed: its wheel contains a program of more than a hundred megabytes.
_AGENT_SDK_NAMES = "ClaudeAgentOptions: Any\nResultMessage: Any\nquery: Any\n"


def _run_checker(command: list[str], **variables: str) -> None:
    done = subprocess.run(
        command,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
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
    assert packages - named == {"interfaces"}
    assert named - packages == {"store/migrations"} - packages


@pytest.mark.parametrize("sampled", SAMPLES)
def test_modules_and_tests_with_samples_in_the_default_tier_exist(sampled: str) -> None:
    module, _, test = sampled.partition("::")
    source = (Path(__file__).parent.parent / module).read_text()
    assert f"def {test}(" in source if test else source

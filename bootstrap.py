"""Run segue, its tests or its benchmarks from a checkout, without any set-up.

    python3 bootstrap.py demo

Each command has a private environment under `.venv/` in the checkout. It is created the first time
and used again until its packages or Python change. This file needs only the standard library. It
also parses on old versions of Python, so that they print an error message and not a traceback.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys


def version_error(version: "tuple[int, ...]") -> "str | None":
    """Return why this Python cannot run segue, or None if it can."""
    if version >= (3, 11):
        return None
    version_text = ".".join(str(part) for part in version[:3])
    return (
        f"segue needs Python 3.11 or newer, but this is Python {version_text}. "
        "Run the same command with a newer one, for example `python3.13 bootstrap.py`."
    )


_VERSION_ERROR = version_error(tuple(sys.version_info[:3]))
if _VERSION_ERROR:
    sys.exit(_VERSION_ERROR)

# An older Python does not reach the code below.
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parent
WINDOWS = sys.platform == "win32"

OVERVIEW = """\
usage: python3 bootstrap.py COMMAND [arguments]

Runs segue from this checkout, in a private environment that it creates.

  demo    try segue on your own machine
  test    run the tests
  bench   run the benchmarks

`python3 bootstrap.py COMMAND --help` explains a command. The environments are in .venv/ in this
directory. You can delete it at any time.

example:
  python3 bootstrap.py demo
"""

DEMO = """\
usage: python3 bootstrap.py demo [arguments of `segue demo`]

Creates an environment in .venv/run with segue and its dependencies, then runs `segue demo` in it.
All arguments after `demo` are passed to segue. Later runs start at once: the environment is created
again only if the packages in pyproject.toml or the Python version change.

examples:
  python3 bootstrap.py demo
  python3 bootstrap.py demo --data-dir /tmp/try-segue
  python3 bootstrap.py demo -- --help          the help of `segue demo` itself
"""

TEST = """\
usage: python3 bootstrap.py test [--full] [--jobs N] [arguments of pytest]

Creates an environment in .venv/test with everything that the tests need, including a PostgreSQL
server and Node. Then runs pytest there and exits with pytest's exit code. Paths are relative to the
checkout, whatever the current directory is.

  --full     also run the long tests (such as 1,000 killed writers instead of 10)
  --jobs N   run the tests in N processes (by default two for each CPU, at least 4, at most 8)

examples:
  python3 bootstrap.py test
  python3 bootstrap.py test --full
  python3 bootstrap.py test --jobs 2 -k cursor tests/model
  python3 bootstrap.py test -- --help          the help of pytest itself
"""

BENCH = """\
usage: python3 bootstrap.py bench [name ...] [-- arguments of the scripts]

Creates an environment in .venv/bench with segue and the programs that it is compared with. Then
runs the named scripts of bench/ one after the other, or all of them.

examples:
  python3 bootstrap.py bench
  python3 bootstrap.py bench append search     bench/append.py, then bench/search.py
"""


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        return _fail(f"unknown command {name!r}; use one of {known} (see --help).", 2)
    command, help_text = COMMANDS[name]
    if rest and rest[0] in ("-h", "--help"):
        print(help_text, end="")
        return 0
    try:
        return command(rest)
    except KeyboardInterrupt:
        return _fail("stopped.", 130)
    except SetUpError as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"the environment could not be created: {error}", 1)


def demo(arguments: list[str]) -> int:
    bin_dir = prepare("run")
    return _replace_process(
        [str(bin_dir / _executable("segue")), "demo", *_without_separator(arguments)]
    )


def test(arguments: list[str]) -> int:
    try:
        options = pytest_options(arguments)
    except ValueError as error:
        return _fail(str(error), 2)
    bin_dir = prepare("test", "dev", "postgres")
    os.chdir(ROOT)
    return _replace_process([str(bin_dir / _executable("python")), "-m", "pytest", *options])


def pytest_options(arguments: Sequence[str]) -> list[str]:
    """Return the options for pytest: --full and --jobs translated, all others unchanged."""
    own_options: list[str] = ["-m", "not full"]
    pytest_arguments: list[str] = []
    # More than one for each CPU, because many tests wait for a child process, a lease or a server.
    jobs = str(min(8, max(4, 2 * (os.cpu_count() or 1))))
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            pytest_arguments += remaining
        elif argument == "--full":
            own_options = own_options[2:]
        elif argument == "--jobs" or argument.startswith("--jobs="):
            jobs = argument.partition("=")[2] or next(remaining, "")
            if not jobs.isdecimal():
                raise ValueError(f"--jobs takes a number of processes, not {jobs!r}.")
        else:
            pytest_arguments.append(argument)
    # Tests of one file run in one process if possible, because they share fixtures.
    parallel_options = ["-n", jobs, "--dist", "worksteal"] if int(jobs) > 1 else []
    return own_options + parallel_options + pytest_arguments


def bench(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, script_arguments = arguments[:split], arguments[split + 1 :]
    scripts = {
        path.stem: path
        for path in sorted((ROOT / "bench").glob("*.py"))
        if not path.stem.startswith("_")
    }
    unknown = [name for name in names if name not in scripts]
    if unknown or not scripts:
        if not scripts:
            return _fail("bench/ has no scripts.", 2)
        return _fail(f"bench/ has no {', '.join(unknown)}; it has {', '.join(scripts)}.", 2)
    # The programs that segue is compared with need other versions of some packages.
    bin_dir = prepare("bench", "bench", "postgres", tested_versions=False)
    python = str(bin_dir / _executable("python"))
    failed = [
        name
        for name in names or scripts
        if subprocess.run([python, str(scripts[name]), *script_arguments], cwd=ROOT).returncode
    ]
    if failed:
        return _fail(f"these benchmarks failed or missed a target: {', '.join(failed)}.", 1)
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "demo": (demo, DEMO),
    "test": (test, TEST),
    "bench": (bench, BENCH),
}


class SetUpError(Exception):
    """An environment could not be created; the message says what to do."""


def prepare(name: str, *extras: str, tested_versions: bool = True) -> Path:
    """Return the directory of programs of the environment `name`; create it if necessary.

    With `tested_versions`, packages have the versions of constraints.txt, so that a package which
    was released since cannot break the demo or the tests.

    An environment is complete if its stamp is the one that would be written now. The stamp is
    written last and removed first. If a set-up is killed, there is no stamp, and the next run
    starts again.
    """
    env = ROOT / ".venv" / name
    bin_dir = env / ("Scripts" if WINDOWS else "bin")
    stamp = env / "segue-stamp.json"
    expected_stamp = stamp_text(ROOT, extras)
    env.parent.mkdir(exist_ok=True)
    with _exclusive_lock(env.with_suffix(".lock")):
        if _is_current(stamp, expected_stamp) and (bin_dir / _executable("python")).exists():
            return bin_dir
        stamp.unlink(missing_ok=True)
        if env.exists():
            shutil.rmtree(env)
        _print_status(f"creating a private environment in {env.relative_to(ROOT)} (only once)")
        pip = _make_environment(env, bin_dir / _executable("python"))
        _print_status("installing segue and its dependencies")
        target = f".[{','.join(extras)}]" if extras else "."
        install = [*pip, "install", "-qq", "--disable-pip-version-check", "--editable", target]
        if tested_versions:
            install += ["--constraint", "constraints.txt"]
        if subprocess.run(install, cwd=ROOT).returncode:
            raise SetUpError("pip could not install segue's dependencies; its error is above.")
        unfinished = stamp.with_suffix(".new")
        unfinished.write_text(expected_stamp, encoding="utf-8")
        unfinished.replace(stamp)
    return bin_dir


def stamp_text(root: Path, extras: Sequence[str]) -> str:
    """Return the inputs of an environment as text. If they change, it must be created again."""
    import tomllib  # new in 3.11, so not at the top

    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    # The settings of linters and pytest do not change what is installed.
    tools = pyproject.pop("tool", {})
    installed = json.dumps([pyproject, tools.get("hatch")], sort_keys=True, default=str)
    inputs = {
        "checkout": str(root),
        "extras": sorted(extras),
        "constraints": hashlib.sha256((root / "constraints.txt").read_bytes()).hexdigest(),
        "packages": hashlib.sha256(installed.encode()).hexdigest(),
        "python": [sys.version, sys.base_prefix],
    }
    return json.dumps(inputs, indent=2) + "\n"


def _is_current(stamp: Path, expected_stamp: str) -> bool:
    try:
        return stamp.read_text(encoding="utf-8") == expected_stamp
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return False


def _make_environment(env: Path, python: Path) -> list[str]:
    """Create an empty environment and return the pip command that installs into it."""
    has_venv, has_ensurepip, has_pip = (
        importlib.util.find_spec(module) is not None for module in ("venv", "ensurepip", "pip")
    )
    venv_command = [sys.executable, "-m", "venv"]
    if has_venv and has_ensurepip:
        pip = [str(python), "-m", "pip"]
    elif has_venv and has_pip:
        # Some systems have venv, but not ensurepip, which installs pip into an environment.
        venv_command.append("--without-pip")
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
    else:
        raise SetUpError(
            "this Python lacks venv, or both ensurepip and pip. "
            "Install them (on Debian and Ubuntu the package python3-venv) and run this again."
        )
    result = subprocess.run(
        [*venv_command, str(env)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if result.returncode:
        output = result.stdout.decode(errors="replace").strip()
        raise SetUpError(f"Python's venv could not create {env}:\n{output}")
    return pip


@contextlib.contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    """Hold a lock on `path`; the system releases it if this process dies."""
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _print_status("waiting for another set-up of the same environment")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace_process(command: list[str]) -> int:
    """Replace this process with the command, which then gets signals and sets the exit code."""
    if WINDOWS:
        return subprocess.run(command).returncode
    os.execv(command[0], command)


def _executable(name: str) -> str:
    return f"{name}.exe" if WINDOWS else name


def _without_separator(arguments: list[str]) -> list[str]:
    return arguments[1:] if arguments[:1] == ["--"] else arguments


def _print_status(message: str) -> None:
    print(f"segue: {message}", file=sys.stderr, flush=True)


def _fail(message: str, exit_code: int) -> int:
    _print_status(message)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

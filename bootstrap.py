"""Run segue, its tests or its benchmarks from a checkout, with nothing set up beforehand.

    python3 bootstrap.py demo

Each command has a private environment under `.venv/` in the checkout. It is made the first time
and used again until what it was made from changes. Only the standard library is needed here, and
the file parses on old Pythons too, so that those get a sentence and not a traceback.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys


def refusal(version: "tuple[int, ...]") -> "str | None":
    """Why this Python cannot run segue, or None if it can."""
    if version >= (3, 11):
        return None
    spelled = ".".join(str(part) for part in version[:3])
    return (
        f"segue needs Python 3.11 or newer and this is Python {spelled}: "
        "run the same command with a newer one, for example `python3.13 bootstrap.py`."
    )


_REFUSAL = refusal(tuple(sys.version_info[:3]))
if _REFUSAL:
    sys.exit(_REFUSAL)

# Nothing below is reached by an older Python.
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parent
WINDOWS = sys.platform == "win32"

OVERVIEW = """\
usage: python3 bootstrap.py COMMAND [arguments]

Runs segue from this checkout in a private environment that it makes for itself.

  demo    see segue at work on your own machine
  test    run the tests
  bench   run the benchmarks

`python3 bootstrap.py COMMAND --help` says more. The environments are in .venv/ beside this file;
delete that directory and nothing is left of them.

example:
  python3 bootstrap.py demo
"""

DEMO = """\
usage: python3 bootstrap.py demo [arguments of `segue demo`]

Makes an environment in .venv/run with segue and what it needs, then runs `segue demo` in it.
Everything after `demo` is given to segue as it is. Later runs start at once: the environment is
made again only when pyproject.toml asks for other packages, or Python is another.

examples:
  python3 bootstrap.py demo
  python3 bootstrap.py demo --data-dir /tmp/try-segue
  python3 bootstrap.py demo -- --help          the help of `segue demo` itself
"""

TEST = """\
usage: python3 bootstrap.py test [--full] [--jobs N] [arguments of pytest]

Makes an environment in .venv/test with all that the tests need, a PostgreSQL server and Node
among it, then runs pytest there and ends with pytest's exit code. Paths are relative to the
checkout, wherever you call this from.

  --full     run the long tests too (1,000 killed writers where the default tier has 20)
  --jobs N   spread the tests over N processes (as many as there are CPUs, at most four)

examples:
  python3 bootstrap.py test
  python3 bootstrap.py test --full
  python3 bootstrap.py test --jobs 2 -k cursor tests/model
  python3 bootstrap.py test -- --help          the help of pytest itself
"""

BENCH = """\
usage: python3 bootstrap.py bench [name ...] [-- arguments of the scripts]

Makes an environment in .venv/bench with segue and the peers that it is measured against, then
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
        return _complain(f"there is no command {name!r}: it is one of {known} (see --help).", 2)
    command, teaching = COMMANDS[name]
    if rest and rest[0] in ("-h", "--help"):
        print(teaching, end="")
        return 0
    try:
        return command(rest)
    except KeyboardInterrupt:
        return _complain("stopped.", 130)
    except SetUpError as error:
        return _complain(str(error), 1)
    except OSError as error:
        return _complain(f"the environment could not be made: {error}", 1)


def demo(arguments: list[str]) -> int:
    bin_dir = prepare("run")
    return _become([str(bin_dir / _executable("segue")), "demo", *_without_separator(arguments)])


def test(arguments: list[str]) -> int:
    try:
        options = pytest_options(arguments)
    except ValueError as error:
        return _complain(str(error), 2)
    bin_dir = prepare("test", "dev", "postgres")
    os.chdir(ROOT)
    return _become([str(bin_dir / _executable("python")), "-m", "pytest", *options])


def pytest_options(arguments: Sequence[str]) -> list[str]:
    """Our two options turned into pytest's, everything else in the order it was given."""
    ours: list[str] = ["-m", "not full"]
    theirs: list[str] = []
    jobs = str(min(4, os.cpu_count() or 1))
    words = iter(arguments)
    for word in words:
        if word == "--":
            theirs += words
        elif word == "--full":
            ours = ours[2:]
        elif word == "--jobs" or word.startswith("--jobs="):
            jobs = word.partition("=")[2] or next(words, "")
            if not jobs.isdecimal():
                raise ValueError(f"--jobs takes a number of processes, not {jobs!r}.")
        else:
            theirs.append(word)
    # Neighbours stay together, so that what the tests of a file share is made about once.
    spread = ["-n", jobs, "--dist", "worksteal"] if int(jobs) > 1 else []
    return ours + spread + theirs


def bench(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, passed_on = arguments[:split], arguments[split + 1 :]
    scripts = {
        path.stem: path
        for path in sorted((ROOT / "bench").glob("*.py"))
        if not path.stem.startswith("_")
    }
    unknown = [name for name in names if name not in scripts]
    if unknown or not scripts:
        there = ", ".join(scripts) or "no script"
        return _complain(f"bench/ has {there}; not {' or '.join(unknown) or 'one to run'}.", 2)
    python = str(prepare("bench", "bench", "postgres") / _executable("python"))
    failed = [
        name
        for name in names or scripts
        if subprocess.run([python, str(scripts[name]), *passed_on], cwd=ROOT).returncode
    ]
    if failed:
        return _complain(f"not all was well in bench/: {', '.join(failed)}.", 1)
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "demo": (demo, DEMO),
    "test": (test, TEST),
    "bench": (bench, BENCH),
}


class SetUpError(Exception):
    """An environment could not be made; the message says what to do about it."""


def prepare(name: str, *extras: str) -> Path:
    """The directory of programs of the environment `name`, made now unless it is there whole.

    An environment counts as made when its stamp says what we would write today. The stamp is
    written last and removed first, so a set-up that was killed has none and is begun again.
    """
    env = ROOT / ".venv" / name
    bin_dir = env / ("Scripts" if WINDOWS else "bin")
    stamp = env / "segue-stamp.json"
    wanted = stamp_text(ROOT, extras)
    env.parent.mkdir(exist_ok=True)
    with _only_one(env.with_suffix(".lock")):
        if _is_whole(stamp, wanted) and (bin_dir / _executable("python")).exists():
            return bin_dir
        stamp.unlink(missing_ok=True)
        if env.exists():
            shutil.rmtree(env)
        _say(f"making a private environment in {env.relative_to(ROOT)} (this once)")
        pip = _make_environment(env, bin_dir / _executable("python"))
        _say("installing segue and what it needs")
        target = f".[{','.join(extras)}]" if extras else "."
        install = [*pip, "install", "-qq", "--disable-pip-version-check", "--editable", target]
        if subprocess.run(install, cwd=ROOT).returncode:
            raise SetUpError("pip could not install what segue needs; its own words are above.")
        unfinished = stamp.with_suffix(".new")
        unfinished.write_text(wanted, encoding="utf-8")
        unfinished.replace(stamp)
    return bin_dir


def stamp_text(root: Path, extras: Sequence[str]) -> str:
    """What an environment is made from: other words here mean that it has to be made again."""
    import tomllib  # new in 3.11, so not at the top

    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    # The settings of linters and of pytest change nothing that is installed.
    tools = pyproject.pop("tool", {})
    installed = json.dumps([pyproject, tools.get("hatch")], sort_keys=True, default=str)
    made_from = {
        "checkout": str(root),
        "extras": sorted(extras),
        "packages": hashlib.sha256(installed.encode()).hexdigest(),
        "python": [sys.version, sys.base_prefix],
    }
    return json.dumps(made_from, indent=2) + "\n"


def _is_whole(stamp: Path, wanted: str) -> bool:
    try:
        return stamp.read_text(encoding="utf-8") == wanted
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return False


def _make_environment(env: Path, python: Path) -> list[str]:
    """Makes an empty environment, and gives the pip command that installs into it."""
    has_venv, has_ensurepip, has_pip = (
        importlib.util.find_spec(module) is not None for module in ("venv", "ensurepip", "pip")
    )
    make = [sys.executable, "-m", "venv"]
    if has_venv and has_ensurepip:
        pip = [str(python), "-m", "pip"]
    elif has_venv and has_pip:
        # Some systems ship venv without the pip that it puts into an environment.
        make.append("--without-pip")
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
    else:
        raise SetUpError(
            "this Python can neither make an environment with pip in it nor has a pip of its own: "
            "install them (on Debian and Ubuntu the package python3-venv) and run this again."
        )
    made = subprocess.run([*make, str(env)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode:
        said = made.stdout.decode(errors="replace").strip()
        raise SetUpError(f"Python's venv could not make {env}:\n{said}")
    return pip


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Holds a lock on `path`, which the system takes back if this process dies."""
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
                _say("waiting for another set-up of the same environment")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _become(command: list[str]) -> int:
    """Runs the command in the place of this process, so that signals and exit codes are its own."""
    if WINDOWS:
        return subprocess.run(command).returncode
    os.execv(command[0], command)


def _executable(name: str) -> str:
    return f"{name}.exe" if WINDOWS else name


def _without_separator(arguments: list[str]) -> list[str]:
    return arguments[1:] if arguments[:1] == ["--"] else arguments


def _say(line: str) -> None:
    print(f"segue: {line}", file=sys.stderr, flush=True)


def _complain(line: str, status: int) -> int:
    _say(line)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

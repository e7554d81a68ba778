"""Run bootstrap.py in checkouts of a fake segue, which pip installs without a network."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import bootstrap

# A build backend in the checkout itself, so that pip downloads nothing. Each install of the project
# adds a line to `installs`; with HANG in the environment it starts and never ends.
BACKEND = """
import os, time, zipfile
from pathlib import Path

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    Path("installs").open("a").write("started\\n")
    if "HANG" in os.environ:
        time.sleep(600)
    info = "segue-0.1.0.dist-info/"
    files = {
        "segue.pth": str(Path("src").resolve()),
        info + "METADATA": "Metadata-Version: 2.1\\nName: segue\\nVersion: 0.1.0\\n"
            "Provides-Extra: dev\\nProvides-Extra: postgres\\n",
        info + "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        info + "entry_points.txt": "[console_scripts]\\nsegue = segue:main\\n",
    }
    files[info + "RECORD"] = "".join(f"{name},,\\n" for name in [*files, info + "RECORD"])
    name = "segue-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "segue"
version = "0.1.0"
"""
# ensurepip installs pip into an environment in three seconds. Running pip from outside takes one
# second, so most tests hide ensurepip, like a system without python3-venv.
WITHOUT_ENSUREPIP = "import sys; sys.modules['ensurepip'] = None\n"
WITHOUT_ANY_PIP = WITHOUT_ENSUREPIP + "sys.modules['pip'] = None\n"
PRINT_ARGUMENTS = "import os, sys; print(*sys.argv[1:], sep='|'); print(os.getcwd())"


class Checkout:
    """A directory with a copy of bootstrap.py and a fake segue."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.other_directory = root.parent
        for path, text in {
            "backend.py": BACKEND,
            "pyproject.toml": PYPROJECT,
            "constraints.txt": "",
            "src/segue/__init__.py": f"def main():\n    {PRINT_ARGUMENTS}\n",
            "src/pytest/__main__.py": f"{PRINT_ARGUMENTS}\nsys.exit(3)\n",
            "hide/sitecustomize.py": WITHOUT_ENSUREPIP,
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(textwrap.dedent(text))
        shutil.copy(bootstrap.__file__, root)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "bootstrap.py"), *arguments]

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.other_directory,
            env=self.environ(**environ),
            capture_output=True,
            text=True,
        )

    def environ(self, **variables: str) -> dict[str, str]:
        hide = str(self.root / "hide")
        return {**os.environ, "PIP_NO_INDEX": "1", "PYTHONPATH": hide, **variables}

    @property
    def installs(self) -> int:
        log = self.root / "installs"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a path with spaces")


def test_demo_runs_segue_from_anywhere_and_installs_it_once(checkout: Checkout) -> None:
    first = checkout.run("demo", "two words", "--flag")
    assert first.stdout.splitlines() == ["demo|two words|--flag", str(checkout.other_directory)]
    assert first.stderr.splitlines() == [
        f"segue: creating a private environment in {Path('.venv/run')} (only once)",
        "segue: installing segue and its dependencies",
    ]
    second = checkout.run("demo", "--", "--help")
    assert (second.stdout.splitlines()[0], second.stderr) == ("demo|--help", "")
    assert checkout.installs == 1


def test_environment_without_a_stamp_is_created_again(checkout: Checkout) -> None:
    leftover = checkout.root / ".venv/run/bin/python"  # of a set-up that did not end
    leftover.parent.mkdir(parents=True)
    leftover.write_text("not a program")
    assert checkout.run("demo", "hello").stdout.splitlines()[0] == "demo|hello"
    assert checkout.installs == 1


def test_killed_set_up_is_started_again(checkout: Checkout) -> None:
    killed = subprocess.Popen(
        checkout.command("demo"), env=checkout.environ(HANG="1"), start_new_session=True
    )
    try:
        while checkout.installs == 0:
            assert killed.poll() is None
            time.sleep(0.02)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    second = checkout.run("demo", "hello")
    assert second.stdout.splitlines()[0] == "demo|hello"
    assert checkout.installs == 2


def test_ctrl_c_during_set_up_prints_no_traceback(checkout: Checkout) -> None:
    stopped = subprocess.Popen(
        checkout.command("demo"),
        env=checkout.environ(HANG="1"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while checkout.installs == 0:
        assert stopped.poll() is None
        time.sleep(0.02)
    os.killpg(stopped.pid, signal.SIGINT)
    _, output = stopped.communicate(timeout=60)
    assert stopped.returncode == 130
    assert output.splitlines()[-1] == "segue: stopped."
    assert "bootstrap.py" not in output


def test_test_command_runs_in_the_checkout_with_the_exit_code_of_pytest(checkout: Checkout) -> None:
    result = checkout.run("test", "-k", "some name", "--jobs", "2")
    expected = ["-m|not full|-n|2|--dist|worksteal|-k|some name", str(checkout.root)]
    assert (result.returncode, result.stdout.splitlines()) == (3, expected)


@pytest.mark.full
def test_pip_is_installed_by_ensurepip_or_else_run_from_outside(checkout: Checkout) -> None:
    pip = checkout.root / ".venv/run/bin/pip"
    assert checkout.run("demo").returncode == 0
    assert not pip.exists()
    shutil.rmtree(checkout.root / ".venv")
    assert checkout.run("demo", PYTHONPATH="").returncode == 0
    assert pip.exists() == (importlib.util.find_spec("ensurepip") is not None)


def test_error_without_any_pip_says_what_to_install(checkout: Checkout) -> None:
    (checkout.root / "hide/sitecustomize.py").write_text(WITHOUT_ANY_PIP)
    result = checkout.run("demo")
    assert result.returncode == 1
    assert [line for line in result.stderr.splitlines() if "python3-venv" in line]


def test_failed_install_is_reported_and_repeated(checkout: Checkout) -> None:
    pyproject = checkout.root / "pyproject.toml"
    pyproject.write_text(PYPROJECT.replace('"backend"', '"no_such_backend"'))
    failed = checkout.run("demo")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("segue: pip could not install")
    pyproject.write_text(PYPROJECT)
    assert checkout.run("demo").returncode == 0


def test_stamp_depends_only_on_the_packages(checkout: Checkout) -> None:
    pyproject = checkout.root / "pyproject.toml"
    before = bootstrap.stamp_text(checkout.root, ["dev"])
    pyproject.write_text(PYPROJECT + "[tool.ruff]\nline-length = 100\n")
    assert bootstrap.stamp_text(checkout.root, ["dev"]) == before
    assert bootstrap.stamp_text(checkout.root, []) != before
    pyproject.write_text(PYPROJECT + 'dependencies = ["click"]\n')
    assert bootstrap.stamp_text(checkout.root, ["dev"]) != before
    pyproject.write_text(PYPROJECT)
    (checkout.root / "constraints.txt").write_text("click==8.5.1\n")
    assert bootstrap.stamp_text(checkout.root, ["dev"]) != before


def test_only_benchmarks_have_versions_outside_of_the_constraints(checkout: Checkout) -> None:
    (checkout.root / "constraints.txt").write_text("segue==0.0.9\n")
    for command in ("demo", "test"):
        failed = checkout.run(command)
        assert failed.returncode == 1 and "pip could not install" in failed.stderr
    script = checkout.root / "bench" / "append.py"
    script.parent.mkdir()
    script.write_text("print('measured')")
    assert checkout.run("bench").stdout == "measured\n"


PARALLEL_OPTIONS = ["-n", "4", "--dist", "worksteal"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["-m", "not full", *PARALLEL_OPTIONS]),
        (["--full"], PARALLEL_OPTIONS),
        (["-x", "--full", "tests/model"], [*PARALLEL_OPTIONS, "-x", "tests/model"]),
        (["--jobs=1"], ["-m", "not full"]),
        (["--jobs=3"], ["-m", "not full", "-n", "3", "--dist", "worksteal"]),
        (["--full", "--", "--full", "--help"], [*PARALLEL_OPTIONS, "--full", "--help"]),
    ],
)
def test_options_of_the_test_command_are_translated_for_pytest(
    arguments: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert bootstrap.pytest_options(arguments) == expected


@pytest.mark.parametrize(("cpus", "jobs"), [(None, "4"), (1, "4"), (3, "6"), (64, "8")])
def test_number_of_test_processes_follows_the_number_of_cpus(
    cpus: int | None, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert bootstrap.pytest_options([])[2:4] == ["-n", jobs]


@pytest.mark.parametrize("command", [[], ["demo"], ["test"], ["bench"]])
def test_help_has_an_example_and_creates_nothing(checkout: Checkout, command: list[str]) -> None:
    result = checkout.run(*command, "--help")
    assert result.returncode == 0
    assert f"\n  python3 bootstrap.py {' '.join(command)}" in result.stdout
    assert not (checkout.root / ".venv").exists()


@pytest.mark.parametrize(
    ("mistake", "output"),
    [
        (["dmeo"], "demo, test, bench"),
        (["test", "--jobs", "many"], "--jobs takes a number"),
        (["bench", "append"], "bench/ has no scripts"),
    ],
)
def test_mistake_is_reported_in_one_line(
    checkout: Checkout, mistake: list[str], output: str
) -> None:
    result = checkout.run(*mistake)
    assert result.returncode == 2
    assert output in result.stderr and len(result.stderr.splitlines()) == 1


def test_old_python_is_refused_in_one_line() -> None:
    assert bootstrap.version_error((3, 11, 0)) is None
    assert bootstrap.version_error((4, 0, 0)) is None
    output = bootstrap.version_error((3, 9, 18))
    assert output is not None and "3.11 or newer" in output and "3.9.18" in output

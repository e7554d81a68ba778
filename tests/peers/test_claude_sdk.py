"""The session tests of claude-agent-sdk, run against our functions under its name."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.peers.claude_expected import FAILING, RUN

HERE = Path(__file__).parent


def run(tests: Path, report: Path) -> dict[str, bool]:
    """Every test of the files we run, and whether it passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "claude_shim", "-p", "no:cacheprovider"]
    command += ["--override-ini", "junit_family=xunit1", f"--junitxml={report}"]
    command += ["-p", "no:schemathesis", "-p", "no:hypothesispytest"]  # slow to import
    command += [f"--rootdir={tests}", "-c", os.devnull, *(str(tests / name) for name in RUN)]
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE), *sys.path]))
    environ["CLAUDE_SDK_SOURCE"] = str(tests.parent / "src")
    environ.pop("CLAUDE_CONFIG_DIR", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert report.exists(), done.stdout + done.stderr
    return {name(case): passed(case) for case in ElementTree.parse(report).iter("testcase")}


def name(case: ElementTree.Element) -> str:
    kind = case.get("classname", "").rpartition(".")[2]
    return f"{case.get('file')}::{kind}::{case.get('name')}"


def passed(case: ElementTree.Element) -> bool:
    return case.find("failure") is None and case.find("error") is None


def test_sdk_tests_pass_except_listed_ones(claude_sdk_tests: Path, tmp_path: Path) -> None:
    ran = run(claude_sdk_tests, tmp_path / "report.xml")
    assert {name for name, good in ran.items() if not good} == set(FAILING)
    assert len(ran) == sum(RUN.values())


@pytest.mark.full
def test_defect_tests_fail_on_the_sdk(claude_sdk_source: Path, tmp_path: Path) -> None:
    report, tests = tmp_path / "report.xml", HERE.parent / "claude" / "test_defects.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "claude_peer", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(HERE), str(claude_sdk_source), *sys.path])
    environ = {**os.environ, "PYTHONPATH": path}
    command += [f"--junitxml={report}", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=HERE.parent)
    assert report.exists(), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {str(case.get("name")) for case in cases if not passed(case)}
    numbers = {int(name.split("_")[2]) for name in failed if name.startswith("test_defect_")}
    assert numbers == set(range(1, 18))


def test_every_sdk_file_with_session_tests_runs(claude_sdk_tests: Path) -> None:
    # Three more files test the SDK's process and its transports, which are not sessions' files.
    excluded = {"test_session_resume.py", "test_session_store_anyio.py"}
    test_files = {path.name for path in claude_sdk_tests.glob("test_session*.py")}
    assert test_files - excluded == set(RUN)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_segue_store_passes_the_sdk_conformance_tests(
    claude_sdk_source: Path, tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    url = "" if database == "sqlite" else request.getfixturevalue("migrated_database_url")
    path = os.pathsep.join([str(claude_sdk_source), *sys.path])
    environ = {**os.environ, "PYTHONPATH": path, "SEGUE_DATA_DIR": str(tmp_path)}
    environ.pop("SEGUE_DATABASE_URL", None)
    command = [sys.executable, str(HERE / "claude_conformance.py"), url]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    # One store for each of 14 contracts, and one to see what it can do.
    assert done.stdout == "15 stores conform\n", done.stderr

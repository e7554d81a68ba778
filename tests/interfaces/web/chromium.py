"""A Chromium to test with: one that is installed, or one that is fetched now.

Playwright's own download goes into `.venv/` in the checkout. Where that cannot be had, and this is
root on a system with apt-get, the system's package is installed. If nothing helps, the reason is
reported in one sentence.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CHOICE = "SEGUE_TEST_BROWSER"  # names a Chromium or Chrome to use instead
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
SECONDS = 600
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class NoBrowser(Exception):
    """There is no Chromium, and none could be fetched; the message says what was tried."""


def chromium() -> str:
    """The path of a Chromium."""
    place = ROOT / ".venv" / "browsers"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if found := _installed(place):
            return found
        tried = [_download(place), _package()]
        if found := _installed(place):
            return found
    reasons = "; ".join(filter(None, tried))
    raise NoBrowser(
        f"no Chromium here, and none could be fetched ({reasons});"
        f" install one, or name one in {CHOICE}"
    )


def _installed(place: Path) -> str | None:
    if given := os.environ.get(CHOICE):
        return given
    for name in NAMES:
        if found := shutil.which(name):
            return found
    if Path(MAC).exists():
        return MAC
    for pattern in (
        "chromium-*/chrome-linux*/chrome",
        "chromium_headless_shell-*/*/*headless*shell",
    ):
        for path in sorted(place.glob(pattern)):
            if os.access(path, os.X_OK) and _runs(path):
                return str(path)
    return None


def _runs(path: Path) -> bool:
    done = subprocess.run([path, "--version"], capture_output=True, timeout=SECONDS)
    return done.returncode == 0


def _download(place: Path) -> str:
    command = [sys.executable, "-m", "playwright", "install", "chromium-headless-shell"]
    return _try(command, {"PLAYWRIGHT_BROWSERS_PATH": str(place)}, "Playwright's download failed")


def _package() -> str:
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    if os.geteuid() != 0:
        return "apt-get needs root"
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _try(["apt-get", "update", "-qq"], quiet, "")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
    return _try(install, quiet, "apt-get could not install chromium")


def _try(command: list[str], environment: dict[str, str], failed: str) -> str:
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return failed
    return failed if done.returncode else ""

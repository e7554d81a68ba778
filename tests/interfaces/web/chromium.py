"""Find a Chromium to test with, or install one.

Playwright's download goes into `.venv/` in the checkout. If it fails, root on a system with apt-get
installs the system's package.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.system_packages import (
    ENVIRONMENTS,
    TIMEOUT_SECONDS,
    install_package,
    one_installation,
    run_installer,
)

BROWSER_VARIABLE = "SEGUE_TEST_BROWSER"  # the path of a Chromium or Chrome to use instead
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MACOS_PATH = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
# Parts of the browser that no test uses. Its own toolbar is a web page, which takes a new context
# a second of CPU. The list replaces Playwright's, so it contains those of it that matter here.
DISABLED_FEATURES = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "InitialWebUI",
    "LensOverlay",
    "MediaRouter",
    "OptimizationHints",
    "PaintHolding",
    "PreloadTopChromeWebUI",
    "ThirdPartyStoragePartitioning",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
    "WebUIReloadButton",
    "WebUIToolbar",
)
ARGUMENTS = [
    f"--disable-features={','.join(DISABLED_FEATURES)}",
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other server is reached
]


class NoBrowser(Exception):
    """No Chromium is installed, and none could be installed; the message says why."""


def find_or_install_chromium() -> str:
    """Return the path of a Chromium, which is installed first if necessary."""
    directory = ENVIRONMENTS / "browsers"
    with one_installation():
        if path := _find_installed(directory):
            return path
        failures = [_download(directory), install_package("chromium")]
        if path := _find_installed(directory):
            return path
    reasons = "; ".join(filter(None, failures))
    raise NoBrowser(
        f"no Chromium is installed, and none could be installed ({reasons});"
        f" install one, or set {BROWSER_VARIABLE} to its path"
    )


def _find_installed(directory: Path) -> str | None:
    if chosen := os.environ.get(BROWSER_VARIABLE):
        return chosen
    for name in NAMES:
        if path := shutil.which(name):
            return path
    if Path(MACOS_PATH).exists():
        return MACOS_PATH
    for pattern in (
        "chromium-*/chrome-linux*/chrome",
        "chromium_headless_shell-*/*/*headless*shell",
    ):
        for candidate in sorted(directory.glob(pattern)):
            if os.access(candidate, os.X_OK) and _can_run(candidate):
                return str(candidate)
    return None


def _can_run(path: Path) -> bool:
    completed = subprocess.run([path, "--version"], capture_output=True, timeout=TIMEOUT_SECONDS)
    return completed.returncode == 0


def _download(directory: Path) -> str:
    command = [sys.executable, "-m", "playwright", "install", "chromium-headless-shell"]
    done = run_installer(command, {"PLAYWRIGHT_BROWSERS_PATH": str(directory)})
    return "" if done else "Playwright's download failed"

"""The installed command and the type of the `run` fixture."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("segue"))
Run = Callable[..., subprocess.CompletedProcess[str]]

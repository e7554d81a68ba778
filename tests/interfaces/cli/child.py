"""The installed command, and the types of the fixtures `run` and `programs`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("segue"))
Programs = Callable[..., str]
Run = Callable[..., subprocess.CompletedProcess[str]]

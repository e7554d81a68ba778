"""What is missing is said with a command that brings it, wherever segue was installed from."""

import subprocess
import sys
from importlib.metadata import requires

import pytest

WITHOUT = """
import sys
sys.modules["{module}"] = None
try:
    {use}
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("extra", "module", "use"),
    [
        (
            "model",
            "pydantic_ai",
            "from segue.agents.model.models import make_model; make_model('openai:x')",
        ),
        ("postgres", "asyncpg", "import segue.store.postgres"),
    ],
)
def test_a_package_that_is_missing_is_named_as_pip_takes_it(
    extra: str, module: str, use: str
) -> None:
    program = WITHOUT.format(module=module, use=use)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    (needed,) = [
        line.partition(";")[0].strip()
        for line in requires("segue") or ()
        if line.endswith(f'extra == "{extra}"') or line.endswith(f"extra == '{extra}'")
    ]
    assert f"pip install '{needed}'" in said

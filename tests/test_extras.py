"""An error about a missing optional package has the command that installs it."""

import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from segue import extras
from segue.extras import command_for

PROGRAM_WITHOUT_MODULE = """
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
def test_error_names_the_pip_command_for_a_missing_package(
    extra: str, module: str, use: str
) -> None:
    program = PROGRAM_WITHOUT_MODULE.format(module=module, use=use)
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    (requirement,) = [
        line.partition(";")[0].strip()
        for line in requires("segue") or ()
        if line.endswith(f'extra == "{extra}"') or line.endswith(f"extra == '{extra}'")
    ]
    assert f"pip install '{requirement}'" in output


def test_costs_are_estimated_without_the_package_of_the_model_agent() -> None:
    program = PROGRAM_WITHOUT_MODULE.format(
        module="pydantic_ai",
        use="from segue.prices.estimate import has_price; print(has_price('openai:gpt-5'))",
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert output == "True\n"


RECEIPT = """
[tool]
requirements = [
    { name = "segue", extras = ["mcp"], directory = "/src/my segue" },
    { name = "asyncpg", specifier = ">=0.30" },
    { name = "two" },
]
"""


@pytest.mark.parametrize(
    ("path", "files", "command"),
    [
        ("venv", {"pyvenv.cfg": "home = /usr/bin"}, "pip install 'one>=1' two"),
        ("venv", {"pyvenv.cfg": "home = /usr/bin\nuv = 0.9.1"}, "uv pip install 'one>=1' two"),
        (
            "share/uv/tools/segue",
            {"uv-receipt.toml": "", "pyvenv.cfg": "uv = 0.9.1"},
            "uv tool install --with 'one>=1' --with two segue",
        ),
        (
            "share/uv/tools/segue",
            {"uv-receipt.toml": RECEIPT, "pyvenv.cfg": "uv = 0.9.1"},
            "uv tool install --with 'asyncpg>=0.30' --with 'one>=1' --with two"
            " '/src/my segue[mcp]'",
        ),
        (
            "share/uv/tools/segue",
            {
                "uv-receipt.toml": RECEIPT.replace("directory", "editable"),
                "pyvenv.cfg": "uv = 0.9.1",
            },
            "uv tool install --with 'asyncpg>=0.30' --with 'one>=1' --with two"
            " --editable '/src/my segue[mcp]'",
        ),
        (
            "share/uv/tools/segue",
            {"uv-receipt.toml": '[tool]\nrequirements = ["segue[mcp]>=1", "asyncpg"]'},
            "uv tool install --with asyncpg --with 'one>=1' --with two 'segue[mcp]>=1'",
        ),
        (
            "share/uv/tools/segue",
            {
                "uv-receipt.toml": "[tool]\nrequirements = [{ name = 'segue', git ="
                " 'https://host/segue?subdirectory=python&rev=v1' }]"
            },
            "uv tool install --with 'one>=1' --with two"
            " 'segue @ git+https://host/segue@v1#subdirectory=python'",
        ),
        (
            "share/uv/tools/segue",
            {"uv-receipt.toml": "[tool"},
            "uv tool install --with 'one>=1' --with two segue",
        ),
        (
            "cache/uv/archive-v0/abc",
            {"pyvenv.cfg": "uv = 0.9.1"},
            "uvx --from '/src/my segue' --with 'one>=1' --with two segue",
        ),
        ("share/pipx/venvs/segue", {"pyvenv.cfg": ""}, "pipx inject segue 'one>=1' two"),
    ],
)
def test_command_fits_the_installer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    files: dict[str, str],
    command: str,
) -> None:
    prefix = tmp_path / path
    pip = prefix / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.touch(0o755)
    for name, content in files.items():
        (prefix / name).write_text(content)
    monkeypatch.setenv("PATH", str(pip.parent))
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
    monkeypatch.setattr(extras, "_origin", lambda: "/src/my segue")
    assert command_for(("one>=1", "two"), str(prefix)) == command


def test_command_names_the_environment_that_the_shell_has_not_activated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert command_for(("two",), str(tmp_path)) == f"{tmp_path}/bin/python -m pip install two"
    (tmp_path / "pyvenv.cfg").write_text("uv = 0.9.1")
    expected = f"uv pip install --python {tmp_path}/bin/python two"
    assert command_for(("two",), str(tmp_path)) == expected

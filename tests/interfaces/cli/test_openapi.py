"""The REST API commands are generated from the server's OpenAPI document."""

import subprocess
import sys

import pytest

from segue.interfaces.cli.api import help
from segue.interfaces.cli.api.operations import Operation, load_operations
from tests.interfaces.cli import openapi_excerpt


def test_openapi_file_matches_what_the_server_publishes() -> None:
    current = openapi_excerpt.encode(openapi_excerpt.excerpt())
    assert openapi_excerpt.PATH.read_text() == current, (
        "run `python -m tests.interfaces.cli.openapi_excerpt`"
    )


@pytest.mark.parametrize("operation", load_operations(), ids=lambda o: f"{o.group} {o.name}")
def test_generated_commands_and_flags_have_help(operation: Operation) -> None:
    assert f"{operation.group} {operation.name}" in help.COMMANDS
    assert [flag.name for flag in operation.flags if not flag.help] == []


def test_help_describes_only_commands_that_exist() -> None:
    operations = load_operations()
    assert set(help.COMMANDS) == {f"{operation.group} {operation.name}" for operation in operations}
    assert set(help.GROUPS) == {operation.group for operation in operations}


def test_api_commands_load_without_the_rest_interface() -> None:
    code = """
import sys
import segue.interfaces.cli.api.command
import segue.interfaces.cli.api.request
assert not [name for name in sys.modules if name.startswith("segue.interfaces.rest")]
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""opencode and Goose are killed while they import a session that segue wrote for them."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.model.content import as_content
from segue.model.event import AgentMessage, AnyBody, UserMessage
from segue.sources.opencode import tables
from segue.sources.writing.port import ImportingWriter, PreparedSession
from tests.sources.writing.tool_sessions import as_events, convert_for, rich_session, writer_of

from .programs import SECONDS, Home
from .scripted_model import running_model
from .tools import Goose, Opencode, Tool

pytestmark = pytest.mark.full

VERSIONS = [
    pytest.param((type, version), id=f"{type.name}-{version}")
    for type in (Opencode, Goose)
    for version in type.versions
]
WRITE = """
import pickle, sys
from tests.sources.writing.tool_sessions import writer_of
writer_of(sys.argv[1]).write(pickle.load(sys.stdin.buffer))
"""


@pytest.fixture(params=VERSIONS)
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tool]:
    type, version = request.param
    with running_model() as model:
        tool = type(version, Home(tmp_path), model)
        with tool.home.as_environment():
            yield tool


def prepared_session(tool: Tool, turns: int) -> PreparedSession:
    bodies: list[AnyBody] = rich_session(str(tool.home.project))
    for number in range(turns):
        bodies.append(UserMessage(content=as_content(f"prompt number {number}")))
        bodies.append(AgentMessage(content=as_content(f"answer number {number}")))
    cwd = str(tool.home.project)
    return writer_of(tool.name).prepare(convert_for(tool.name, as_events(bodies), None, cwd)[0])


def imported_rows(tool: Tool, native_id: str) -> int:
    """Return how many messages of a session opencode has imported so far."""
    directory = str(tool.home.path / ".local/share/opencode")
    counts = [tables.count_rows(path, native_id) for path in tables.find_databases(directory, None)]
    return max((count[0] for count in counts if count is not None), default=0)


def write_and_kill(tool: Tool, prepared: PreparedSession) -> bool:
    """Write a session in another process, and kill it and its children during the import.

    Return False if it ended before a part of the session was there.
    """
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, tool.name],
        stdin=subprocess.PIPE,
        env={**tool.home.environment, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        pickle.dump(prepared, process.stdin)
        process.stdin.close()
        deadline = time.monotonic() + SECONDS
        while not imported_rows(tool, prepared.native_id) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)  # a reader that never pauses keeps opencode from opening its database
        if process.poll() is not None:
            return False
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True


def test_imported_session_is_found_by_its_first_message(tool: Tool) -> None:
    writer = writer_of(tool.name)
    prepared = prepared_session(tool, 1)
    native_id = writer.write(prepared)
    assert isinstance(writer, ImportingWriter)
    assert writer.settle(prepared.native_id, prepared.first_record) == native_id
    assert native_id in tool.shown()


def test_part_that_opencode_has_imported_is_deleted(tool: Tool) -> None:
    if not isinstance(tool, Opencode):
        pytest.skip("Goose imports all messages at once")
    writer_of(tool.name).write(prepared_session(tool, 1))  # opencode creates its database
    prepared = prepared_session(tool, 2000)
    if not write_and_kill(tool, prepared) or imported_rows(tool, prepared.native_id) >= 4000:
        pytest.skip(f"opencode {tool.version} imports all messages at once")
    assert prepared.native_id in tool.shown()
    known = {ref.native_id for ref in tool.reader().discover(print)}
    assert len(known) == 1 and prepared.native_id not in known
    writer = writer_of(tool.name)
    assert isinstance(writer, ImportingWriter)
    assert writer.settle(prepared.native_id, prepared.first_record) is None
    assert prepared.native_id not in tool.shown()
    assert imported_rows(tool, prepared.native_id) == 0

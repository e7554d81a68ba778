"""The official clients against a real `segue acp`: every method, and each other's sessions."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segue.model.principal import LOCAL
from tests.clients import toolbox
from tests.interfaces.acp.network.served import serve
from tests.interfaces.acp.testbed import AcpTestbed

HERE = Path(__file__).parent
SECONDS = 300
SCRIPT = "Hello there\n/think hm\n/say hi\n/tool ls a b\n/plan one; x two\n/ask May I?"
ANSWERS = [
    ["agent_message", "Hello there"],
    ["agent_thought", "hm"],
    ["agent_message", "hi"],
    ["tool", "ls (demo)", "completed"],
    ["tool", "May I?", "completed"],
]
CONVERSATION = [["user_message", SCRIPT], *ANSWERS]


def typescript(version: int) -> list[str]:
    packages = str(toolbox.node_packages())
    return [toolbox.node(), str(HERE / f"ts_v{version}.mjs"), packages]


def python(release: str, version: int) -> list[str]:
    interpreter = toolbox.python_with(f"agent-client-protocol[http]=={release}")
    return [interpreter, str(HERE / f"py_v{version}.py")]


# Each with the version of the protocol that it speaks.
CLIENTS: dict[str, tuple[int, Callable[[], list[str]]]] = {
    "TypeScript 2.4.0, version 1": (1, lambda: typescript(1)),
    "TypeScript 2.4.0, version 2": (2, lambda: typescript(2)),
    "Python 0.9.0": (1, lambda: python("0.9.0", 1)),
    "Python 0.12.1": (1, lambda: python("0.12.1", 1)),
    "Python 1.0.0rc3, version 1": (1, lambda: python("1.0.0rc3", 1)),
    "Python 1.0.0rc3, version 2": (2, lambda: python("1.0.0rc3", 2)),
}


STDIO_ONLY = {"Python 0.9.0"}
# The clients that the default tier runs over the network.
NETWORK_SAMPLE = {("TypeScript 2.4.0, version 1", "http"), ("Python 1.0.0rc3, version 2", "ws")}


@pytest.fixture
def testbed(tmp_path: Path) -> AcpTestbed:
    return AcpTestbed(tmp_path)


def agent(testbed: AcpTestbed) -> list[str]:
    return [sys.executable, "-m", "segue", "acp", "--data-dir", str(testbed.data)]


def run(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def played(name: str, testbed: AcpTestbed, task: str, *sessions: str) -> dict[str, Any]:
    """Run a client with a task, and return its report."""
    return report_of(name, agent(testbed), testbed.directory, task, *sessions)


def report_of(name: str, agent: Any, directory: Path, task: str, *sessions: str) -> dict[str, Any]:
    command = [*CLIENTS[name][1](), json.dumps(agent), str(directory)]
    report: dict[str, Any] = json.loads(run([*command, task, *sessions]))
    assert (report["version"], report["agent"], report["exit"]) == (CLIENTS[name][0], "segue", 0)
    return report


@pytest.mark.parametrize("name", CLIENTS)
def test_official_client_creates_lists_prompts_loads_and_deletes_a_session(
    name: str, testbed: AcpTestbed
) -> None:
    report = played(name, testbed, "cycle")
    (row,) = report["listed"]
    assert row["cwd"] == str(testbed.directory)
    check_cycle(report, CLIENTS[name][0])


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        pytest.param(
            name,
            scheme,
            marks=() if (name, scheme) in NETWORK_SAMPLE else pytest.mark.full,
            id=f"{name} over {scheme}",
        )
        for name in CLIENTS
        if name not in STDIO_ONLY
        for scheme in ("http", "ws")
    ],
)
async def test_official_client_does_the_same_over_the_network(
    name: str, scheme: str, tmp_path: Path
) -> None:
    async with serve(tmp_path / "data") as served:
        address = {"url": f"{scheme}://127.0.0.1:{served.port}/acp", "key": served.key}
        report = await asyncio.to_thread(report_of, name, address, tmp_path, "cycle")
    check_cycle(report, CLIENTS[name][0])


def check_cycle(report: dict[str, Any], version: int) -> None:
    assert (report["empty"], report["elsewhere"]) == ([], [])
    (row,) = report["listed"]
    assert (row["sessionId"], row["title"]) == (report["session"], "Hello there")
    assert (report["stopReason"], report["asked"]) == ("end_turn", 1)
    assert report["live"] == (ANSWERS if version == 1 else CONVERSATION)
    # A replay of version 1 has no other place for the outcome of a turn.
    outcome = [["agent_message", "[The turn was cancelled.]"]] if version == 1 else []
    assert report["loaded"] == [*CONVERSATION, ["user_message", "/wait 60"], *outcome]
    assert report["resumed"] == 0
    assert (report["mode"], report["cancelled"]) == ("plan", "cancelled")
    codes = {name: report[name] for name in ("badCursor", "closed", "unknown")}
    assert codes == {"badCursor": -32602, "closed": -32002, "unknown": -32601}
    # What only some of the clients can do.
    assert report.get("title", "Named") == "Named"
    assert report.get("open", "open") == "open"
    assert report.get("archived", 1) == 1
    assert report.get("left", []) == []
    assert report.get("deleted", -32002) == -32002
    assert report.get("held", -32800) == -32800
    assert report.get("loggedOut", -32000) == -32000


@pytest.mark.parametrize(
    ("package", "called"),
    [
        ("@agentclientprotocol/sdk@1.9.0", 15),
        pytest.param("@agentclientprotocol/sdk@0.20.0", 14, marks=pytest.mark.full),
        pytest.param("@zed-industries/agent-client-protocol@0.4.5", 8, marks=pytest.mark.full),
    ],
)
def test_first_interface_of_the_typescript_client_calls_every_method_that_it_has(
    testbed: AcpTestbed, package: str, called: int
) -> None:
    script, name = HERE / "ts_connection.mjs", package.rpartition("@")[0]
    command = [toolbox.node(), str(script), str(toolbox.node_packages(package)), name]
    report = json.loads(run([*command, json.dumps(agent(testbed)), str(testbed.directory)]))
    assert len(report.pop("called")) == called
    assert report == {
        "version": 1,
        "stopReason": "end_turn",
        "listed": 1,
        "cancelled": "cancelled",
        "replayed": [
            *("agent_message_chunk", "agent_thought_chunk", "plan"),
            *("tool_call", "tool_call_update", "user_message_chunk"),
        ],
        "asked": 1,
        "exit": 0,
    }


@pytest.mark.parametrize(
    ("makers", "readers"),
    [
        (["TypeScript 2.4.0, version 2"], ["Python 1.0.0rc3, version 1"]),
        pytest.param(list(CLIENTS), list(CLIENTS), marks=pytest.mark.full),
    ],
    ids=["two", "all"],
)
def test_every_client_loads_the_same_conversation_of_a_session(
    testbed: AcpTestbed, makers: list[str], readers: list[str]
) -> None:
    session_ids = [played(name, testbed, "make")["session"] for name in makers]
    for name in readers:
        assert played(name, testbed, "read", *session_ids)["said"] == [CONVERSATION] * len(
            session_ids
        ), name


class Acpx:
    """The command-line client, with a home of its own."""

    def __init__(self, testbed: AcpTestbed) -> None:
        self._testbed = testbed
        cli = toolbox.node_packages() / "node_modules" / "acpx" / "dist" / "cli.js"
        self._command = [toolbox.node(), str(cli), "--agent", " ".join(agent(testbed))]
        places = [str(Path(toolbox.node()).parent), os.environ["PATH"]]
        self._home = {"HOME": str(testbed.directory / "home"), "PATH": os.pathsep.join(places)}

    def __call__(self, *words: str, form: str = "json") -> str:
        options = ["--cwd", str(self._testbed.directory), "--approve-all", "--format", form]
        # Its background process ends soon after its last prompt.
        command = [*self._command, *options, "--ttl", "1", *words]
        return run(command, env={**os.environ, **self._home})

    def sessions(self, *words: str) -> dict[str, Any]:
        sessions: dict[str, Any] = json.loads(self("sessions", "list", *words))
        return sessions


def test_acpx_prompts_lists_resumes_and_closes(testbed: AcpTestbed) -> None:
    acpx = Acpx(testbed)
    assert "You said:\n\nhello there" in acpx("exec", "hello there", form="quiet")
    acpx("sessions", "new", "--name", "first")
    assert acpx("prompt", "-s", "first", "/say from acpx", form="quiet").strip() == "from acpx"
    rows = acpx.sessions()["sessions"]
    assert [row["title"] for row in rows] == ["/say from acpx", "hello there"]
    assert acpx.sessions("--filter-cwd", str(testbed.directory))["sessions"] == rows
    assert acpx.sessions("--filter-cwd", "/nowhere")["sessions"] == []
    acpx("sessions", "close", "first", form="quiet")
    acpx("sessions", "new", "--name", "again", "--resume-session", rows[1]["sessionId"])
    reply = acpx("prompt", "-s", "again", "/history", form="quiet")
    assert reply.strip() == "Before this turn: 1 messages of yours, 1 of mine."
    acpx("sessions", "close", "again", form="quiet")


@pytest.mark.full
async def test_acpx_reads_the_second_page_of_a_list(testbed: AcpTestbed) -> None:
    async with testbed.hub() as hub:
        session_ids = [(await hub.editor.create(LOCAL, cwd="/")).id for _ in range(60)]
    acpx = Acpx(testbed)
    first = acpx.sessions()
    second = acpx.sessions("--cursor", first["nextCursor"])
    seen = [row["sessionId"] for page in (first, second) for row in page["sessions"]]
    assert seen == session_ids[::-1]
    assert "nextCursor" not in second

"""A model on a loopback address that does what the prompt says, for real programs in tests.

A prompt carries its script between double brackets: the steps of the turn, in order, as JSON in
base64. So no text of an answer is in the prompt.

    List the files [[W3siY2FsbHMiOiBbWyJzaGVsbCIsIHsiY29tbWFuZCI6ICJscyJ9XV19XQ==]]

The fields of a step:

- `calls`: tool calls, each a name and its arguments. `shell` and `patch` stand for the tools that
  the program offers under another name. A step without calls ends the turn.
- `say`, `think`: the text and the reasoning of the answer.
- `sleep`: seconds before the answer.
- `hang`: send half of the text, and then nothing until the client leaves.
- `error`: answer with this HTTP status.

The model remembers nothing: the calls after the prompt say which step is next. A program asks
for titles and summaries without offering tools; it gets a short text.
"""

import base64
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple

from . import model_dialects
from .model_dialects import (
    CACHED_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Answer,
    Call,
    Dialect,
    ModelRequest,
)

SHELLS = (
    "exec_command",
    "shell_command",
    "shell",
    "bash",
    "Bash",
    "Shell",
    "run_shell_command",
    "developer__shell",
)
_SCRIPT = re.compile(r"\[\[([A-Za-z0-9+/=]+)\]\]")
PATCHES = ("apply_patch", "patch")


class Usage(NamedTuple):
    """The tokens of answers, as the model reported them; the input includes the cache."""

    input: int
    cached: int
    output: int


class ScriptedModel:
    """A running model and the answers that it gave."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.requests: list[ModelRequest] = []
        self.last_body: Any = None  # of the last request with tools, as the program sent it
        self.bodies: list[Any] = []  # of all requests with tools
        self._lock = threading.Lock()

    def usage(self, marker: str) -> Usage:
        """Return the tokens of all turns whose prompt contains a marker."""
        texts = [r.prompt.split("[[")[0] for r in self.requests if r.tools]
        count = sum(marker in text for text in texts)
        return Usage(count * INPUT_TOKENS, count * CACHED_TOKENS, count * OUTPUT_TOKENS)

    def answer(self, request: ModelRequest) -> Answer:
        """Return the answer to a request, and remember the request."""
        with self._lock:
            self.requests.append(request)
        if not request.tools:
            text = '{"title": "A short title"}' if request.wants_json else "A short title"
            return Answer(text=text)
        step = next_step(request)
        time.sleep(step.get("sleep", 0))
        calls = [_call(request.tools, name, arguments) for name, arguments in step.get("calls", ())]
        return Answer(
            text=step.get("say", ""),
            thought=step.get("think", ""),
            calls=tuple(call for call in calls if call is not None),
            hangs=step.get("hang", False),
            error=step.get("error"),
        )


def next_step(request: ModelRequest) -> dict[str, Any]:
    """Return the step of the script whose calls the history does not have yet."""
    steps = script_of(request.prompt)
    done = request.calls_since_prompt
    for step in steps:
        calls = len(step.get("calls", ()))
        if not calls or done < calls:
            return step
        done -= calls
    return {"say": "Nothing is left to do."}


def script_of(prompt: str) -> list[dict[str, Any]]:
    """Return the steps of a prompt; a prompt without a script is only acknowledged."""
    match = _SCRIPT.search(prompt)
    if match is None:
        return [{"say": "I have read it."}]
    steps: list[dict[str, Any]] = json.loads(base64.b64decode(match[1]))
    return steps


def script(text: str, *steps: dict[str, Any]) -> str:
    """Return a prompt with a script."""
    return f"{text} [[{base64.b64encode(json.dumps(steps).encode()).decode()}]]"


def _call(tools: dict[str, str], name: str, arguments: dict[str, Any]) -> Call | None:
    """Return a call of a tool that the program offers; None if it has no such tool."""
    names = {"shell": SHELLS, "patch": PATCHES}.get(name, (name,))
    offered = next((candidate for candidate in names if candidate in tools), None)
    if offered is None:
        return None
    if name == "shell":
        arguments = _shell_arguments(offered, arguments["command"])
    return Call(f"call_{uuid.uuid4().hex[:12]}", offered, arguments, tools[offered])


def _shell_arguments(tool: str, command: str) -> dict[str, Any]:
    """Return the arguments of a shell tool; each program requires its own."""
    match tool:
        case "exec_command":
            return {"cmd": command}
        case "bash":
            return {"command": command, "description": "Run a command"}
        case "run_shell_command":
            return {"command": command, "description": "Run a command", "is_background": False}
        case _:
            return {"command": command}


@contextmanager
def running_model() -> Iterator[ScriptedModel]:
    """Run a model for a `with` block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    model = ScriptedModel(server)
    _Handler.models[server.server_address[1]] = model
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        del _Handler.models[server.server_address[1]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    models: ClassVar[dict[Any, ScriptedModel]] = {}

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        entry = {"id": "stub-model", "object": "model", "owned_by": "stub"}
        self._send_json({"object": "list", "data": [entry], "models": []})

    def do_POST(self) -> None:
        path, body = self.path.split("?")[0], self._body()
        dialect = model_dialects.dialect_of(path)
        if dialect is None:
            self._send_json({"totalTokens": 10}, 200 if "ountTokens" in path else 404)
            return
        model = self.models[self.server.server_address[1]]  # type: ignore[index]  # an address
        request = dialect.read(body)
        if request.tools:
            model.last_body = body
            model.bodies.append(body)
        answer = model.answer(request)
        if answer.error is not None:
            self._send_json({"error": {"message": "as the script says"}}, answer.error)
            return
        if body.get("stream") or "stream" in path:
            self._stream(dialect, body, answer)
        else:
            self._send_json(dialect.whole(body, answer))

    def _body(self) -> dict[str, Any]:
        if "chunked" not in (self.headers.get("transfer-encoding") or ""):
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        else:
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        body: dict[str, Any] = json.loads(data or b"{}")
        return body

    def _send_json(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, dialect: Dialect, body: dict[str, Any], answer: Answer) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for name, data in dialect.chunks(body, answer):
                if data is None:  # hang
                    self._wait_for_client()
                    return
                event = f"event: {name}\n" if name else ""
                text = data if isinstance(data, str) else json.dumps(data)
                self.wfile.write(f"{event}data: {text}\n\n".encode())
        except OSError:
            pass  # the client left

    def _wait_for_client(self) -> None:
        while True:
            time.sleep(0.2)
            self.wfile.write(b": still here\n\n")

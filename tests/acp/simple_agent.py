"""A small ACP agent of both versions, which breaks one rule on demand.

`SimpleAgent(fault="LIST-002")` breaks the rule of that check and no other. Without a fault, it
follows every rule.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from segue.acp.conformance.runner import Connect, Connected

_MODES = [{"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}]
_SESSION = ("list", "resume", "close", "delete", "additionalDirectories", "title", "fork")


class Refused(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class SimpleAgent:
    """One connection. It is also the transport of its client."""

    stored: dict[str, dict[str, Any]]  # sessions by id, shared by all connections

    def __init__(self, stored: dict[str, dict[str, Any]], fault: str | None = None) -> None:
        self.stored = stored
        self.fault = fault
        self.version = 0
        self.open: set[str] = set()
        self.turns: dict[str, asyncio.Task[None]] = {}
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()

    # The transport.

    async def write(self, data: bytes) -> None:
        task = asyncio.create_task(self._receive(data))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def read_line(self) -> bytes:
        return await self.lines.get()

    async def hang_up(self) -> bool:
        return self.fault != "STREAM-004"

    def send(self, message: dict[str, Any]) -> None:
        self.lines.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def update(self, session: str, kind: str, **fields: Any) -> None:
        update = {"sessionUpdate": kind, **fields}
        self.send({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def fails(self, check: str) -> bool:
        return self.fault == check

    # Messages.

    async def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            if self.fails("RPC-004"):
                self.lines.put_nowait(b"")
            else:
                self.send({"id": None, "error": {"code": -32700, "message": "not JSON"}})
            return
        if isinstance(message, list):
            if self.fails("RPC-006"):
                self.send({"id": "batch", "result": {}})
            self.send({"id": None, "error": {"code": -32600, "message": "no batches"}})
            return
        if "id" not in message:
            await self._notified(message)
            return
        if "method" not in message:
            return
        answer: dict[str, Any]
        method, params = message["method"], message.get("params") or {}
        try:
            answer = {"result": await self._answer(method, params)}
        except Refused as refused:
            error = {"code": refused.code, "message": str(refused), "data": refused.data}
            answer = {"error": error}
        id = message["id"]
        is_prompt = method == "session/prompt" and "result" in answer
        if not is_prompt or self.version == 2 or params["sessionId"] not in self.open:
            wrong_id = self.fails("RPC-001") and isinstance(id, int)
            self.send({"id": str(id) if wrong_id else id, **answer})
        if is_prompt and params["sessionId"] in self.open:
            self._begin(params["sessionId"], params["prompt"][0].get("text", ""), id)
        if "result" in answer and self.fails(
            {"session/load": "LOAD-002", "session/resume": "RESUME-004"}.get(message["method"], "-")
        ):
            kind = "agent_message_chunk" if self.version == 1 else "usage_update"
            fields = self._text("late") if self.version == 1 else {"used": 1, "size": 2}
            self.update(message["params"]["sessionId"], kind, **fields)

    async def _notified(self, message: dict[str, Any]) -> None:
        session = message.get("params", {}).get("sessionId")
        if self.fails("RPC-003"):
            self.send({"id": None, "result": {}})
        if message["method"] == "session/cancel" and session in self.turns:
            self.turns[session].cancel()

    async def _answer(self, method: str, params: dict[str, Any]) -> Any:
        if method == "initialize":
            return self._initialize(params)
        if not self.version and not self.fails("INIT-005"):
            raise Refused(-32600, "initialize first")
        name = method.removeprefix("session/")
        handler = getattr(self, f"_{name}", None) if method.startswith("session/") else None
        v2_only = name == "load" and self.version == 2
        if handler is None or v2_only or (name == "set_mode" and self.version == 2):
            if self.fails("EXT-001") and method.startswith("_") and params:
                return {}
            if self.fails("RPC-002") and name == "no_such_method":
                raise Refused(-32603, "what?")
            if self.fails("GATE-001") and name == "archive":
                return {}
            raise Refused(-32601, f"no method {method}")
        return await handler(params)

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        requested = params["protocolVersion"]
        self.version = min(requested, 2)
        answered = 2 if self.fails("INIT-001") else self.version
        answered = requested if self.fails("INIT-002") else answered
        terminal = {"type": "terminal", "name": "Shell", "args": ["--setup"]}
        count = 2 if self.fails("AUTH-002") else 1
        if self.version == 1 or self.fails("INIT-006"):
            methods: list[Any] = [{"id": "key", "name": "Key"}] * count
            if self.fails("AUTH-001"):
                methods.append({"id": "shell", **terminal})
            info = None if self.fails("INIT-003") else {"name": "simple", "version": "1"}
            return {
                "protocolVersion": answered,
                "agentInfo": info,
                "authMethods": methods,
                "agentCapabilities": {
                    "loadSession": True,
                    "sessionCapabilities": {name: {} for name in self._methods()},
                },
            }
        methods = [{"type": "agent", "methodId": "key", "name": "Key"}] * count
        if self.fails("AUTH-001"):
            methods.append({"methodId": "shell", **terminal})
        session: dict[str, Any] = {name: {} for name in self._methods()[3:]}
        if self.fails("INIT-004"):
            session["mcp"] = True
        return {
            "protocolVersion": answered,
            "info": {"name": "simple", "version": "1"},
            "authMethods": methods,
            "capabilities": {"session": session},
        }

    def _methods(self) -> list[str]:
        return [name for name in _SESSION if name != "delete" or not self.fails("no delete")]

    # Sessions.

    def _options(self, session: dict[str, Any]) -> list[dict[str, Any]]:
        id_field = "id" if self.version == 1 else "configId"
        choices = [{"value": value, "name": value} for value in ("small", "big")]
        value = "none" if self.fails("OPTION-001") else session["model"]
        option = {"name": "Model", "type": "select", "currentValue": value, "options": choices}
        options: list[dict[str, Any]] = [{id_field: "model", **option}]
        if self.fails("OPTION-004"):
            switch = {"name": "Switch", "type": "boolean", "currentValue": True}
            options.append({id_field: "switch", **switch})
        return options

    def _setup(self, session: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {"configOptions": self._options(session)}
        if self.version == 1:
            mode = "none" if self.fails("MODE-001") else session["mode"]
            result["modes"] = {"currentModeId": mode, "availableModes": _MODES}
        return result

    def _check_setup(self, params: dict[str, Any]) -> None:
        if not os.path.isabs(params["cwd"]) and not self.fails("NEW-002"):
            raise Refused(-32602, "cwd")
        if self.fails("NEW-003") and "mcpServers" not in params:
            raise Refused(-32602, "mcpServers")
        for path in params.get("additionalDirectories", ()):
            if self.fails("DIRS-001") or (not os.path.isabs(path) and not self.fails("DIRS-002")):
                raise Refused(-32602, "additionalDirectories")

    async def _new(self, params: dict[str, Any]) -> Any:
        self._check_setup(params)
        id = "same" if self.fails("NEW-001") else f"session-{len(self.stored) + 1}"
        session = {"cwd": params["cwd"], "model": "small", "mode": "ask", "title": None, "log": []}
        self.stored[id] = session
        self.open.add(id)
        return {"sessionId": id, **self._setup(session)}

    async def _fork(self, params: dict[str, Any]) -> Any:
        parent = self._find(params)
        if self.fails("FORK-001"):
            return {"sessionId": params["sessionId"], **self._setup(parent)}
        return await self._new(params)

    def _find(self, params: dict[str, Any], *faults: str) -> dict[str, Any]:
        id = params["sessionId"]
        if id in self.stored:
            return self.stored[id]
        if self.fault in faults:
            return {"cwd": "/", "model": "small", "mode": "ask", "title": None, "log": []}
        data = None if self.fails("RESUME-006") else {"sessionId": id}
        raise Refused(-32002, "not found", data)

    async def _load(self, params: dict[str, Any]) -> Any:
        session = self._find(params, "LOAD-003")
        self.open.add(params["sessionId"])
        if not self.fails("LOAD-001"):
            self._replay(params["sessionId"], session)
        return self._setup(session)

    async def _resume(self, params: dict[str, Any]) -> Any:
        session = self._find(params)
        self.open.add(params["sessionId"])
        start = params.get("replayFrom")
        if start is not None and start.get("type") != "start" and not self.fails("RESUME-005"):
            raise Refused(-32602, "replayFrom")
        if start is not None or self.fails("RESUME-001"):
            self._replay(params["sessionId"], session)
        if self.version == 2 and not self.fails("RESUME-002"):
            self.update(params["sessionId"], "state_update", state="idle")
        return self._setup(session)

    def _replay(self, id: str, session: dict[str, Any]) -> None:
        for role, message_id, text in session["log"]:
            if self.version == 1:
                self.update(id, f"{role}_message_chunk", **self._text(text))
            else:
                other = "another" if self.fails("RESUME-003") else message_id
                content = [{"type": "text", "text": text}]
                self.update(id, f"{role}_message", messageId=other, content=content)

    async def _list(self, params: dict[str, Any]) -> Any:
        if params.get("cursor") is not None and not self.fails("LIST-005"):
            raise Refused(-32602, "cursor")
        rows = [
            {
                "sessionId": id,
                "cwd": "relative" if self.fails("LIST-001") else session["cwd"],
                "title": None if self.fails("TITLE-001") else session["title"],
            }
            for id, session in self.stored.items()
        ]
        if params.get("cwd") is not None:
            rows = [row for row in rows if row["cwd"] == params["cwd"]]
            if self.fails("LIST-003"):
                rows.append({"sessionId": "other", "cwd": "/elsewhere", "title": None})
        if self.fails("LIST-004"):
            rows = []
        is_empty = not rows and self.fails("LIST-002")
        return {"sessions": [{"sessionId": "x", "cwd": "/"}] if is_empty else rows}

    async def _close(self, params: dict[str, Any]) -> Any:
        id = params["sessionId"]
        if self.fails("CLOSE-001") and id not in self.turns and not self.stored[id]["log"]:
            raise Refused(-32603, "no")
        if id in self.turns and not self.fails("CLOSE-003"):
            self.turns[id].cancel()
            await asyncio.wait([self.turns[id]])
        if not self.fails("CLOSE-002"):
            self.open.discard(id)
        return {}

    async def _delete(self, params: dict[str, Any]) -> Any:
        if params["sessionId"] not in self.stored and self.fails("DELETE-002"):
            raise Refused(-32002, "not found")
        if not self.fails("DELETE-001"):
            self.stored.pop(params["sessionId"], None)
        return {}

    async def _set_title(self, params: dict[str, Any]) -> Any:
        self._find(params)["title"] = params["title"]
        return {"title": params["title"]}

    async def _set_mode(self, params: dict[str, Any]) -> Any:
        known = [mode["id"] for mode in _MODES]
        if params["modeId"] not in known and not self.fails("MODE-003"):
            raise Refused(-32602, "modeId")
        if self.fails("MODE-002") and params["modeId"] == "auto":
            raise Refused(-32603, "no")
        self._find(params)["mode"] = params["modeId"]
        return {}

    async def _set_config_option(self, params: dict[str, Any]) -> Any:
        session = self._find(params)
        if params["configId"] == "model" and not self.fails("OPTION-002"):
            session["model"] = params["value"]
        elif params["configId"] != "model" and not self.fails("OPTION-003"):
            raise Refused(-32602, "configId")
        return {"configOptions": self._options(session)}

    # Turns.

    async def _prompt(self, params: dict[str, Any]) -> Any:
        if "sessionId" not in params:
            raise Refused(-32603 if self.fails("RPC-005") else -32602, "sessionId")
        if params["sessionId"] not in self.open and not self.fails("PROMPT-006"):
            raise Refused(-32002, "not found", {"sessionId": params["sessionId"]})
        if params["prompt"][0]["type"] != "text" and not self.fails("PROMPT-005"):
            raise Refused(-32602, "prompt")
        if params["sessionId"] not in self.stored:
            return {"stopReason": "end_turn", "messageId": "m"}
        return {"messageId": f"m{len(self.stored[params['sessionId']]['log'])}"}

    def _begin(self, id: str, text: str, request: Any) -> None:
        turn = asyncio.create_task(self._turn(id, text, request))
        self.turns[id] = turn
        self.tasks.add(turn)
        turn.add_done_callback(lambda _: self._ended(id))
        turn.add_done_callback(self.tasks.discard)

    def _ended(self, id: str) -> None:
        self.turns.pop(id, None)

    async def _turn(self, id: str, text: str, request: Any) -> None:
        session = self.stored[id]
        message_id = f"m{len(session['log'])}"
        session["log"].append(("user", message_id, text))
        reason = "end_turn"
        if self.version == 2:
            shown = "another" if self.fails("PROMPT-004") else message_id
            content = [{"type": "text", "text": text}]
            self.update(id, "user_message", messageId=shown, content=content)
            if not self.fails("STATE-001"):
                self.update(id, "state_update", state="running")
        named = "another" if self.fails("PROMPT-002") else id
        chunk = self._text("ready")
        if not self.fails("PROMPT-003"):
            self.update(named, "agent_message_chunk", **chunk)
        if self.fails("STREAM-001"):
            self.lines.put_nowait(b"debug output")
        if self.fails("STREAM-002"):
            self.update(id, "tool_call_update", title=17)
        if self.fails("STREAM-003"):
            params = {"sessionId": id, "path": "/etc/passwd"}
            self.send({"id": "r", "method": "fs/read_text_file", "params": params})
        session["log"].append(("agent", f"a{message_id}", "ready"))
        try:
            if text == "long":
                await asyncio.sleep(1 if self.fails("CLOSE-003") else 30)
        except asyncio.CancelledError:
            reason = "refusal" if self.fails("CANCEL-001") else "cancelled"
            session["was_cancelled"] = True
        if self.fails("CLOSE-003") and text == "long" and reason != "cancelled":
            reason = "max_tokens"
        if self.fails("PROMPT-001"):
            reason = "whatever"
        if self.fails("CANCEL-003") and session.get("was_cancelled"):
            reason = "cancelled"
        if self.version == 1:
            self.send({"id": request, "result": {"stopReason": reason}})
        else:
            self.update(id, "state_update", state="idle", stopReason=reason)
        if self.fails("PROMPT-003"):
            self.update(named, "agent_message_chunk", **chunk)
        if self.fails("CANCEL-002") and reason == "cancelled":
            self.update(id, "agent_message_chunk", **chunk)

    def _text(self, text: str) -> dict[str, Any]:
        block: dict[str, Any] = {"content": {"type": "text", "text": text}}
        return block if self.version == 1 else {"messageId": "a", **block}


async def serve_stdio(fault: str | None) -> None:
    """Serve one client on standard input and output."""
    agent = SimpleAgent({}, fault)

    async def write_lines() -> None:
        while True:
            sys.stdout.buffer.write(await agent.read_line() + b"\n")
            sys.stdout.buffer.flush()

    writer = asyncio.create_task(write_lines())
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        await agent.write(line)
    writer.cancel()


def simple_agent(
    fault: str | None = None, stored: dict[str, dict[str, Any]] | None = None
) -> Connect:
    """Return a function that connects to a new agent; all of them share their sessions."""
    stored = {} if stored is None else stored

    @asynccontextmanager
    async def connect() -> AsyncIterator[Connected]:
        agent = SimpleAgent(stored, fault)
        try:
            yield Connected(agent, agent.hang_up)
        finally:
            for task in list(agent.tasks):
                task.cancel()
            await asyncio.gather(*agent.tasks, return_exceptions=True)

    return connect


if __name__ == "__main__":
    asyncio.run(serve_stdio(sys.argv[1] if len(sys.argv) > 1 else None))

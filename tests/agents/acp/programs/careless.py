"""An agent with typical faults; the words of the prompt select them.

It announces version 2 but uses version 1. It stores its sessions in a file; with the argument
`forgetful` it does not load them.
"""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

SESSIONS_FILE = Path(sys.argv[1])
FAULTS = set(sys.argv[2:])
if "--sign-in" in FAULTS:
    print("signed in with", os.environ["FACE"])
    sys.exit()
sessions: dict[str, list[str]] = (
    json.loads(SESSIONS_FILE.read_text()) if SESSIONS_FILE.exists() else {}
)
lock = threading.Lock()
answers: dict[int, object] = {}
cancelled: set[str] = set()


MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "go", "name": "Go ahead"}],
}


USAGE = {"totalTokens": 7, "inputTokens": 3, "outputTokens": 4}
chosen: dict[str, object] = {"model": "small", "fast": False}
LOGINS = [
    {"id": "x", "name": "Sign in with your face"},
    {
        "type": "terminal",
        "id": "t",
        "name": "In a window",
        "args": ["--sign-in"],
        "env": {"FACE": "mine"},
    },
    {"type": "_odd", "id": "o", "name": "Odd"},
]


def options() -> list[object]:
    fast = {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": chosen["fast"]}
    return [model(str(chosen["model"])), fast, {"id": "odd", "type": "boolean"}]


def model(value: str) -> object:
    groups = [
        {
            "group": "g",
            "name": "All",
            "options": [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}],
        }
    ]
    return {
        "id": "model",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": value,
        "options": groups,
    }


def send(**message: object) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def send_update(session: str, **update: object) -> None:
    send(method="session/update", params={"sessionId": session, "update": update})


def send_text(session: str, text: str) -> None:
    block = {"type": "text", "text": text}
    send_update(session, sessionUpdate="agent_message_chunk", content=block)


def call(session: str, **fields: object) -> None:
    send_update(session, toolCallId="call-1", **fields)


def turn(id: object, session: str, text: str) -> None:
    sessions[session].append(text)
    if "forgetful" not in FAULTS:
        SESSIONS_FILE.write_text(json.dumps(sessions))
    command = text.partition("\n")[0].split()[-1]
    if command == "die":
        send_text(session, "going")
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    if command == "ignore_cancel":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        send_text(session, f"began {child.pid}")
        time.sleep(600)
    if command == "odd":
        send_update(session, sessionUpdate="agent_message_chunk", content={"type": "smell"})
        send_update(session, sessionUpdate="agent_message_chunk")
        send_update(session, sessionUpdate=7)
        send_update(session, sessionUpdate="plan", entries=["x", {"content": "a", "status": "?"}])
        send_update(session, sessionUpdate="tool_call_update", toolCallId="call-0", content="none")
        send_update(session, sessionUpdate="usage_update", used="many", size=None)
        send_update(
            "another-session", sessionUpdate="agent_message_chunk", content={"type": "text"}
        )
    if command == "tool":
        call(session, sessionUpdate="tool_call", title="", status="pending")
        call(
            session, sessionUpdate="tool_call_update", title="Edit", kind="edit", rawInput={"a": 1}
        )
        diff = {"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}
        call(session, sessionUpdate="tool_call_update", status="in_progress", content=[diff])
        call(session, sessionUpdate="tool_call_update", status="completed", rawOutput="fine")
        send_update(
            session,
            sessionUpdate="usage_update",
            used=9,
            size=99,
            cost={"amount": 0.5, "currency": "USD"},
        )
    if command == "ask":
        options = [
            {"optionId": "go", "name": "Go", "kind": "allow_once"},
            {"optionId": "odd", "name": "Odd", "kind": "whatever"},
            {"name": "no id"},
        ]
        request = {"sessionId": session, "toolCall": {"toolCallId": "call-1"}, "options": options}
        send(id=77, method="session/request_permission", params=request)
        while 77 not in answers:
            time.sleep(0.01)
        send_text(session, json.dumps(answers.pop(77)))
    if command == "terminal":
        content = [{"type": "terminal", "terminalId": "t1"}]
        call(session, sessionUpdate="tool_call", title="Run", status="pending", content=content)
        output = {"data": base64.b64encode("grün\n".encode()).decode()}
        send_update(session, sessionUpdate="terminal_update", terminalId="t1", output=output)
        send_update(
            session, sessionUpdate="terminal_output_chunk", terminalId="t1", data="bW9yZQ=="
        )
        send_update(session, sessionUpdate="terminal_output_chunk", terminalId="t1", data="?")
        call(session, sessionUpdate="tool_call_update", status="completed")
    if command == "seen":
        send_text(session, json.dumps(sessions[session]))
    while command == "wait" and session not in cancelled:
        time.sleep(0.01)
    reason = "cancelled" if session in cancelled else "end_turn"
    send(id=id, result={"stopReason": reason, "usage": USAGE})


def answer(id: object, method: str, params: dict[str, object]) -> object:
    session = str(params.get("sessionId"))
    if method == "initialize":
        capabilities = {"loadSession": True, "sessionCapabilities": {}}
        name = {"name": "careless", "version": "0"}
        return {
            "protocolVersion": 2,
            "agentCapabilities": capabilities,
            "agentInfo": name,
            "authMethods": LOGINS,
        }
    if method == "session/new" and "login" not in FAULTS:
        name = f"s{len(sessions)}"
        sessions[name] = []
        commands = [
            {"name": "plan", "description": "Plan it", "input": {"hint": "what"}},
            {"name": "two words", "description": "not a name"},
            7,
        ]
        threading.Timer(
            0.02,
            send_update,
            [name],
            {"sessionUpdate": "available_commands_update", "availableCommands": commands},
        ).start()
        return {"sessionId": name, "configOptions": options(), "modes": MODES}
    if method == "session/set_config_option":
        kind = "boolean" if isinstance(params["value"], bool) else None
        assert params.get("type") == kind
        chosen[str(params["configId"])] = params["value"]
        return {"configOptions": options()}
    if method == "authenticate" and params["methodId"] == "x":
        FAULTS.discard("login")
        return {}
    if method == "session/set_mode":
        return {}
    if method == "session/load":  # which it answers with yes, whatever it was
        for text in sessions.setdefault(session, []):
            send_update(
                session, sessionUpdate="user_message_chunk", content={"type": "text", "text": text}
            )
        return None
    if method == "session/prompt":
        cancelled.discard(session)
        text = "\n".join(block.get("text", "") for block in params["prompt"])
        threading.Thread(target=turn, args=(id, session, text), daemon=True).start()
        return answer
    return {"code": -32000 if "login" in FAULTS else -32601, "message": "no"}


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        answers[message["id"]] = message.get("result")
    elif message["method"] == "session/cancel":
        cancelled.add(message["params"]["sessionId"])
    elif "id" in message:
        result = answer(message["id"], message["method"], message.get("params") or {})
        if result is answer:
            continue
        kind = "error" if isinstance(result, dict) and "code" in result else "result"
        send(id=message["id"], **{kind: result})
os._exit(0)

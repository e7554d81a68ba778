"""An agent that sends requests to its client: a prompt is a JSON list of requests.

Each request is a method with its parameters, in which `$` stands for the id in the first answer. A
notification has the prefix `!`. The agent's message contains the answers. The first argument is the
protocol version. With the argument `patient`, the agent waits for answers after a cancel. With
`commands`, it sends its commands 0.3 s after it has opened a session. With `capable`, it accepts
sounds and additional directories, forks and resumes sessions, and has a mode, an option and the
unstable capabilities.
With `lists=ID`, it has a session with this id in the directory /p.
"""

import json
import sys
import threading
import time

VERSION = int(sys.argv[1]) if len(sys.argv) > 1 else 1
MARK = {"vendor": {"steering": True}}
CAPABLE: dict[int, dict[str, object]] = {
    1: {
        "agentCapabilities": {
            "promptCapabilities": {"audio": True},
            "sessionCapabilities": {
                "additionalDirectories": {},
                "resume": {},
                "fork": {},
                "close": {},
                "systemPrompt": {},
            },
            "mcpCapabilities": {"acp": True},
            "auth": {"status": {}},
            "providers": {},
            "_meta": MARK,
        },
        "_meta": MARK,
    },
    2: {
        "capabilities": {
            "session": {
                "prompt": {"audio": {}},
                "additionalDirectories": {},
                "fork": {},
                "systemPrompt": {},
                "mcp": {"stdio": {}, "acp": {}},
            },
            "auth": {"status": {}},
            "providers": {},
            "_meta": MARK,
        },
        "_meta": MARK,
    },
}
LISTED = [argument[6:] for argument in sys.argv if argument.startswith("lists=")]
if LISTED:
    CAPABLE[1]["agentCapabilities"]["sessionCapabilities"]["list"] = {}  # type: ignore[index]
request_count = 0
client: dict[str, object] = {}
received: dict[str, object] = {}  # the parameters of the last request of each method


def settings(speed: object = "slow") -> dict[str, object]:
    """Return the modes and options of a session."""
    choices = [{"value": name, "name": name} for name in ("slow", "fast")]
    option: dict[str, object] = {"name": "Speed", "type": "select", "currentValue": speed}
    option |= {"options": choices, "_meta": MARK}
    if VERSION == 2:
        return {"configOptions": [{"configId": "speed", **option}]}
    modes = [{"id": name, "name": name, "_meta": MARK} for name in ("ask", "auto")]
    return {
        "configOptions": [{"id": "speed", **option}],
        "modes": {"currentModeId": "ask", "availableModes": modes},
    }


def send(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(session: str, method: str, params: dict[str, object]) -> object:
    """Return the answer of the client, which sends nothing else except cancels."""
    global request_count
    request_count += 1
    id = f"mine-{request_count}"
    named = {} if method == "mcp/message" else {"sessionId": session}
    send(id=id, method=method, params={**named, **params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == id:
            return message.get("result", message.get("error"))
        if message.get("method") in ("tool_call/cancel", "terminal/cancel"):
            received[message["method"]] = message["params"]
            send(id=message["id"], result={})
        if message.get("method") == "session/cancel":
            received["session/cancel"] = message["params"]
        if message.get("method") == "session/cancel" and "patient" not in sys.argv:
            send(method="$/cancel_request", params={"requestId": id})
    sys.exit()


def turn(session: str, text: str) -> None:
    answers: list[object] = []
    for method, params in json.loads(text):
        if method == "received":
            answers.append(received)
            continue
        if method == "capabilities":
            answers.append(client)
            continue
        if method == "later":  # after the turn
            for update in params["updates"]:
                arguments = {"sessionId": session, "update": update}
                threading.Timer(
                    params["seconds"], send, (), {"method": "session/update", "params": arguments}
                ).start()
                time.sleep(0.01)
            continue
        if method == "count":  # of what it asked
            answers.append(request_count)
            continue
        if answers and isinstance(answers[0], dict):
            for name, value in params.items():
                params[name] = answers[0].get(name) if value == "$" else value
        if method == "child_update":
            send(method="session/update", params=params)
        elif method == "session/update":
            send(method=method, params={"sessionId": session, "update": params})
        elif method.startswith("!"):
            send(method=method[1:], params=params)
        else:
            answers.append(ask(session, method, params))
    block = {"type": "text", "text": json.dumps(answers)}
    update = {"sessionUpdate": "agent_message_chunk", "content": block, "messageId": "m"}
    send(method="session/update", params={"sessionId": session, "update": update})


def main() -> None:
    global client
    session_count = 0
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        result: dict[str, object] = {}
        received[method] = params
        if method == "session/prompt" and params["prompt"][0]["text"] == "fail":
            data = ["retry", 7]
            send(id=message["id"], error={"code": -32099, "message": "too busy", "data": data})
            continue
        if method == "initialize":
            name = {"name": "asking", "version": "0"}
            client = params["capabilities" if VERSION == 2 else "clientCapabilities"]
            result = {"protocolVersion": VERSION, "agentInfo": name, "agentCapabilities": {}}
            if VERSION == 2:
                result = {"protocolVersion": 2, "info": name, "capabilities": {"session": {}}}
            if "capable" in sys.argv:
                result |= CAPABLE[VERSION]
        elif method == "session/list":
            rows = [{"sessionId": id, "cwd": "/p", "_meta": MARK} for id in LISTED]
            result = {"sessions": rows}
        elif method in ("session/resume", "session/set_config_option") and "capable" in sys.argv:
            result = settings(params.get("value", "slow"))
            if method == "session/set_config_option":
                result.pop("modes", None)
        elif method in ("session/new", "session/fork"):
            session_count += 1
            result = {"sessionId": f"s{session_count}"}
            if "capable" in sys.argv:
                result |= settings()
            if "commands" in sys.argv:
                command: dict[str, object] = {"name": "go", "description": "Continue"}
                if VERSION == 2:
                    command["type"] = "command"
                update = {"sessionUpdate": "available_commands_update"}
                arguments = {
                    "sessionId": f"s{session_count}",
                    "update": {**update, "availableCommands": [command]},
                }
                threading.Timer(
                    0.3, send, (), {"method": "session/update", "params": arguments}
                ).start()
        elif method == "auth/status":
            result = {"state": "authenticated", "accounts": [{"label": "Max"}]}
        elif method == "providers/list":
            result = {"providers": [{"providerId": "main", "supported": [], "required": True}]}
        elif method == "_vendor/echo":
            result = {"heard": params}
        elif method == "session/prompt" and VERSION == 1:
            turn(params["sessionId"], params["prompt"][0]["text"])
            result = {"stopReason": "end_turn"}
        elif method == "session/prompt":
            prompt = {"messageId": "u", "content": params["prompt"]}
            update = {"sessionUpdate": "user_message", **prompt}
            params_of_update = {"sessionId": params["sessionId"], "update": update}
            send(method="session/update", params=params_of_update)
            send(id=message["id"], result={"messageId": "u"})
            turn(params["sessionId"], params["prompt"][0]["text"])
            idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
            send(method="session/update", params={"sessionId": params["sessionId"], "update": idle})
            continue
        if "id" in message:
            if method.startswith("session/") and params.get("_meta"):
                result["_meta"] = {"heard": params["_meta"]}
            send(id=message["id"], result=result)


main()

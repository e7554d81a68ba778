"""An agent of protocol version 2 that needs a second to end a cancelled turn."""

import json
import os
import sys
import threading


def send(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def send_update(**update: object) -> None:
    send(method="session/update", params={"sessionId": "one", "update": update})


def end_turn(reason: str) -> None:
    send_update(sessionUpdate="state_update", state="idle", stopReason=reason)


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        info = {"name": "late", "version": "0"}
        result = {"protocolVersion": 2, "info": info, "capabilities": {"session": {}}}
        send(id=message["id"], result=result)
    elif method == "session/new":
        send(id=message["id"], result={"sessionId": "one"})
    elif method == "session/prompt":
        send_update(sessionUpdate="state_update", state="running")
        text = params["prompt"][0]["text"]
        block = {"type": "text", "text": f"{text} {os.getpid()}"}
        send_update(sessionUpdate="agent_message_chunk", messageId=text, content=block)
        send(id=message["id"], result={"messageId": "m"})
        if text != "wait":
            end_turn("end_turn")
    elif method == "session/cancel":
        threading.Timer(1.0, end_turn, ["cancelled"]).start()
    elif "id" in message:
        send(id=message["id"], result={})

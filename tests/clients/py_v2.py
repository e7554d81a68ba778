"""The official Python client of version 2: the whole cycle, or one session made or read."""

import asyncio
import json
from typing import Any

from acp.experimental import v2
from acp.experimental.v2 import schema
from acp.transports import spawn_stdio_transport
from py_common import (
    COMMAND,
    CWD,
    LIST_CWD,
    REMOTE,
    SCRIPT,
    SESSIONS,
    TASK,
    Conversation,
    Report,
    dumped,
    main,
    refusal,
    remote_transport,
)


class Client:
    """The client methods that the SDK calls."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.updates: list[dict[str, Any]] = []
        self.permission_requests = 0

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(dumped(update))
        self.conversation.add(self.updates[-1])

    async def request_permission(self, **request: Any) -> schema.RequestPermissionResponse:
        self.permission_requests += 1
        outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
        return schema.RequestPermissionResponse.model_validate(outcome)

    async def rested(self, after: int) -> str:
        """Return how the turn ended that began at this index of the updates."""
        while True:
            for update in self.updates[after:]:
                if update.get("state") == "idle" and "stopReason" in update:
                    return str(update["stopReason"])
            await asyncio.sleep(0.01)


def text(words: str) -> Any:
    return [schema.TextContentBlock(type="text", text=words)]


async def make(agent: Any, client: Client) -> tuple[str, str]:
    id = (await agent.new_session(cwd=CWD)).session_id
    await agent.prompt(session_id=id, prompt=text(SCRIPT))
    return id, await client.rested(0)


async def replayed(agent: Any, client: Client, id: str) -> list[list[Any]]:
    client.conversation = Conversation()
    before = len(client.updates)
    start = schema.ReplayFromStartVariant(type="start")
    await agent.resume_session(session_id=id, cwd=CWD, replay_from=start)
    while "state" not in client.updates[-1] or len(client.updates) == before:
        await asyncio.sleep(0.01)
    return client.conversation.all()


async def cycle(agent: Any, client: Client, report: Report) -> None:
    report["empty"] = dumped(await agent.list_sessions())["sessions"]
    id, report["stopReason"] = await make(agent, client)
    report |= {
        "session": id,
        "asked": client.permission_requests,
        "live": client.conversation.all(),
    }
    report["listed"] = dumped(await agent.list_sessions(**LIST_CWD))["sessions"]
    report["elsewhere"] = dumped(await agent.list_sessions(cwd="/nowhere"))["sessions"]
    report["badCursor"] = await refusal(agent.list_sessions(cursor="nonsense"))

    options = await agent.set_config_option("mode", id, "plan", type="id")
    report["mode"] = dumped(options)["configOptions"][0]["currentValue"]

    before = len(client.updates)
    await agent.prompt(session_id=id, prompt=text("/wait 60"))
    prompt = asyncio.create_task(refusal(agent.prompt(session_id=id, prompt=text("/say never"))))
    await asyncio.sleep(0.2)
    await agent.cancel_session(session_id=id)
    report["cancelled"] = await client.rested(before)
    report["held"] = await prompt

    await agent.close_session(session_id=id)
    report["closed"] = await refusal(agent.prompt(session_id=id, prompt=text("no")))
    report["loaded"] = await replayed(agent, client, id)
    await agent.close_session(session_id=id)
    before = len(client.updates)
    await agent.resume_session(session_id=id, cwd=CWD)
    report["resumed"] = sum("messageId" in update for update in client.updates[before:])
    fork = (await agent.fork_session(session_id=id, cwd=CWD)).session_id
    report["forked"] = fork != id
    for session in (fork, id):
        await agent.delete_session(session_id=session)
    report["left"] = dumped(await agent.list_sessions())["sessions"]
    report["deleted"] = await refusal(agent.resume_session(session_id=id, cwd=CWD))
    if not REMOTE:
        await agent.logout()
        report["loggedOut"] = await refusal(agent.new_session(cwd=CWD))
        await agent.login(method_id="segue-local")
    report["unknown"] = await refusal(agent.send_extension_request("_segue/nothing", {}))


async def work() -> Report:
    client = Client()
    if REMOTE:
        report = await run(v2.connect_to_agent(client, await remote_transport()), client)
        return {**report, "exit": 0}
    async with spawn_stdio_transport(*json.loads(COMMAND)) as (reader, writer, process):
        report = await run(v2.connect_to_agent(client, writer, reader), client)
    return {**report, "exit": process.returncode}


async def run(agent: Any, client: Client) -> Report:
    info = schema.Implementation(name="segue-tests", version="1")
    greeting = await agent.initialize(protocol_version=2, info=info)
    report: Report = {"version": greeting.protocol_version, "agent": greeting.info.name}
    if TASK == "make":
        report["session"], _ = await make(agent, client)
    elif TASK == "read":
        report["said"] = [await replayed(agent, client, id) for id in SESSIONS]
    else:
        await cycle(agent, client, report)
    await agent.close()
    return report


main(work)

"""The official Python client of version 1: the whole cycle, or one session made or read."""

import asyncio
import json
from typing import Any

import acp
from acp.schema import AllowedOutcome, RequestPermissionResponse, TextContentBlock
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
        self.updates = 0
        self.permission_requests = 0

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates += 1
        self.conversation.add(dumped(update))

    async def request_permission(self, **request: Any) -> RequestPermissionResponse:
        self.permission_requests += 1
        outcome = AllowedOutcome(outcome="selected", option_id="allow")
        return RequestPermissionResponse(outcome=outcome)


def text(words: str) -> list[TextContentBlock]:
    return [TextContentBlock(type="text", text=words)]


async def settled(client: Client) -> None:
    """Until the SDK has handed on every update that came before: it answers in no order."""
    before = -1
    while before != client.updates:
        before = client.updates
        await asyncio.sleep(0.2)


async def make(agent: Any, client: Client) -> tuple[str, str]:
    id = (await agent.new_session(cwd=CWD)).session_id
    turn = await agent.prompt(session_id=id, prompt=text(SCRIPT))
    await settled(client)
    return id, turn.stop_reason


async def loaded(agent: Any, client: Client, id: str) -> list[list[Any]]:
    client.conversation = Conversation()
    await agent.load_session(cwd=CWD, session_id=id)
    await settled(client)
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

    options = await agent.set_config_option(session_id=id, config_id="mode", value="plan")
    report["mode"] = dumped(options)["configOptions"][0]["currentValue"]
    await agent.set_session_mode(session_id=id, mode_id="default")

    slow = asyncio.create_task(agent.prompt(session_id=id, prompt=text("/wait 60")))
    await asyncio.sleep(0.2)
    await agent.cancel(session_id=id)
    report["cancelled"] = (await slow).stop_reason

    await agent.close_session(session_id=id)
    report["closed"] = await refusal(agent.prompt(session_id=id, prompt=text("no")))
    report["loaded"] = await loaded(agent, client, id)
    await agent.close_session(session_id=id)
    before = client.updates
    await agent.resume_session(cwd=CWD, session_id=id)
    await settled(client)
    report["resumed"] = client.updates - before
    fork = (await agent.fork_session(cwd=CWD, session_id=id)).session_id
    report["forked"] = fork != id
    if hasattr(agent, "delete_session"):
        for session in (fork, id):
            await agent.delete_session(session_id=session)
        report["left"] = dumped(await agent.list_sessions())["sessions"]
        report["deleted"] = await refusal(agent.load_session(cwd=CWD, session_id=id))
        if not REMOTE:
            await agent.logout()
            report["loggedOut"] = await refusal(agent.new_session(cwd=CWD))
            await agent.authenticate(method_id="segue-local")
    report["unknown"] = await refusal(agent.ext_method("segue/nothing", {}))


async def work() -> Report:
    client = Client()
    unstable = {"use_unstable_protocol": True}
    if REMOTE:
        agent = acp.connect_to_agent(client, await remote_transport(), **unstable)
        report = await run(agent, client)
        await agent.close()
        return {**report, "exit": 0}
    command = json.loads(COMMAND)
    async with acp.spawn_agent_process(client, *command, **unstable) as (agent, process):
        report = await run(agent, client)
    return {**report, "exit": process.returncode}


async def run(agent: Any, client: Client) -> Report:
    greeting = await agent.initialize(protocol_version=1)
    report = {"version": greeting.protocol_version, "agent": greeting.agent_info.name}
    if TASK == "make":
        report["session"], _ = await make(agent, client)
    elif TASK == "read":
        report["said"] = [await loaded(agent, client, id) for id in SESSIONS]
    else:
        await cycle(agent, client, report)
    return report


main(work)

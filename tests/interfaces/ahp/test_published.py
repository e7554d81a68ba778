"""The protocol's own types, reducers and cases, and what the server sends and accepts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from segue.interfaces.ahp.protocol import ROOT, chat_uri, session_uri
from tests.interfaces.ahp.published import (
    NotPublished,
    PublishedTypes,
    published_types,
    without_error_parts,
)
from tests.interfaces.ahp.test_ahp import create, running, state_of
from tests.interfaces.ahp.test_questions import ANSWERS, Asker
from tests.interfaces.ahp.test_settings import Delegating


@pytest.fixture
def types() -> PublishedTypes:
    try:
        return published_types()
    except NotPublished as error:
        pytest.skip(str(error))


ENDS = ("chat/turnComplete", "chat/turnCancelled", "chat/error")


def shown(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a chat shows, without the time that a client sets itself."""
    return {name: value for name, value in state.items() if name != "modifiedAt"}


def test_published_types_find_a_wrong_message(types: PublishedTypes) -> None:
    types.check_command("ping", "result", None)
    for wrong in ({"items": [{"title": "A"}]}, {}):
        with pytest.raises(ValueError, match="listSessions result"):
            types.check_command("listSessions", "result", wrong)
    removed = {"channel": ROOT, "session": "segue:/x"}
    types.check_notification("root/sessionRemoved", removed, of_server=True)
    with pytest.raises(ValueError, match="action params"):
        types.check_notification("action", {"channel": ROOT}, of_server=True)


@pytest.mark.parametrize(
    "prompt",
    [
        "/think Weeks\n/say One\n/say Two",
        "/tool read {}\n/say Done",
        "/ask May I?",
        "/wait 600",
        "/fail It broke",
        "question",
        "delegate",
    ],
)
async def test_clients_compute_the_state_that_the_server_has(
    tmp_path: Path, types: PublishedTypes, prompt: str
) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        delegating = Delegating()
        delegating.may_finish.set()
        if not prompt.startswith("/"):
            agent: Any = delegating if prompt == "delegate" else Asker()
            hub.agent_registry.register("default", lambda _: agent)
        session = await create(hub)
        chat = chat_uri(session.id)
        await client.initialize()
        before = await state_of(client, chat)
        turn_id = await client.prompt(chat, prompt)
        if prompt == "/wait 600":
            await client.wait_for_action("chat/turnStarted", turnId=turn_id)
            await client.dispatch(chat, "chat/turnCancelled", turnId=turn_id, duration=1)
        elif prompt == "/ask May I?":
            asked = await client.wait_for_action("chat/toolCallReady")
            answer = {"approved": True, "confirmed": "user-action"}
            call = {"turnId": turn_id, "toolCallId": asked["action"]["toolCallId"]}
            await client.dispatch(chat, "chat/toolCallConfirmed", **call, **answer)
        elif prompt == "question":
            asked = await client.wait_for_action("chat/inputRequested")
            answer = {"requestId": asked["action"]["request"]["id"], "response": "accept"}
            await client.dispatch(chat, "chat/inputCompleted", **answer, answers=ANSWERS)
        await client.wait_for(
            lambda message: (
                message.get("params", {}).get("action", {}).get("type") in ENDS
                and message["params"]["action"]["turnId"] == turn_id
            )
        )
        actions = client.actions(chat)
        reduced = types.reduce("chat", before, actions)
        state = await state_of(client, chat)
        if types.has_error_parts:
            for turn in state["turns"]:
                turn.pop("error", None)  # of older versions
        else:
            without_error_parts(state)
        for computed, stored in zip(reduced.pop("turns"), state.pop("turns"), strict=True):
            assert computed == stored
        assert shown(reduced) == shown(state)


async def test_published_actions_are_carried_out_or_refused(
    tmp_path: Path, types: PublishedTypes, caplog: pytest.LogCaptureFixture
) -> None:
    cases = [case for case in types.cases() if case["reducer"] in ("chat", "session", "root")]
    if not cases:
        pytest.skip("this copy of the published types has no cases")
    async with running(tmp_path) as (hub, server), server.connect() as client:
        session = await create(hub)
        channels = {
            "chat": chat_uri(session.id),
            "session": session_uri(session.id),
            "root": ROOT,
        }
        await client.initialize(*channels.values())
        with caplog.at_level(logging.WARNING, "segue.ahp"):
            for case in cases:
                for action in case["actions"]:
                    await client.send_action(channels[case["reducer"]], action)
            await client.request("ping")
        assert not caplog.records, caplog.text
        envelopes = [message["params"] for message in client.messages if "params" in message]
        reasons = {envelope.get("rejectionReason") for envelope in envelopes}
        assert "internal error" not in reasons and len(reasons) > 1

"""Checks of sessions: creating, opening, listing, closing and configuring them."""

from __future__ import annotations

import os
from typing import Any

from .peer import AgentError, CheckSkipped
from .session import Steps, check, delete_params, expect, is_absolute, message_kinds

_UNKNOWN = "01900000-0000-7000-8000-000000000000"


@check("NEW-001", "each new session has an id of its own")
async def _unique_ids(steps: Steps) -> None:
    ids = [await steps.new_id() for _ in range(3)]
    expect(all(ids) and len(set(ids)) == 3, f"the ids are {ids}")


@check("NEW-002", "a relative cwd is refused", level="should")
async def _relative_cwd(steps: Steps) -> None:
    await steps.new()
    await steps.peer.expect_error("session/new", {"cwd": "a/b", "mcpServers": []})


@check("NEW-003", "mcpServers may be left out", versions=(2,))
async def _no_servers(steps: Steps) -> None:
    await steps.new()
    await steps.call("session/new", {"cwd": steps.cwd})


@check("DIRS-001", "an absolute additional directory is accepted")
async def _directory(steps: Steps) -> None:
    steps.require("additionalDirectories")
    await steps.new(additionalDirectories=[os.path.dirname(steps.cwd) or "/"])


@check("DIRS-002", "a relative additional directory is refused with -32602")
async def _relative_directory(steps: Steps) -> None:
    steps.require("additionalDirectories")
    await steps.new()
    params = steps.setup(additionalDirectories=["a/b"])
    await steps.peer.expect_error("session/new", params, -32602)


@check("LIST-001", "each listed session has an id and an absolute cwd")
async def _rows(steps: Steps) -> None:
    steps.require("list")
    await steps.new()
    for row in await steps.list():
        expect(row.get("sessionId"), f"a row has no sessionId: {row}")
        expect(is_absolute(row.get("cwd")), f"cwd is {row.get('cwd')!r}")


@check("LIST-002", "the list of a directory without sessions is an empty array")
async def _empty_list(steps: Steps) -> None:
    steps.require("list")
    result = await steps.call("session/list", {"cwd": "/no/session/was/ever/here"})
    expect(result.get("sessions") == [], f"got {result.get('sessions')!r}")


@check("LIST-003", "the list of a directory has the sessions of that directory only")
async def _list_filter(steps: Steps) -> None:
    steps.require("list")
    await steps.prompted()
    others = {row["cwd"] for row in await steps.list(cwd=steps.cwd)} - {steps.cwd}
    real = {path for path in others if os.path.realpath(path) != os.path.realpath(steps.cwd)}
    expect(not real, f"got sessions of {sorted(real)}")


@check("LIST-004", "a session that was prompted is in the list")
async def _listed(steps: Steps) -> None:
    steps.require("list")
    session = await steps.prompted()
    ids = [row.get("sessionId") for row in await steps.list(cwd=steps.cwd)]
    if not ids and not (steps.has("load") or steps.has("delete")):
        raise CheckSkipped("the agent stores no sessions")
    expect(session in ids, f"{session} is not among {len(ids)} sessions")


@check("LIST-005", "an invalid cursor is refused", level="should")
async def _bad_cursor(steps: Steps) -> None:
    steps.require("list")
    await steps.peer.expect_error("session/list", {"cursor": "no-such-cursor"})


@check("LOAD-001", "session/load replays the conversation before its response", versions=(1,))
async def _load(steps: Steps) -> None:
    steps.require("load")
    session = await steps.prompted()
    await steps.close_if_possible(session)
    before = len(steps.peer.log)
    await steps.reopen(session, "load")
    answered = steps.peer.position("session/load", before)
    kinds = message_kinds(steps.peer.updates(before, answered))
    expect("user_message_chunk" in kinds, f"replayed {kinds or 'no messages'}")
    expect("agent_message_chunk" in kinds, f"replayed {kinds}, and no message of the agent")


@check("LOAD-002", "no message of the replay follows the response", versions=(1,))
async def _load_order(steps: Steps) -> None:
    steps.require("load")
    session = await steps.prompted()
    await steps.close_if_possible(session)
    before = len(steps.peer.log)
    await steps.reopen(session, "load")
    answered = steps.peer.position("session/load", before)
    await steps.peer.quiet()
    late = message_kinds(steps.peer.updates(answered))
    expect(not late, f"{late} came after the response")


@check("LOAD-003", "loading an unknown session fails", versions=(1,))
async def _load_unknown(steps: Steps) -> None:
    steps.require("load")
    await steps.new()
    await steps.peer.expect_error("session/load", steps.setup(sessionId=_UNKNOWN))


@check("RESUME-001", "session/resume sends no history before its response", versions=(1,))
async def _resume(steps: Steps) -> None:
    steps.require("resume")
    session = await steps.prompted()
    await steps.close_if_possible(session)
    before = len(steps.peer.log)
    await steps.call("session/resume", {"sessionId": session, "cwd": steps.cwd})
    answered = steps.peer.position("session/resume", before)
    kinds = message_kinds(steps.peer.updates(before, answered))
    expect(not kinds, f"replayed {kinds}")


@check("RESUME-002", "a current state_update precedes the response", versions=(2,))
async def _resume_state(steps: Steps) -> None:
    session = await _closed_session(steps)
    before = len(steps.peer.log)
    await steps.reopen(session, "resume")
    answered = steps.peer.position("session/resume", before)
    kinds = [update.kind for update in steps.peer.updates(before, answered)]
    expect("state_update" in kinds, f"got {kinds}")
    expect(not message_kinds(steps.peer.updates(before, answered)), f"replayed {kinds}")


@check("RESUME-003", "a replay keeps the ids of the messages", versions=(2,))
async def _resume_ids(steps: Steps) -> None:
    session = await steps.new_id()
    after = len(steps.peer.log)
    request = await steps.start(session)
    result = await steps.answer(request)
    await steps.finish(session, request, after)
    await steps.call("session/close", {"sessionId": session})
    await _resume_once(steps, session)
    before = len(steps.peer.log)
    await steps.reopen(session, "resume", replayFrom={"type": "start"})
    answered = steps.peer.position("session/resume", before)
    replayed = {
        update.body.get("messageId")
        for update in steps.peer.updates(before, answered)
        if update.kind.startswith("user_message")
    }
    expect(result.get("messageId") in replayed, f"{result} is not among {replayed}")


@check("RESUME-004", "nothing for the session follows the response to a resume", versions=(2,))
async def _resume_quiet(steps: Steps) -> None:
    session = await _closed_session(steps)
    before = len(steps.peer.log)
    await steps.reopen(session, "resume", replayFrom={"type": "start"})
    answered = steps.peer.position("session/resume", before)
    await steps.peer.quiet()
    late = [update.kind for update in steps.peer.updates(answered) if update.kind != "notice"]
    expect(not late, f"{late} came after the response")


@check("RESUME-005", "an unknown type of replayFrom is refused with -32602", versions=(2,))
async def _resume_from(steps: Steps) -> None:
    session = await _closed_session(steps)
    params = steps.setup(sessionId=session, replayFrom={"type": "no_such_type"})
    await steps.peer.expect_error("session/resume", params, -32602)


@check("RESUME-006", "resuming an unknown session is refused with -32002 and its id", versions=(2,))
async def _resume_unknown(steps: Steps) -> None:
    await steps.new()
    params = steps.setup(sessionId=_UNKNOWN)
    error = await steps.peer.expect_error("session/resume", params, -32002)
    data = error.data if isinstance(error.data, dict) else {}
    expect(data.get("sessionId") == _UNKNOWN, f"the error's data is {error.data!r}")


@check("CLOSE-001", "session/close succeeds")
async def _close(steps: Steps) -> None:
    steps.require("close")
    await steps.call("session/close", {"sessionId": await steps.new_id()})


@check("CLOSE-002", "a closed session cannot be prompted: -32002", versions=(2,))
async def _closed(steps: Steps) -> None:
    session = await steps.new_id()
    await steps.call("session/close", {"sessionId": session})
    params = {"sessionId": session, "prompt": [{"type": "text", "text": "hello"}]}
    await steps.peer.expect_error("session/prompt", params, -32002)


@check("DELETE-001", "a deleted session is not in the list")
async def _delete(steps: Steps) -> None:
    steps.require("delete")
    session = await steps.prompted()
    await steps.call("session/delete", delete_params(session))
    if steps.has("list"):
        ids = [row.get("sessionId") for row in await steps.list(cwd=steps.cwd)]
        expect(session not in ids, "the session is still listed")


@check("DELETE-002", "deleting an unknown session succeeds", level="should")
async def _delete_unknown(steps: Steps) -> None:
    steps.require("delete")
    await steps.new()
    await steps.call("session/delete", {"sessionId": _UNKNOWN})


@check("FORK-001", "a fork has another id than its parent")
async def _fork(steps: Steps) -> None:
    steps.require("fork")
    session = await steps.prompted()
    fork = await steps.reopen(session, "fork")
    expect(fork.get("sessionId") not in (None, session), f"got {fork.get('sessionId')!r}")


@check("TITLE-001", "session/set_title stores the title, and the list shows it")
async def _title(steps: Steps) -> None:
    steps.require("title")
    session = await steps.prompted()
    stored = await steps.call("session/set_title", {"sessionId": session, "title": "A new title"})
    expect(stored.get("title"), f"the response is {stored}")
    if steps.has("list"):
        rows = await steps.list(cwd=steps.cwd)
        titles = [row.get("title") for row in rows if row.get("sessionId") == session]
        expect(titles == [stored["title"]], f"the list has {titles}")


@check("MODE-001", "the current mode is one of the available modes", versions=(1,))
async def _mode(steps: Steps) -> None:
    modes = _modes(await steps.new())
    available = [mode.get("id") for mode in modes["availableModes"]]
    expect(modes["currentModeId"] in available, f"{modes['currentModeId']!r} is not in {available}")


@check("MODE-002", "session/set_mode accepts each available mode", versions=(1,))
async def _set_mode(steps: Steps) -> None:
    created = await steps.new()
    for mode in _modes(created)["availableModes"]:
        params = {"sessionId": created["sessionId"], "modeId": mode.get("id")}
        await steps.call("session/set_mode", params)


@check("MODE-003", "an unknown mode is refused", versions=(1,))
async def _unknown_mode(steps: Steps) -> None:
    created = await steps.new()
    _modes(created)
    params = {"sessionId": created["sessionId"], "modeId": "no such mode"}
    await steps.peer.expect_error("session/set_mode", params)


@check("OPTION-001", "the value of an option is one of its choices")
async def _options(steps: Steps) -> None:
    for option in _selections(steps, await steps.new()):
        values = _values(option)
        expect(option.get("currentValue") in values, f"{option.get('currentValue')!r}: {values}")


@check("OPTION-002", "session/set_config_option returns all options, with the new value")
async def _set_option(steps: Steps) -> None:
    created = await steps.new()
    field = "id" if steps.version == 1 else "configId"
    for option in _selections(steps, created):
        id, values = option[field], _values(option)
        params: dict[str, Any] = {"sessionId": created["sessionId"], "configId": id}
        params["value"] = next((v for v in values if v != option["currentValue"]), values[0])
        if steps.version == 2:
            params["type"] = "id"
        result = await steps.call("session/set_config_option", params)
        after = {option.get(field): option for option in result.get("configOptions") or ()}
        expect(id in after, f"the result has no option {id!r}")
        value = after[id].get("currentValue")
        expect(value == params["value"], f"{id} is {value!r}, not {params['value']!r}")


@check("OPTION-003", "an unknown option is refused")
async def _unknown_option(steps: Steps) -> None:
    created = await steps.new()
    _selections(steps, created)
    params = {"sessionId": created["sessionId"], "configId": "no such option", "value": "x"}
    if steps.version == 2:
        params["type"] = "id"
    await steps.peer.expect_error("session/set_config_option", params)


@check("OPTION-004", "a client that does not support switches gets none", versions=(1,))
async def _switches(steps: Steps) -> None:
    options = (await steps.new()).get("configOptions") or ()
    switches = [option.get("id") for option in options if option.get("type") == "boolean"]
    expect(not switches, f"got {switches}")


async def _closed_session(steps: Steps) -> str:
    """Return a session with a turn that was closed and can be resumed."""
    session = await steps.prompted()
    await steps.call("session/close", {"sessionId": session})
    await _resume_once(steps, session)
    return session


async def _resume_once(steps: Steps, session: str) -> None:
    """Resume a session and close it; skip the check if the agent stores no sessions."""
    try:
        await steps.peer.request("session/resume", steps.setup(sessionId=session))
    except AgentError as error:
        if error.code == -32002 and not (steps.has("load") or steps.has("delete")):
            raise CheckSkipped("the agent stores no sessions") from None
    await steps.call("session/close", {"sessionId": session})


def _modes(created: dict[str, Any]) -> dict[str, Any]:
    modes = created.get("modes")
    if not isinstance(modes, dict):
        raise CheckSkipped("the agent has no modes")
    return {"currentModeId": modes.get("currentModeId"), "availableModes": _dicts(modes)}


def _dicts(modes: dict[str, Any]) -> list[dict[str, Any]]:
    return [mode for mode in modes.get("availableModes") or () if isinstance(mode, dict)]


def _selections(steps: Steps, created: dict[str, Any]) -> list[dict[str, Any]]:
    options = [
        option
        for option in created.get("configOptions") or ()
        if isinstance(option, dict) and option.get("type") == "select"
    ]
    if not options:
        raise CheckSkipped("the agent has no options")
    return options


def _values(option: dict[str, Any]) -> list[Any]:
    """Return the values of an option, also of one with groups."""
    values: list[Any] = []
    for choice in option.get("options") or ():
        values += _values(choice) if "options" in choice else [choice.get("value")]
    return values

"""One test a requirement of the protocol's conformance kit, named by the requirement.

Each is in our own words; the kit's number stands beside it. `LISTED` is the whole list of what
concerns sessions, and the last test says that none is missing. The harness judges every message by
the official schema as it comes, so a test says only what a schema cannot.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

from tests.interfaces.acp.harness import Client, Update, is_rest
from tests.interfaces.acp.testbed import House

F = TypeVar("F", bound=Callable[..., Any])


def numbered(area: str, numbers: str) -> set[str]:
    first, _, last = numbers.partition("-")
    return {f"{area}-{number:03}" for number in range(int(first), int(last or first) + 1)}


LISTED = {
    1: numbered("INIT", "1-4")
    | numbered("SESSION", "1-2")
    | numbered("PROMPT", "1-2")
    | numbered("CANCEL", "1-2")
    | numbered("LOAD", "1-3")
    | numbered("RESUME", "1-2")
    | numbered("LIST", "1-2")
    | numbered("DELETE", "1-2")
    | numbered("CLOSE", "1-2")
    | numbered("ADDDIRS", "1")
    | numbered("MODES", "1-2")
    | numbered("CONFIG", "1-3")
    | numbered("PROMPTCAP", "1-3")
    | numbered("AUTH", "2")
    | numbered("CLIENTCAP", "1-3")
    | numbered("EXT", "1")
    | numbered("JSONRPC", "1-5")
    | numbered("TRANSPORT", "1-2")
    | numbered("SHUTDOWN", "1"),
    2: numbered("INIT", "201-204")
    | numbered("SESSION", "203")
    | numbered("PROMPT", "201")
    | numbered("PROMPT", "203")
    | numbered("STATE", "201-203")
    | numbered("RESUME", "201-205")
    | numbered("LIST", "201-204")
    | numbered("CLOSE", "201-202")
    | numbered("DELETE", "201-203")
    | numbered("ADDDIRS", "201-202")
    | numbered("CONFIG", "201-206")
    | numbered("CANCEL", "201-208")
    | numbered("AUTH", "201-207")
    | numbered("PATCH", "201-209")
    | numbered("ENUM", "201-203")
    | numbered("META", "201")
    # Batches were in drafts that the kit still knows; today's protocol has none.
    | numbered("BATCH", "201-208"),
}
HELD: dict[int, set[str]] = {1: set(), 2: set()}
SCRIPT = (
    "/think hm\n/say hi there\n/tool ls a\n/plan one; > two; x three\n/ask May I?\n/usage 10 20"
)
INFO = {"info": {"name": "conformance", "version": "1"}}


def holds(version: int, *requirements: str) -> Callable[[F], F]:
    def mark(test: F) -> F:
        for requirement in requirements:
            assert requirement in LISTED[version], requirement
            HELD[version].add(requirement)
        return test

    return mark


async def quiet(client: Client) -> int:
    """Whatever is still under way has come when this returns; where the log stands."""
    await client.ask("session/list")
    await asyncio.sleep(0.1)
    await client.ask("session/list")
    return len(client.log)


def methods_asked(client: Client) -> set[str]:
    # The harness refuses any other request than a permission question.
    return {item for item in client.log if isinstance(item, str)}


async def begun(client: Client) -> str:
    """A session whose turn runs until it is stopped."""
    id = await client.new("/")
    await client.begin(id, "/say begun\n/wait 60")
    return id


# Version 1: the connection.


@holds(1, "INIT-001", "INIT-002", "INIT-004")
async def test_initialize_succeeds_with_version_one_and_says_who_answers(house: House) -> None:
    async with house.inside(1, greet=False) as client:
        result = await client.initialize()
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"] and result["agentInfo"]["version"]


@holds(1, "INIT-003")
async def test_a_version_that_nobody_speaks_is_answered_and_not_echoed(house: House) -> None:
    async with house.inside(2, greet=False) as client:
        asked = {"protocolVersion": 65535, "clientCapabilities": {}, **INFO}
        assert (await client.ask("initialize", asked))["protocolVersion"] == 2


@holds(1, "AUTH-002")
async def test_no_terminal_method_for_a_client_without_terminals(house: House) -> None:
    async with house.inside(1, greet=False) as client:
        methods = (await client.initialize())["authMethods"]
        assert methods and all(method.get("type") != "terminal" for method in methods)


@holds(1, "EXT-001", "JSONRPC-002", "JSONRPC-004", "JSONRPC-005")
async def test_an_unknown_method_is_refused_and_the_connection_goes_on(house: House) -> None:
    async with house.inside(1) as client:
        for method in ("_example.org/custom", "session/nonsense", "nonsense"):
            refused = await client.refusal(method, {})
            assert refused.code == -32601
            assert refused.message and "\n" not in refused.message
        assert (await client.ask("session/list"))["sessions"] == []


@holds(1, "JSONRPC-001")
async def test_an_answer_carries_the_id_of_its_request(house: House) -> None:
    async with house.inside(1) as client:
        for id in (7, "seven", 0, "", -1):
            await client.answer(await client.post("session/list", {}, id=id))


@holds(1, "JSONRPC-003")
async def test_a_notification_is_never_answered(house: House) -> None:
    async with house.inside(1) as client:
        for method in ("session/cancel", "_custom", "session/list", "nonsense"):
            await client.tell(method, {"sessionId": "nothing"})
        await quiet(client)
        assert client.log == ["initialize", "session/list", "session/list"]
        assert client.refusals == []


@holds(1, "TRANSPORT-001", "TRANSPORT-002", "SHUTDOWN-001")
async def test_standard_output_is_lines_of_utf_8_json_until_input_ends(house: House) -> None:
    # The harness parses each line as one message; `child` waits for the end, and wants code 0.
    async with house.child(1) as (client, process):
        id = await client.new("/")
        await client.run(id, "/say snow ☃ \u2028 and \x00 and 🦆")
    assert process.returncode == 0


# Version 1: sessions.


@holds(1, "SESSION-001", "SESSION-002")
async def test_every_new_session_has_an_id_that_no_other_has(house: House) -> None:
    async with house.inside(1) as client:
        ids = [await client.new("/") for _ in range(5)]
        assert all(ids) and len(set(ids)) == 5


@holds(1, "PROMPT-001", "PROMPT-002")
async def test_a_prompt_ends_with_a_reason_and_all_updates_are_its_session_s(house: House) -> None:
    async with house.inside(1) as client:
        await client.new("/")
        id = await client.new("/")
        assert await client.run(id, SCRIPT) == "end_turn"
        assert {update.session for update in client.updates()} == {id}


@holds(1, "PROMPTCAP-001", "PROMPTCAP-002", "PROMPTCAP-003")
async def test_a_prompt_takes_every_content_that_is_advertised(house: House) -> None:
    async with house.inside(1, greet=False) as client:
        capabilities = (await client.initialize())["agentCapabilities"]["promptCapabilities"]
        assert capabilities == {"image": True, "audio": True, "embeddedContext": True}
        id = await client.new("/")
        for block in (
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
        ):
            prompt = [{"type": "text", "text": "look"}, block]
            result = await client.ask("session/prompt", {"sessionId": id, "prompt": prompt})
            assert result == {"stopReason": "end_turn"}


@holds(1, "CLIENTCAP-001", "CLIENTCAP-002", "CLIENTCAP-003")
async def test_a_client_is_asked_for_nothing_that_it_did_not_offer(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new(house.directory)
        await client.run(id, f"{SCRIPT}\n/write a.txt b\n/read a.txt")
        asked = methods_asked(client) - {"initialize", "session/new", "session/prompt"}
        assert asked == {"session/request_permission"}


@holds(1, "CANCEL-001", "CANCEL-002")
async def test_a_cancelled_prompt_is_answered_so_and_nothing_follows(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        request = await client.begin(id, "/say begun\n/tool ls a\n/wait 60")
        await client.tell("session/cancel", {"sessionId": id})
        assert await client.answer(request) == {"stopReason": "cancelled"}
        answered = client.log.index("session/prompt")
        await quiet(client)
        assert client.updates(answered) == []


@holds(1, "LOAD-001", "LOAD-002", "LOAD-003")
async def test_a_load_answers_with_an_object_after_all_updates(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        await client.run(id, SCRIPT)
        await client.ask("session/close", {"sessionId": id})
        client.log.clear()
        assert isinstance(await client.open("load", id, "/"), dict)
        answered = client.log.index("session/load")
        await quiet(client)
        assert client.updates(0, answered) and not client.updates(answered)


@holds(1, "RESUME-001", "RESUME-002")
async def test_a_resume_needs_no_servers_and_brings_no_history(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        await client.run(id, SCRIPT)
        await client.ask("session/close", {"sessionId": id})
        client.log.clear()
        await client.ask("session/resume", {"sessionId": id, "cwd": "/"})
        assert client.updates() == []


@holds(1, "LIST-001", "LIST-002")
async def test_a_list_is_an_array_also_where_there_is_nothing(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        assert [row["sessionId"] for row in (await client.ask("session/list", {}))["sessions"]] == [
            id
        ]
        assert await client.ask("session/list", {"cwd": "/nowhere/at/all"}) == {"sessions": []}


@holds(1, "DELETE-001", "DELETE-002")
async def test_a_session_can_be_deleted_and_what_is_gone_too(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        for gone in (id, id, "never-created"):
            assert await client.ask("session/delete", {"sessionId": gone}) == {}


@holds(1, "CLOSE-001", "CLOSE-002")
async def test_closing_cancels_the_prompt_that_runs(house: House) -> None:
    async with house.inside(1) as client:
        idle = await client.new("/")
        assert await client.ask("session/close", {"sessionId": idle}) == {}
        id = await client.new("/")
        request = await client.begin(id, "/say begun\n/wait 60")
        assert await client.ask("session/close", {"sessionId": id}) == {}
        assert await client.answer(request) == {"stopReason": "cancelled"}


@holds(1, "ADDDIRS-001")
async def test_an_absolute_directory_can_be_added(house: House) -> None:
    async with house.inside(1) as client:
        await client.new("/", additionalDirectories=[str(house.directory)])


@holds(1, "MODES-001", "MODES-002")
async def test_the_mode_is_one_of_those_there_are_and_can_be_another(house: House) -> None:
    async with house.inside(1) as client:
        result = await client.ask("session/new", {"cwd": "/", "mcpServers": []})
        modes = [mode["id"] for mode in result["modes"]["availableModes"]]
        current = result["modes"]["currentModeId"]
        assert current in modes
        other = next(mode for mode in modes if mode != current)
        params = {"sessionId": result["sessionId"], "modeId": other}
        assert await client.ask("session/set_mode", params) == {}
        told = [update.body for update in client.updates() if update.kind == "current_mode_update"]
        assert [body["currentModeId"] for body in told] == [other]


def options(result: Any, name: str) -> dict[str, Any]:
    """The options by id, each with a value that it has."""
    found = {option[name]: option for option in result["configOptions"]}
    assert found
    for option in found.values():
        assert option["type"] == "select"  # a boolean is only for clients that take one
        assert option["currentValue"] in [each["value"] for each in option["options"]]
    return found


@holds(1, "CONFIG-001", "CONFIG-002", "CONFIG-003")
async def test_options_have_values_that_they_offer_and_setting_one_tells_all(house: House) -> None:
    async with house.inside(1) as client:
        result = await client.ask("session/new", {"cwd": "/", "mcpServers": []})
        before = options(result, "id")
        for id, option in before.items():
            value = option["options"][-1]["value"]
            params = {"sessionId": result["sessionId"], "configId": id, "value": value}
            after = options(await client.ask("session/set_config_option", params), "id")
            assert after.keys() == before.keys() and after[id]["currentValue"] == value


# Version 2: the connection.


@holds(2, "INIT-201", "INIT-202")
async def test_the_version_asked_for_is_the_one_that_is_spoken(house: House) -> None:
    for asked, spoken in ((2, 2), (65535, 2), (1, 1)):
        async with house.inside(spoken, greet=False) as client:
            result = await client.ask("initialize", {"protocolVersion": asked, **INFO})
            assert result["protocolVersion"] == spoken


def markers(value: Any) -> list[Any]:
    """Everything inside of the capabilities that is no object."""
    if not isinstance(value, dict):
        return [value]
    return [found for name, held in value.items() if name != "_meta" for found in markers(held)]


@holds(2, "INIT-203", "INIT-204")
async def test_it_says_who_answers_and_every_marker_is_an_object(house: House) -> None:
    async with house.inside(2, greet=False) as client:
        result = await client.initialize()
        assert result["info"]["name"] and result["info"]["version"]
        assert result["capabilities"]["session"] and markers(result["capabilities"]) == []


@holds(2, "AUTH-201", "AUTH-202", "AUTH-206", "AUTH-207")
async def test_methods_are_of_known_kinds_and_the_terminal_s_only_for_terminals(
    house: House,
) -> None:
    for told, kinds in ((None, {"agent"}), ({"auth": {"terminal": {}}}, {"agent", "terminal"})):
        async with house.inside(2, greet=False) as client:
            methods = (await client.initialize(**({"capabilities": told} if told else {})))[
                "authMethods"
            ]
            assert {method["type"] for method in methods} == kinds
            assert len({method["methodId"] for method in methods}) == len(methods)
            for method in methods:
                assert all(isinstance(word, str) for word in method.get("args", []))
                assert "env" not in method


@holds(2, "AUTH-203", "AUTH-204")
async def test_one_can_log_out_and_in_again(house: House) -> None:
    async with house.inside(2, greet=False) as client:
        (method,) = (await client.initialize())["authMethods"]
        assert await client.ask("auth/logout", {}) == {}
        assert await client.ask("auth/login", {"methodId": method["methodId"]}) == {}
        await client.new("/")


@holds(2, "AUTH-205")
async def test_where_nobody_can_log_in_nobody_has_to(house: House) -> None:
    program = ("-c", "import segue\nclass Mute:\n async def run(self, turn): return 'end_turn'\n"
               "segue.serve_acp(Mute(), persist=None)")  # fmt: skip
    async with house.child(2, program=program, greet=False) as (client, _):
        assert (await client.initialize())["authMethods"] == []
        await client.new("/")


@holds(2, *numbered("BATCH", "201-208"))
async def test_an_array_is_one_invalid_request_and_none_is_ever_sent(house: House) -> None:
    one = b'{"jsonrpc":"2.0","id":5,"method":"session/list"}'
    told = b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}'
    async with house.inside(2) as client:
        for array in (b"[]", b"[%b]" % one, b"[%b,%b]" % (one, told), b"[17,true,null]"):
            before = len(client.refusals)
            await client.raw(array + b"\n")
            await client.ask("session/list")
            assert [error["code"] for error in client.refusals[before:]] == [-32600]


# Version 2: sessions.


@holds(2, "SESSION-203")
async def test_servers_left_out_are_no_servers(house: House) -> None:
    async with house.inside(2) as client:
        for params in ({}, {"mcpServers": []}):
            result = await client.ask("session/new", {"cwd": "/", **params})
            assert await client.run(result["sessionId"], "/say hi") == "end_turn"


@holds(2, "PROMPT-201", "PROMPT-203", "PATCH-203")
async def test_a_prompt_s_answer_names_the_message_that_is_shown(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        seen = []
        for text in ("one", "two"):
            before = len(client.log)
            result = await client.ask("session/prompt", client.prompting(id, text))
            await client.until(is_rest, before)
            (shown,) = [u.body for u in client.updates(before) if u.kind == "user_message"]
            assert shown["messageId"] == result["messageId"] and shown["content"]
            seen.append(result["messageId"])
        assert all(seen) and len(set(seen)) == 2


def states(client: Client, after: int = 0) -> list[tuple[str, Any]]:
    return [
        (update.body["state"], update.body.get("stopReason"))
        for update in client.updates(after)
        if update.kind == "state_update"
    ]


@holds(2, "STATE-201", "STATE-202", "STATE-203")
async def test_a_turn_runs_and_then_rests_with_its_reason(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        before = len(client.log)
        await client.run(id, "/say hi")
        assert states(client, before) == [("running", None), ("idle", "end_turn")]


@holds(2, "RESUME-201", "RESUME-203")
async def test_a_resume_brings_the_state_and_no_history(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        await client.run(id, SCRIPT)
        await client.ask("session/close", {"sessionId": id})
        for params in ({}, {"replayFrom": None}):
            client.log.clear()
            await client.ask("session/resume", {"sessionId": id, "cwd": "/", **params})
            assert client.kinds() == ["session_info_update", "state_update"]


@holds(2, "RESUME-202", "RESUME-204", "RESUME-205")
async def test_a_replay_comes_before_the_answer_with_the_same_ids_and_whole_messages(
    house: House,
) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        own = (await client.ask("session/prompt", client.prompting(id, SCRIPT)))["messageId"]
        await client.until(is_rest)
        await client.ask("session/close", {"sessionId": id})
        client.log.clear()
        replayed = await client.replay(id, "/")
        answered = client.log.index("session/resume")
        assert (await quiet(client)) == answered + 3 and not client.updates(answered)
        assert own in [u.body["messageId"] for u in replayed if u.kind == "user_message"]
        assert not [u for u in replayed if u.kind.endswith("_chunk")]


@holds(2, "LIST-201", "LIST-202", "LIST-203", "LIST-204")
async def test_a_list_of_a_directory_spells_it_as_it_was_asked_for(house: House) -> None:
    spelt = f"{house.directory}/../{house.directory.name}"
    async with house.inside(2) as client:
        await client.new(house.directory)
        await client.new("/")
        rows = (await client.ask("session/list", {}))["sessions"]
        assert len(rows) == 2 and all(os.path.isabs(row["cwd"]) for row in rows)
        (row,) = (await client.ask("session/list", {"cwd": spelt}))["sessions"]
        assert row["cwd"] == spelt
        assert await client.ask("session/list", {"cwd": "/nowhere/at/all"}) == {"sessions": []}


@holds(2, "CLOSE-201")
async def test_closing_an_idle_session_succeeds(house: House) -> None:
    async with house.inside(2) as client:
        assert await client.ask("session/close", {"sessionId": await client.new("/")}) == {}


@holds(2, "CLOSE-202", "CANCEL-208")
async def test_closing_tells_that_the_turn_was_cancelled_before_it_answers(house: House) -> None:
    async with house.inside(2) as client:
        id = await begun(client)
        await client.ask("session/close", {"sessionId": id})
        closed = client.log.index("session/close")
        (last,) = [update for update in client.updates(0, closed) if is_rest(update)]
        assert last.body["stopReason"] == "cancelled"


@holds(2, "DELETE-201", "DELETE-202", "DELETE-203")
async def test_what_is_deleted_is_listed_no_more(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        assert len((await client.ask("session/list"))["sessions"]) == 1
        for gone in (id, id, "never-created"):
            assert await client.ask("session/delete", {"sessionId": gone}) == {}
        assert (await client.ask("session/list"))["sessions"] == []


@holds(2, "ADDDIRS-201", "ADDDIRS-202")
async def test_directories_can_be_added_when_opening_and_again(house: House) -> None:
    more = {"additionalDirectories": [str(house.directory)]}
    async with house.inside(2) as client:
        id = await client.new("/", **more)
        await client.ask("session/close", {"sessionId": id})
        await client.ask("session/resume", {"sessionId": id, "cwd": "/", **more})


@holds(2, *numbered("CONFIG", "201-206"))
async def test_options_are_whole_wherever_they_are_told(house: House) -> None:
    async with house.inside(2) as client:
        result = await client.ask("session/new", {"cwd": "/"})
        id, before = result["sessionId"], options(result, "configId")
        for name, option in before.items():
            value = option["options"][-1]["value"]
            params = {"sessionId": id, "configId": name, "type": "id", "value": value}
            after = options(await client.ask("session/set_config_option", params), "configId")
            assert after.keys() == before.keys() and after[name]["currentValue"] == value
        told = [u.body for u in client.updates() if u.kind == "config_option_update"]
        assert told and all(options(body, "configId").keys() == before.keys() for body in told)
        await client.ask("session/close", {"sessionId": id})
        again = await client.ask("session/resume", {"sessionId": id, "cwd": "/"})
        assert options(again, "configId") == after


@holds(2, "CANCEL-201", "CANCEL-202", "CANCEL-203", "CANCEL-207")
async def test_a_cancelled_turn_rests_as_cancelled_and_says_nothing_more(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        request = await client.begin(id, "/say begun\n/tool ls a\n/wait 60")
        assert "messageId" in await client.answer(request)
        await client.tell("session/cancel", {"sessionId": id})
        rest = await client.until(is_rest)
        assert rest.body["stopReason"] == "cancelled"
        place = client.log.index(rest)
        await quiet(client)
        assert client.updates(place + 1) == []


@holds(2, "CANCEL-204")
async def test_a_cancelled_turn_stops_what_it_does(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        await client.begin(id, "/say begun\n/wait 60\n/say never")
        await client.tell("session/cancel", {"sessionId": id})
        await client.until(is_rest)
        assert await client.run(id, "/history") == "end_turn"
        said = "".join(u.body["content"]["text"] for u in client.updates() if "chunk" in u.kind)
        assert "never" not in said


@holds(2, "CANCEL-205", "CANCEL-206")
async def test_a_cancel_is_not_answered_with_or_without_meta(house: House) -> None:
    async with house.inside(2) as client:
        for more in ({}, {"_meta": {"traceparent": "00-x"}}, {"_meta": None}):
            id = await begun(client)
            before = len(client.log)
            await client.tell("session/cancel", {"sessionId": id, **more})
            await client.until(is_rest, before)
        await quiet(client)
        assert client.refusals == []


async def told(house: House) -> list[Update]:
    """All that is told of a turn that does everything, live and again."""
    async with house.inside(2) as client:
        id = await client.new(house.directory)
        await client.run(id, f"{SCRIPT}\n/write a.txt b\n/compact all\n/fail now")
        await client.ask("session/close", {"sessionId": id})
        await client.replay(id, house.directory)
        return client.updates()


@holds(2, "PATCH-201", "PATCH-204", "PATCH-205", "PATCH-206", "PATCH-207", "PATCH-208")
async def test_everything_that_is_told_in_parts_has_its_id(house: House) -> None:
    names: dict[str, set[str]] = {}
    for _, kind, body in await told(house):
        assert not kind.startswith("terminal_")  # whose rules we cannot break
        if "message" in kind or "thought" in kind:
            assert body["messageId"]
        elif kind == "tool_call_update":
            if body["toolCallId"] not in names:
                assert body["title"]
            names.setdefault(body["toolCallId"], set()).update({body.get("name")} - {None})
        elif kind == "plan_update":
            assert body["plan"]["planId"]
    assert names and all(len(found) == 1 for found in names.values())


@holds(2, "PATCH-202")
async def test_a_message_keeps_its_id_from_its_first_word_to_its_last(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        await client.run(id, "/slow 0.02\n/say one two three four")
        said = [u for u in client.updates() if u.kind.startswith("agent_message")]
        assert len(said) > 1 and len({u.body["messageId"] for u in said}) == 1


@holds(2, "PATCH-209")
async def test_a_question_waits_in_its_own_state(house: House) -> None:
    async with house.inside(2) as client:
        client.choose = lambda params: None
        id = await client.new("/")
        await client.post("session/prompt", client.prompting(id, "/ask May I?"))
        await client.until(lambda update: update.body.get("state") == "requires_action")
        await client.allow()
        await client.until(is_rest)
        found = [state for state, _ in states(client)]
        assert found == ["running", "requires_action", "running", "idle"]


KINDS = {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
STATUSES = {"pending", "in_progress", "paused", "completed", "failed", "cancelled"}


@holds(2, "ENUM-201", "ENUM-202")
async def test_every_word_of_a_kind_is_one_of_the_protocol_s(house: House) -> None:
    updates = await told(house)
    # That a kind of update and its parts are named by the schema, the harness sees to.
    for _, kind, body in updates:
        if kind == "tool_call_update":
            assert body.get("kind", "other") in KINDS | {"other"}
            assert body.get("status", "pending") in STATUSES
        elif kind == "plan_update":
            for entry in body["plan"]["entries"]:
                assert entry["priority"] in {"high", "medium", "low"}
                assert entry["status"] in STATUSES
        elif kind == "state_update":
            assert body["state"] in {"running", "idle", "requires_action"}
    assert {update.kind for update in updates} >= {"tool_call_update", "plan_update"}


@holds(2, "ENUM-203")
async def test_an_answer_of_a_kind_that_is_not_known_is_survived(house: House) -> None:
    async with house.inside(2) as client:
        client.choose = lambda params: {"outcome": {"outcome": "_later"}}
        id = await client.new("/")
        assert await client.run(id, "/ask May I?") == "end_turn"


def metas(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [found for item in value for found in metas(item)]
    if not isinstance(value, dict):
        return []
    own = [value["_meta"]] if "_meta" in value else []
    return own + [found for item in value.values() for found in metas(item)]


@holds(2, "META-201")
async def test_meta_is_an_object_wherever_it_is(house: House) -> None:
    updates = await told(house)
    async with house.inside(2, greet=False) as client:
        greeting = await client.initialize()
        rows = await client.ask("session/list")
    found = metas([greeting, rows, *(update.body for update in updates)])
    assert found and all(isinstance(meta, dict) for meta in found)


def test_no_requirement_is_missing() -> None:
    assert HELD == LISTED

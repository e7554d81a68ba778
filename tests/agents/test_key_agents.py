"""What an API key sets for an agent, or sends to a turn, does not decide about local turns."""

from typing import Any

from msgspec import UNSET

from segue.hub.resources.records import agent_id
from segue.model import ids
from segue.model.event import AgentRef, ConfigChanged
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session

from .conftest import ModelSetup, bodies_of
from .provider import Use, Wait
from .test_mcp import agent as agent_with_server
from .test_mcp import over_http
from .test_model import REMOTE_CALLER

SYSTEM = "Obey the owner of the key."
MODEL = {"id": "anthropic:claude-haiku-4-5"}
CONFIGURED = "claude-sonnet-4-6"


async def change_agent(setup: ModelSetup, principal: Principal, **settings: Any) -> None:
    """Change the built-in agent, as a client of the REST API does."""
    record = await setup.hub.records.get("local", "agent", agent_id("local"))
    await setup.hub.agent_resolver.update(principal, record, settings, UNSET)


async def request_of(setup: ModelSetup, session: Session, principal: Principal) -> tuple[str, str]:
    """Return the model and the system prompt of a turn's request."""
    await setup.run_prompt("Hello", session, principal=principal)
    request = setup.provider.requests[-1]
    return request["model"], str(request["system"])


async def test_key_changes_the_built_in_agent_for_turns_of_keys_only(setup: ModelSetup) -> None:
    async with setup:
        await change_agent(setup, REMOTE_CALLER, model=MODEL, system=SYSTEM)
        session = await setup.session()
        model, system = await request_of(setup, session, LOCAL)
        assert model == CONFIGURED and SYSTEM not in system
        model, system = await request_of(setup, session, REMOTE_CALLER)
        assert model == "claude-haiku-4-5" and SYSTEM in system


async def test_local_user_changes_the_built_in_agent_for_all_turns(setup: ModelSetup) -> None:
    async with setup:
        await change_agent(setup, LOCAL, system="Be brief.")
        await change_agent(setup, REMOTE_CALLER, system=SYSTEM)
        session = await setup.session()
        assert "Be brief." in (await request_of(setup, session, LOCAL))[1]
        assert SYSTEM in (await request_of(setup, session, REMOTE_CALLER))[1]
        await change_agent(setup, LOCAL, system="Be kind.")
        session = await setup.session()
        for principal in (LOCAL, REMOTE_CALLER):
            assert "Be kind." in (await request_of(setup, session, principal))[1]


async def test_key_changes_the_agent_of_a_session_for_turns_of_keys_only(setup: ModelSetup) -> None:
    async with setup:
        session = await setup.session()
        assert session.agent is not None
        ref = AgentRef(id=session.agent.id, overrides={"system": SYSTEM, "model": MODEL})
        await setup.hub.editor.configure(REMOTE_CALLER, session.id, ConfigChanged(agent=ref))
        model, system = await request_of(setup, session, LOCAL)
        assert model == CONFIGURED and SYSTEM not in system
        model, system = await request_of(setup, session, REMOTE_CALLER)
        assert model == "claude-haiku-4-5" and SYSTEM in system
        fork = await setup.hub.editor.fork(LOCAL, session.id)
        assert SYSTEM not in (await request_of(setup, fork, LOCAL))[1]


async def test_agent_that_a_key_created_has_the_settings_of_its_last_change(
    setup: ModelSetup,
) -> None:
    async with setup:
        resolver = setup.hub.agent_resolver
        settings = {"name": "a", "system": "First.", "model": MODEL}
        record = await resolver.create(REMOTE_CALLER, settings, agent_id("other"))
        record = await resolver.update(REMOTE_CALLER, record, {"system": "Second."}, UNSET)
        ref = AgentRef(id=record.id, version=record.version)
        session = await setup.session(agent=ref)  # the local user chooses it
        assert "Second." in (await request_of(setup, session, LOCAL))[1]


async def test_key_that_joins_a_local_turn_cannot_use_its_http_mcp_servers(
    setup: ModelSetup,
) -> None:
    always = {"default_config": {"permission_policy": {"type": "always_allow"}}}
    add = Use("mcp__adder__add", {"a": 2, "b": 40})
    async with over_http() as url, setup:
        session = await setup.session(agent=await agent_with_server(setup, url, **always))
        wait = Wait()
        setup.add_scripts([wait, add], [add])
        await setup.hub.turns.submit(LOCAL, session.id, "Add")
        await wait.reached.wait()
        await setup.hub.turns.submit(REMOTE_CALLER, session.id, "And again")
        wait.event.set()
        bodies = await setup.collect_events(session.id, session.last_seq)
    own, joined = bodies_of(bodies, "tool_result")
    assert own.content[0].text == "42"
    assert joined.status == "failed" and "connected for the local user" in joined.content[0].text


async def test_server_of_an_agent_that_a_key_chose_is_not_connected_at_a_private_address(
    setup: ModelSetup,
) -> None:
    async with over_http() as url, setup:
        ref = await agent_with_server(setup, url)
        session = await setup.hub.editor.create(REMOTE_CALLER, agent=ref)
        chosen_by_key = await setup.run_prompt("Add", session)
        await setup.hub.editor.configure(LOCAL, session.id, ConfigChanged(agent=ref))
        chosen_by_user = await setup.run_prompt("Add", session)
    (failed,) = bodies_of(chosen_by_key, "failed")
    assert failed.code == "mcp_connection_failed_error"
    assert bodies_of(chosen_by_user, "failed") == []


async def test_server_of_an_imported_agent_is_not_connected_at_a_private_address(
    setup: ModelSetup,
) -> None:
    """The servers may be in the agent, in its specification or in the session's overrides."""
    toolset = {"type": "mcp_toolset", "mcp_server_name": "adder"}
    async with over_http() as url, setup:
        server = {"type": "url", "name": "adder", "url": url}
        settings = {"tools": [toolset], "mcp_servers": [server]}
        failures = []
        for agent, overrides in (
            ({"name": "a", **settings}, {}),
            ({"name": "a", "spec": {"kind": "default", **settings}}, {}),
            ({"name": "a"}, settings),
        ):
            record = await setup.hub.records.create("local", "agent", agent)
            session = await setup.session(agent=AgentRef(id=record.id, overrides=overrides))
            exported = setup.hub.exchange.export(LOCAL, session.id)
            new_id = ids.new_id().encode()
            lines = [line.replace(record.id.encode(), new_id) async for line in exported]
            copy = await setup.hub.exchange.import_session(LOCAL, lines, new_id=True)
            assert copy.agent is not None and copy.agent.id == new_id.decode()
            failures.append(bodies_of(await setup.run_prompt("Add", copy), "failed"))
    for (failed,) in failures:
        assert failed.code == "mcp_connection_failed_error"

"""A session with every kind of setting and resource is shown as it was created."""

from pathlib import Path
from typing import Any

from segue.model import ids
from segue.model.event import OutcomeDefined, OutcomeEvaluated
from segue.store import open_store
from tests.interfaces.rest.api import Api, open_api
from tests.interfaces.rest.test_files import upload_file
from tests.interfaces.rest.test_skills import FILES, form, skill

TOOLS = [
    {
        "type": "agent_toolset_20260401",
        "configs": [
            {"name": "bash", "enabled": True, "permission_policy": {"type": "always_allow"}}
        ],
        "default_config": {"enabled": True, "permission_policy": {"type": "always_ask"}},
    },
    {
        "type": "mcp_toolset",
        "mcp_server_name": "library",
        "configs": [
            {"name": "lend", "enabled": False, "permission_policy": {"type": "always_ask"}}
        ],
        "default_config": {"enabled": True, "permission_policy": {"type": "always_allow"}},
    },
]
SERVERS = [{"type": "url", "name": "library", "url": "https://library.example/mcp"}]
MODEL = {"id": "claude-sonnet-4-6", "speed": "standard"}


def contains(sent: Any, shown: Any) -> bool:
    """Return whether `shown` has every value of `sent`; it may have more fields."""
    if isinstance(sent, dict):
        return isinstance(shown, dict) and all(
            name in shown and contains(value, shown[name]) for name, value in sent.items()
        )
    if isinstance(sent, list):
        return len(sent) == len(shown) and all(map(contains, sent, shown))
    return bool(sent == shown)


async def create_full_session(api: Api) -> tuple[dict[str, Any], dict[str, Any]]:
    """Create a session with everything, and return it with its request."""
    settings = {"model": MODEL, "tools": TOOLS, "mcp_servers": SERVERS}
    helper = {**settings, "name": "Reader", "system": "Read.", "description": "Reads."}
    helper["skills"] = []
    member = await api.ok("POST", "/v1/agents", helper)
    agent = {**settings, "name": "Librarian", "system": "Lend.", "description": "Lends."}
    skill_ref = await skill(api)
    await api.call("POST", f"/v1/skills/{skill_ref['id']}/versions", files=form(FILES))
    agent["skills"] = [{"type": "custom", "skill_id": skill_ref["id"], "version": "2"}]
    roster = {"type": "coordinator", "agents": [member["id"]]}
    main = await api.ok("POST", "/v1/agents", {**agent, "multiagent": roster})
    vault = await api.ok("POST", "/v1/vaults", {"display_name": "v"})
    file = await upload_file(api, b"%PDF", "receipt.pdf", "application/pdf")
    sent = {
        "environment_id": await api.environment(),
        "title": "Overdue book",
        "metadata": {"team": "12"},
        "vault_ids": [vault["id"]],
        "resources": [
            {"type": "file", "file_id": file["id"], "mount_path": "/uploads/receipt.pdf"},
            {
                "type": "github_repository",
                "url": "https://example.com/library/catalogue",
                "mount_path": "/workspace/catalogue",
                "checkout": {"type": "branch", "name": "main"},
            },
        ],
    }
    session = await api.ok("POST", "/v1/sessions", {**sent, "agent": main["id"]})
    id = ids.parse(session["id"]) or ""
    outcome = ids.new_id()
    await api.hub.editor.append(
        api.principal,
        id,
        OutcomeDefined(outcome_id=outcome, description="A list of 2 pages"),
        OutcomeEvaluated(outcome_id=outcome, iteration=0, result="satisfied", explanation="Is."),
    )
    expected: dict[str, Any] = {
        **sent,
        "type": "session",
        "id": session["id"],
        "status": "idle",
        "archived_at": None,
        "deployment_id": None,
        "agent": {
            **agent,
            "type": "agent",
            "id": main["id"],
            "version": 1,
            "multiagent": {
                "type": "coordinator",
                "agents": [{**helper, "type": "agent", "id": member["id"], "version": 1}],
            },
        },
        "outcome_evaluations": [
            {
                "type": "outcome_evaluation",
                "outcome_id": ids.format_id("outc", outcome),
                "description": "A list of 2 pages",
                "explanation": "Is.",
                "iteration": 0,
                "result": "satisfied",
            }
        ],
    }
    # A mounted file is a copy with another id.
    expected["resources"] = [{**item} for item in sent["resources"]]
    expected["resources"][0]["file_id"] = session["resources"][0]["file_id"]
    return session, expected


async def test_list_shows_a_session_as_it_was_created(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session, expected = await create_full_session(api)
        (listed,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert contains(expected, listed), listed
        assert contains(expected, await api.ok("GET", f"/v1/sessions/{session['id']}"))
        usage = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0}
        assert contains(usage, listed["usage"])
        assert listed["outcome_evaluations"][0]["completed_at"] is not None
        assert {"active_seconds", "duration_seconds"} == listed["stats"].keys()
        assert not contains({**expected, "title": "another"}, listed)


async def test_session_can_be_created_again_from_its_response(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session, _ = await create_full_session(api)
        agent = session["agent"]
        again = await api.ok(
            "POST",
            "/v1/sessions",
            {
                "agent": {"type": "agent", "id": agent["id"], "version": agent["version"]},
                **{name: session[name] for name in ("environment_id", "title", "metadata")},
                "vault_ids": session["vault_ids"],
                "resources": [
                    {
                        name: value
                        for name, value in item.items()
                        if name not in ("id", "created_at", "updated_at")
                    }
                    for item in session["resources"]
                ],
            },
        )
        for name in ("agent", "environment_id", "title", "metadata", "vault_ids"):
            assert again[name] == session[name]
        copied = {
            name: agent[name]
            for name in ("name", "description", "system", "model", "tools", "mcp_servers", "skills")
        }
        twin = await api.ok("POST", "/v1/agents", copied)
        assert contains(copied, twin)


async def test_session_is_the_same_in_another_database(
    tmp_path: Path, migrated_database_url: str
) -> None:
    store = await open_store(tmp_path, migrated_database_url)
    async with open_api(tmp_path, store=store) as api:
        session, expected = await create_full_session(api)
        assert contains(expected, await api.ok("GET", f"/v1/sessions/{session['id']}"))
        file = f"/v1/files/{session['resources'][0]['file_id']}"
        assert (await api.raw("GET", f"{file}/content")).content == b"%PDF"
        stored = await api.ok("POST", "/v1/memory_stores", {"name": "m"})
        base = f"/v1/memory_stores/{stored['id']}/memories"
        note = await api.ok("POST", base, {"path": "/a", "content": "one"})
        await api.fails(409, "POST", base, {"path": "/a", "content": "two"})
        await api.ok("POST", f"{base}/{note['id']}", {"path": "/b"})
        assert [item["path"] for item in (await api.ok("GET", base))["data"]] == ["/b"]
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        await api.fails(404, "GET", file)

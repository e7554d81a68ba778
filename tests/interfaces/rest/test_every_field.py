"""Every field that a request may have takes effect or is refused by name.

FIELDS is the table. A new field of a request type fails the first test until it is here, with the
test or the code that gives it an effect in mind: a field that is only stored has no category.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.rest.api import open_api
from tests.interfaces.rest.response_check import DOCUMENT

# What becomes of a field.
APPLIED = "applied"  # segue does what it says
PASSED_ON = "passed on"  # the model, its provider, an MCP server or a worker receives it
LABEL = "label"  # text for people and programs, which responses return; it has no other meaning
REFUSED = "refused"  # the error names it; see REFUSALS

FIELDS: dict[str, dict[str, str]] = {
    APPLIED: {
        "SessionsCreate": "agent environment_id vault_ids resources budget initial_events",
        "SessionsUpdate": "agent budget vault_ids",
        "AgentById": "id version",
        "AgentWithOverrides": "tools mcp_servers skills id version",
        "AgentCreate": "tools mcp_servers skills multiagent execution_identity",
        "AgentUpdate": "tools mcp_servers skills multiagent execution_identity version",
        "AgentChange": "tools mcp_servers",
        "AgentToolset": "configs default_config",
        "MCPToolset": "mcp_server_name configs default_config",
        "ToolSwitch": "enabled permission_policy name type",
        "MCPToolSwitch": "enabled permission_policy name",
        "Switch": "enabled permission_policy",
        "MCPServer": "name url",
        "CustomSkill": "skill_id version",
        "Coordinator": "agents",
        "Multiagent": "advisor subagents",
        "SubagentsOn": "inline_agents predefined_agents",
        "Repository": "url authorization_token checkout mount_path",
        "Branch": "name",
        "Commit": "sha",
        "ResourcesFile": "file_id mount_path",
        "ResourcesMemoryStore": "memory_store_id access",
        "ResourcesUpdate": "authorization_token",
        "Budget": "max_list_cost",
        "SessionsMoney": "amount currency",
        "Send": "events",
        "Interrupt": "session_thread_id",
        "Confirmation": "tool_use_id result session_thread_id",
        "CustomToolResult": "custom_tool_use_id session_thread_id",
        "ToolResult": "tool_use_id session_thread_id",
        "FileSource": "file_id",
        "DefineOutcome": "max_iterations",
        "FileRubric": "file_id",
        "EnvironmentCreate": "config scope",
        "EnvironmentUpdate": "config scope",
        "Cloud": "networking packages",
        "Packages": "npm pip",
        "Limited": "allow_mcp_servers allow_package_managers allowed_hosts",
        "Stop": "force",
        "MemoriesCreate": "path content",
        "MemoriesUpdate": "path content precondition",
        "Precondition": "content_sha256",
        "CredentialsCreate": "auth",
        "CredentialsUpdate": "auth",
        "OAuth": "mcp_server_url expires_at refresh",
        "OAuthUpdate": "expires_at refresh",
        "Refresh": "token_endpoint token_endpoint_auth",
        "RefreshUpdate": "token_endpoint_auth",
        "Bearer": "mcp_server_url",
        "Variable": "networking injection_location",
        "VariableUpdate": "networking injection_location",
        "AllowedHosts": "allowed_hosts",
        "DeploymentsCreate": (
            "agent environment_id initial_events resources vault_ids schedule budget"
        ),
        "DeploymentsUpdate": (
            "agent environment_id initial_events resources vault_ids schedule budget"
        ),
        "Schedule": "expression timezone",
        "WebhooksCreate": "url event_types",
        "WebhooksUpdate": "url event_types enabled",
        "RotateSecret": "overlap_seconds",
        "Test": "event_type",
        "POST /v1/files": "file expires_in_seconds",
        "POST /v1/skills": "files[]",
        "POST /v1/skills/{skill_id}/versions": "files[]",
    },
    PASSED_ON: {
        "AgentWithOverrides": "model system",
        "AgentCreate": "model system",
        "AgentUpdate": "model system",
        "AdvisorEntry": "model",
        "AdvisorOn": "model",
        "RequestsModel": "id speed effort inference_geo",
        "CustomTool": "name description input_schema",
        "ResourcesMemoryStore": "instructions",
        "UserMessage": "content",
        "SystemMessage": "content",
        "TextIn": "text",
        "ImageIn": "source",
        "Base64Source": "media_type data",
        "URLSource": "url",
        "DocumentIn": "source title context",
        "TextSource": "data media_type",
        "SearchResultIn": "source title content citations",
        "DefineOutcome": "description rubric",
        "TextRubric": "content",
        "Confirmation": "deny_message",
        "CustomToolResult": "content is_error",
        "ToolResult": "content is_error",
        "OAuth": "access_token",
        "OAuthUpdate": "access_token",
        "Refresh": "client_id refresh_token resource scope",
        "RefreshUpdate": "refresh_token scope",
        "ClientSecretBasic": "client_secret",
        "ClientSecretPost": "client_secret",
        "ClientSecretBasicUpdate": "client_secret",
        "ClientSecretPostUpdate": "client_secret",
        "Bearer": "token",
        "BearerUpdate": "token",
        "Variable": "secret_name secret_value",
        "VariableUpdate": "secret_value",
        # The system prompt has the name and the description of a memory store.
        "MemoryStoresCreate": "name description",
        "MemoryStoresUpdate": "name description",
    },
    LABEL: {
        "SessionsCreate": "metadata title",
        "SessionsUpdate": "metadata title",
        "AgentCreate": "name description metadata",
        "AgentUpdate": "name description metadata",
        "EnvironmentCreate": "name description metadata",
        "EnvironmentUpdate": "name description metadata",
        "WorkUpdate": "metadata",
        "MemoryStoresCreate": "metadata",
        "MemoryStoresUpdate": "metadata",
        "VaultsCreate": "display_name metadata",
        "VaultsUpdate": "display_name metadata",
        "CredentialsCreate": "display_name metadata",
        "CredentialsUpdate": "display_name metadata",
        "DeploymentsCreate": "name description metadata",
        "DeploymentsUpdate": "name description metadata",
        "WebhooksCreate": "description",
        "WebhooksUpdate": "description",
        "POST /v1/skills": "display_name",
    },
    REFUSED: {
        # A session.error of the session names the skill; see test_skills.py.
        "AnthropicSkill": "skill_id version",
        "InjectionLocation": "header body",
        "Multiagent": "workflows",
        "WorkflowsOn": "inline_agents predefined_agents",
        "Packages": "apt cargo gem go",
    },
}

AGENT = {"name": "a", "model": "m"}
VARIABLE = {
    "type": "environment_variable",
    "secret_name": "A",
    "secret_value": "b",
    "networking": {"type": "unrestricted"},
}
# (route, body, a part of the error), for the refused fields and values
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/environments", {"name": "e", "scope": "account"}, "scope: "),
    *(
        (
            "/v1/agents",
            {**AGENT, "multiagent": {"type": "multiagent_20261001", **workflows}},
            "multiagent.workflows: segue has no workflows",
        )
        for workflows in ({}, {"workflows": {"type": "enabled"}}, {"workflows": None})
    ),
    *(
        (
            "/v1/vaults/{vault}/credentials",
            {"auth": {**VARIABLE, "injection_location": {name: False}}},
            f"injection_location.{name}: ",
        )
        for name in ("header", "body")
    ),
    *(
        (
            "/v1/environments",
            {"name": "e", "config": {"type": "cloud", "packages": {manager: ["a"]}}},
            f"config.packages.{manager}: ",
        )
        for manager in ("apt", "cargo", "gem", "go")
    ),
]


def request_fields() -> dict[str, set[str]]:
    """Return the fields of every object in request bodies, by the name of its type.

    `type` is left out: it selects the object.
    """
    fields: dict[str, set[str]] = {}

    def walk(schema: dict[str, Any], name: str) -> None:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name in fields:
                return
            schema = DOCUMENT["components"]["schemas"][name]
        properties = schema.get("properties", {})
        if properties:
            is_tag = "enum" in properties.get("type", {})
            fields.setdefault(name, set()).update(properties.keys() - ({"type"} if is_tag else ()))
        for child in _children(schema):
            walk(child, name)

    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                walk(media["schema"], f"{method.upper()} {path}")
    return {name: names for name, names in fields.items() if names}


def _children(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("anyOf", "oneOf", "prefixItems"):
        yield from schema.get(name, ())
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield schema[name]
    yield from schema.get("properties", {}).values()


def test_table_has_every_field_of_every_request_once() -> None:
    listed = [
        f"{name}.{field}"
        for objects in FIELDS.values()
        for name, fields in objects.items()
        for field in fields.split()
    ]
    accepted = {f"{name}.{field}" for name, fields in request_fields().items() for field in fields}
    # A union with null, or a string in place of an object, has its tag in another place.
    tags = {f"{name}.type" for name in ("Policy", "EffortLevel", "Packages")}
    assert accepted - set(listed) - tags == set()
    assert set(listed) - accepted == set()
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize(("path", "body", "error"), REFUSALS)
async def test_refused_field_is_named(
    tmp_path: Path, path: str, body: dict[str, Any], error: str
) -> None:
    async with open_api(tmp_path) as api:
        if "{vault}" in path:
            vault = (await api.ok("POST", "/v1/vaults", {"display_name": "v"}))["id"]
            path = path.format(vault=vault)
        assert error in await api.fails(400, "POST", path, body)

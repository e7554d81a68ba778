"""The endpoints of the REST API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from . import openapi
from .context import RestContext
from .events import event_requests
from .handlers import (
    agents,
    credentials,
    deployments,
    environments,
    events,
    files,
    health,
    models,
    resources,
    sessions,
    skills,
    threads,
    vaults,
    webhooks,
    work,
)
from .handlers.memory import memories, memory_stores, memory_versions
from .openapi import Binary, Stream
from .params import CREATED_AT
from .request import Endpoint
from .schemas import requests

_PAGE = ("limit", "page")
_SESSIONS = "/v1/sessions"
_SESSION = "/v1/sessions/{session_id}"
_RESOURCE = _SESSION + "/resources/{resource_id}"
_THREAD = _SESSION + "/threads/{thread_id}"
_AGENT = "/v1/agents/{agent_id}"
_ENVIRONMENT = "/v1/environments/{environment_id}"
_WORK = _ENVIRONMENT + "/work"
_WORK_ITEM = _WORK + "/{work_id}"
_MEMORY_STORE = "/v1/memory_stores/{memory_store_id}"
_MEMORY = _MEMORY_STORE + "/memories/{memory_id}"
_MEMORY_VERSION = _MEMORY_STORE + "/memory_versions/{memory_version_id}"
_VAULT = "/v1/vaults/{vault_id}"
_CREDENTIAL = _VAULT + "/credentials/{credential_id}"
_DEPLOYMENT = "/v1/deployments/{deployment_id}"
_CREATED_PAGE = (*_PAGE, "include_archived", "created_at[gte]", "created_at[lte]")
_FILE = "/v1/files/{file_id}"
_SKILL = "/v1/skills/{skill_id}"
_SKILL_VERSION = _SKILL + "/versions/{version}"
_WEBHOOK = "/v1/webhooks/{webhook_id}"
_DELIVERY = _WEBHOOK + "/deliveries/{delivery_id}"
_NO_BETAS: frozenset[str] = frozenset()
_MEMORY_BETAS = memory_stores.BETAS

ROUTES = (
    Endpoint(
        "GET", _SESSIONS, sessions.list_, sessions.FILTERS, response_type=sessions.SessionPage
    ),
    Endpoint("POST", _SESSIONS, sessions.create, request_type=sessions.Create),
    Endpoint("GET", _SESSION, sessions.retrieve),
    Endpoint("POST", _SESSION, sessions.update, request_type=sessions.Update),
    Endpoint("DELETE", _SESSION, sessions.delete),
    Endpoint("POST", _SESSION + "/archive", sessions.archive),
    Endpoint("GET", _SESSION + "/events", events.list_, events.FILTERS),
    Endpoint("POST", _SESSION + "/events", events.send, request_type=event_requests.Send),
    Endpoint(
        "GET",
        _SESSION + "/events/stream",
        events.stream,
        events.STREAM_FILTERS,
        response_type=Stream,
    ),
    Endpoint(
        "GET", _SESSION + "/resources", resources.list_, _PAGE, response_type=resources.ResourcePage
    ),
    Endpoint(
        "POST",
        _SESSION + "/resources",
        resources.add,
        request_type=resources.File,
        response_type=resources.FileOut,
    ),
    Endpoint("GET", _RESOURCE, resources.retrieve, response_type=resources.ResourceOut),
    Endpoint(
        "POST",
        _RESOURCE,
        resources.update,
        request_type=resources.Update,
        response_type=resources.ResourceOut,
    ),
    Endpoint("DELETE", _RESOURCE, resources.delete),
    Endpoint("GET", _SESSION + "/threads", threads.list_, (*_PAGE, "statuses[]")),
    Endpoint("GET", _THREAD, threads.retrieve),
    Endpoint("POST", _THREAD + "/archive", threads.archive),
    Endpoint("GET", _THREAD + "/events", threads.list_events, _PAGE),
    Endpoint(
        "GET", _THREAD + "/stream", threads.stream, events.STREAM_FILTERS, response_type=Stream
    ),
    Endpoint("GET", "/v1/agents", agents.list_, _CREATED_PAGE),
    Endpoint("POST", "/v1/agents", agents.create, request_type=requests.AgentCreate),
    Endpoint("GET", _AGENT, agents.retrieve, ("version",)),
    Endpoint("POST", _AGENT, agents.update, request_type=requests.AgentUpdate),
    Endpoint("POST", _AGENT + "/archive", agents.archive),
    Endpoint("GET", _AGENT + "/versions", agents.versions, _PAGE),
    Endpoint("GET", "/v1/environments", environments.list_, (*_PAGE, "include_archived")),
    Endpoint(
        "POST", "/v1/environments", environments.create, request_type=requests.EnvironmentCreate
    ),
    Endpoint("GET", _ENVIRONMENT, environments.retrieve),
    Endpoint("POST", _ENVIRONMENT, environments.update, request_type=requests.EnvironmentUpdate),
    Endpoint("DELETE", _ENVIRONMENT, environments.delete),
    Endpoint("POST", _ENVIRONMENT + "/archive", environments.archive),
    Endpoint("GET", _WORK, work.list_, _PAGE),
    Endpoint(
        "GET",
        _WORK + "/poll",
        work.poll,
        ("block_ms", "reclaim_older_than_ms"),
        response_type=work.Polled,
    ),
    Endpoint("GET", _WORK + "/stats", work.stats),
    Endpoint("GET", _WORK_ITEM, work.retrieve),
    Endpoint("POST", _WORK_ITEM, work.update, request_type=work.Update),
    Endpoint("POST", _WORK_ITEM + "/ack", work.acknowledge),
    Endpoint(
        "POST",
        _WORK_ITEM + "/heartbeat",
        work.heartbeat,
        ("desired_ttl_seconds", "expected_last_heartbeat"),
    ),
    Endpoint("POST", _WORK_ITEM + "/stop", work.stop, request_type=work.Stop),
    Endpoint("GET", "/v1/memory_stores", memory_stores.list_, _CREATED_PAGE, _MEMORY_BETAS),
    Endpoint(
        "POST",
        "/v1/memory_stores",
        memory_stores.create,
        betas=_MEMORY_BETAS,
        request_type=memory_stores.Create,
    ),
    Endpoint("GET", _MEMORY_STORE, memory_stores.retrieve, betas=_MEMORY_BETAS),
    Endpoint(
        "POST",
        _MEMORY_STORE,
        memory_stores.update,
        betas=_MEMORY_BETAS,
        request_type=memory_stores.Update,
    ),
    Endpoint("DELETE", _MEMORY_STORE, memory_stores.delete, betas=_MEMORY_BETAS),
    Endpoint("POST", _MEMORY_STORE + "/archive", memory_stores.archive, betas=_MEMORY_BETAS),
    Endpoint("GET", _MEMORY_STORE + "/memories", memories.list_, memories.FILTERS, _MEMORY_BETAS),
    Endpoint(
        "POST",
        _MEMORY_STORE + "/memories",
        memories.create,
        ("view",),
        _MEMORY_BETAS,
        request_type=memories.Create,
    ),
    Endpoint("GET", _MEMORY, memories.retrieve, ("view",), _MEMORY_BETAS),
    Endpoint(
        "POST", _MEMORY, memories.update, ("view",), _MEMORY_BETAS, request_type=memories.Update
    ),
    Endpoint("DELETE", _MEMORY, memories.delete, ("expected_content_sha256",), _MEMORY_BETAS),
    Endpoint(
        "GET",
        _MEMORY_STORE + "/memory_versions",
        memory_versions.list_,
        memory_versions.FILTERS,
        _MEMORY_BETAS,
    ),
    Endpoint("GET", _MEMORY_VERSION, memory_versions.retrieve, ("view",), _MEMORY_BETAS),
    Endpoint("POST", _MEMORY_VERSION + "/redact", memory_versions.redact, betas=_MEMORY_BETAS),
    Endpoint("GET", "/v1/vaults", vaults.list_, (*_PAGE, "include_archived")),
    Endpoint("POST", "/v1/vaults", vaults.create, request_type=vaults.Create),
    Endpoint("GET", _VAULT, vaults.retrieve),
    Endpoint("POST", _VAULT, vaults.update, request_type=vaults.Update),
    Endpoint("DELETE", _VAULT, vaults.delete),
    Endpoint("POST", _VAULT + "/archive", vaults.archive),
    Endpoint("GET", _VAULT + "/credentials", credentials.list_, (*_PAGE, "include_archived")),
    Endpoint("POST", _VAULT + "/credentials", credentials.create, request_type=credentials.Create),
    Endpoint("GET", _CREDENTIAL, credentials.retrieve),
    Endpoint("POST", _CREDENTIAL, credentials.update, request_type=credentials.Update),
    Endpoint("DELETE", _CREDENTIAL, credentials.delete),
    Endpoint("POST", _CREDENTIAL + "/archive", credentials.archive),
    Endpoint("POST", _CREDENTIAL + "/mcp_oauth_validate", credentials.validate),
    Endpoint("GET", "/v1/deployments", deployments.list_, deployments.FILTERS),
    Endpoint("POST", "/v1/deployments", deployments.create, request_type=deployments.Create),
    Endpoint("GET", _DEPLOYMENT, deployments.retrieve),
    Endpoint("POST", _DEPLOYMENT, deployments.update, request_type=deployments.Update),
    Endpoint("POST", _DEPLOYMENT + "/archive", deployments.archive),
    Endpoint("POST", _DEPLOYMENT + "/pause", deployments.pause),
    Endpoint("POST", _DEPLOYMENT + "/unpause", deployments.unpause),
    Endpoint("POST", _DEPLOYMENT + "/run", deployments.run),
    Endpoint(
        "GET",
        "/v1/deployment_runs",
        deployments.list_runs,
        (*_PAGE, *CREATED_AT, "deployment_id", "has_error", "trigger_type"),
    ),
    Endpoint("GET", "/v1/deployment_runs/{deployment_run_id}", deployments.retrieve_run),
    Endpoint("GET", "/v1/files", files.list_, files.FILTERS, betas=_NO_BETAS),
    Endpoint("POST", "/v1/files", files.upload, betas=_NO_BETAS),
    Endpoint("GET", _FILE, files.retrieve, betas=_NO_BETAS),
    Endpoint("DELETE", _FILE, files.delete, betas=_NO_BETAS),
    Endpoint("GET", _FILE + "/content", files.content, betas=_NO_BETAS, response_type=Binary),
    Endpoint("GET", "/v1/skills", skills.list_, skills.FILTERS, betas=_NO_BETAS),
    Endpoint("POST", "/v1/skills", skills.create, betas=_NO_BETAS),
    Endpoint("GET", _SKILL, skills.retrieve, betas=_NO_BETAS),
    Endpoint("DELETE", _SKILL, skills.delete, betas=_NO_BETAS),
    Endpoint("GET", _SKILL + "/versions", skills.list_versions, _PAGE, betas=_NO_BETAS),
    Endpoint("POST", _SKILL + "/versions", skills.create_version, betas=_NO_BETAS),
    Endpoint("GET", _SKILL_VERSION, skills.retrieve_version, betas=_NO_BETAS),
    Endpoint("DELETE", _SKILL_VERSION, skills.delete_version, betas=_NO_BETAS),
    Endpoint(
        "GET", _SKILL_VERSION + "/content", skills.content, betas=_NO_BETAS, response_type=Binary
    ),
    Endpoint(
        "GET",
        "/v1/models",
        models.list_,
        ("after_id", "before_id", "lifecycle[]", "limit"),
        betas=_NO_BETAS,
    ),
    Endpoint("GET", "/v1/models/{model_id}", models.retrieve, betas=_NO_BETAS),
    Endpoint("GET", "/v1/webhooks", webhooks.list_, _PAGE, betas=_NO_BETAS),
    Endpoint(
        "POST",
        "/v1/webhooks",
        webhooks.create,
        betas=_NO_BETAS,
        request_type=webhooks.Create,
        returns_secret=True,
    ),
    Endpoint("GET", _WEBHOOK, webhooks.retrieve, betas=_NO_BETAS),
    Endpoint("POST", _WEBHOOK, webhooks.update, betas=_NO_BETAS, request_type=webhooks.Update),
    Endpoint("DELETE", _WEBHOOK, webhooks.delete, betas=_NO_BETAS),
    Endpoint(
        "POST",
        _WEBHOOK + "/rotate_secret",
        webhooks.rotate_secret,
        betas=_NO_BETAS,
        request_type=webhooks.RotateSecret,
        returns_secret=True,
    ),
    Endpoint(
        "POST", _WEBHOOK + "/test", webhooks.test, betas=_NO_BETAS, request_type=webhooks.Test
    ),
    Endpoint("GET", _WEBHOOK + "/deliveries", webhooks.list_deliveries, _PAGE, betas=_NO_BETAS),
    Endpoint("GET", _DELIVERY, webhooks.retrieve_delivery, betas=_NO_BETAS),
    Endpoint("POST", _DELIVERY + "/resend", webhooks.resend_delivery, betas=_NO_BETAS),
)


async def _openapi(_: RestContext) -> Response:
    return Response(openapi.encoded_document(ROUTES), media_type="application/json")


# Paths that need no key, beta header or API version.
PUBLIC_ROUTES: dict[str, Callable[[RestContext], Awaitable[Response]]] = {
    "/healthz": health.healthz,
    "/readyz": health.readyz,
    "/metrics": health.metrics,
    "/openapi.json": _openapi,
}

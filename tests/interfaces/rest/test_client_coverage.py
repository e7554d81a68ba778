"""The API serves every method and parameter of the official client."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

import httpx2
import msgspec
import pytest

from segue.http.routing import RouteTree
from segue.interfaces.rest.openapi import FORMS
from segue.interfaces.rest.request import Endpoint
from segue.interfaces.rest.routes import ROUTES
from tests.clients.rest_server import serving
from tests.interfaces.rest.response_check import DOCUMENT
from tests.interfaces.rest.schema_gaps import choices, missing_from_schema

if TYPE_CHECKING:  # importing it takes seconds, also for processes that run other tests
    from anthropic import Anthropic

# Other resources of the client, which segue does not serve; webhooks send no requests.
NOT_SERVED = {
    *("dreams", "messages", "organization", "threads", "tunnels", "user_profiles", "webhooks"),
}
# Fields that segue refuses in a body.
NOT_TAKEN = {
    *("tools.configs.allowed_domains", "tools.configs.blocked_domains"),
    *("tools.configs.max_content_tokens", "tools.configs.url_sources"),
    "tools.configs.user_location",
    "execution_identity:aws_role",
    *("events.content:redacted", "initial_events.content:redacted"),
}
# Types and fields of responses that segue never sends, by reason.
ABSENT_FROM_RESPONSES = {
    "refused in requests": {
        *("AWSRoleExecutionIdentity", "RedactedBlock"),
        *("WebFetchToolConfig.allowed_domains", "WebFetchToolConfig.blocked_domains"),
        *("WebFetchToolConfig.max_content_tokens", "WebFetchToolConfig.url_sources"),
        *("WebSearchToolConfig.allowed_domains", "WebSearchToolConfig.blocked_domains"),
        "WebSearchToolConfig.user_location",
    },
    "callers are API keys and sessions": {"ServiceAccountActor", "UserActor"},
    "null, since segue does not know": {"ModelCapabilities", "MCPProbe", "Refresh"},
    "in the message": {
        f"Repository{kind}Error.repository_url"
        for kind in ("Authentication", "Checkout", "Clone", "Forbidden", "NotFound")
    },
    "does not happen": {"CredentialHostUnreachableError"},
    "only in streams": {"SessionDeletedEvent"},
    "no workflows": {
        *("MultiagentWorkflowsEnabled", "SessionMultiagentWorkflowsEnabled"),
        *(
            f"WorkflowRun{kind}Event"
            for kind in (
                *("Created", "Error", "PhaseEnded", "PhaseStarted"),
                *("StatusEnded", "StatusIdle", "StatusRunning"),
            )
        ),
    },
}
# Parameters of all methods that are sent as headers.
HEADERS = {"betas", "workspace_id", "anthropic_worker_id"}
OPTIONS = {"extra_headers", "extra_query", "extra_body", "timeout", "idempotency_key"}

routes = RouteTree(ROUTES)


class RequestSent(Exception):
    """Raised with the request that a client method sends."""


def raise_request(request: httpx2.Request) -> httpx2.Response:
    raise RequestSent(request)


def client() -> "Anthropic":
    from anthropic import Anthropic

    return Anthropic(
        base_url="http://127.0.0.1:1",
        api_key="k",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(raise_request)),
    )


def methods(resource: Any, above: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return every client method that sends a request, by its name below `client.beta`."""
    from anthropic._resource import SyncAPIResource

    for name in dir(resource):
        if name.startswith(("_", "with_")):
            continue
        results = getattr(resource, name)
        if isinstance(results, SyncAPIResource):
            if above or name not in NOT_SERVED:
                yield from methods(results, f"{above}{name}.")
        elif inspect.ismethod(results):
            yield f"{above}{name}", results


@cache
def client_methods() -> dict[str, Callable[..., Any]]:
    return dict(methods(client().beta))


def request(name: str) -> httpx2.Request:
    """Return the request that a method sends with all its parameters."""
    accepted = inspect.signature(client_methods()[name]).parameters.keys() - OPTIONS
    sent: dict[str, Any] = {item: value(item) for item in accepted}
    with pytest.raises((RequestSent, Exception)) as raised:
        client_methods()[name](**sent)
    reason: BaseException | None = raised.value
    while reason is not None and not isinstance(reason, RequestSent):
        reason = reason.__cause__ or reason.__context__
    assert reason is not None, (name, raised.value)
    created: httpx2.Request = reason.args[0]
    return created


def value(name: str) -> Any:
    if name in ("betas", "ids", "types", "statuses", "event_deltas", "lifecycle"):
        return ["x"]
    if name in ("files", "events", "initial_events", "tools", "resources", "inputs"):
        return [b"x"] if name == "files" else [{"type": "x"}]
    if name in ("metadata", "budget", "schedule", "config", "auth", "precondition"):
        return {"type": "x"}
    return b"x" if name == "file" else f"x-{name}"


def test_every_method_of_the_client_is_served_with_all_its_parameters() -> None:
    for name, method in client_methods().items():
        created = request(name)
        results = routes.match(created.url.path)
        assert results is not None and created.method in results[0], (name, created.url.path)
        endpoint = results[0][created.method]
        requested = {key for key, _ in created.url.params.multi_items()} - {"beta"}
        assert requested <= set(endpoint.query), name
        assert body(created) <= fields(endpoint), name
        accepted = inspect.signature(method).parameters.keys() - OPTIONS - HEADERS
        sent = created.url.path + str(created.url.params) + created.content.decode("latin-1")
        unsent = [item for item in accepted if item not in sent and f"{value(item)}" not in sent]
        assert unsent == [], name


def test_document_has_every_body_field_of_the_client_except_refused_ones() -> None:
    results: set[str] = set()
    for method, call in client_methods().items():
        hints = get_type_hints(call, vars(sys.modules[call.__module__]))
        created = request(method)
        address = routes.match(created.url.path)
        assert address is not None
        endpoint = address[0][created.method]
        if endpoint.request_type is None:
            continue
        operation = DOCUMENT["paths"][endpoint.path][created.method.lower()]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        (full,) = choices(schema)
        for name in full["properties"].keys() & hints.keys():
            where = "" if name == "agent" else name  # a session has the skills of its agent
            results |= set(missing_from_schema(hints[name], full["properties"][name], where))
    assert {item.removeprefix(".") for item in results} == NOT_TAKEN


def test_document_has_every_response_type_of_the_client_except_absent_ones() -> None:
    from anthropic import Stream

    results: set[str] = set()
    for method, call in client_methods().items():
        hints = get_type_hints(call, vars(sys.modules[call.__module__]), include_extras=True)
        created = request(method)
        address = routes.match(created.url.path)
        assert address is not None
        path = address[0][created.method].path
        success = DOCUMENT["paths"][path][created.method.lower()]["responses"]["200"]
        ((kind, media),) = success["content"].items()
        # The events of streams are those of lists.
        if kind != "*/*" and get_origin(hints["return"]) is not Stream:
            results |= set(missing_from_schema(hints["return"], media["schema"], method))
    assert results == set().union(*ABSENT_FROM_RESPONSES.values())


def body(sent_request: httpx2.Request) -> set[str]:
    if (
        not sent_request.headers.get("content-type", "").startswith("application/json")
        or not sent_request.content
    ):
        return set()
    return set(json.loads(sent_request.content))


def fields(endpoint: Endpoint) -> set[str]:
    if form := FORMS.get((endpoint.method, endpoint.path)):
        return {item.removesuffix("[]") for item in form["properties"]}
    if endpoint.request_type is None:
        return set()
    (_, schemas) = msgspec.json.schema_components([endpoint.request_type], ref_template="{name}")
    (ref,) = msgspec.json.schema_components([endpoint.request_type], ref_template="{name}")[0]
    return set(schemas[ref["$ref"]]["properties"])


def test_every_route_is_requested_by_a_client_method() -> None:
    """This shows that `methods` finds all client methods."""
    requested = set()
    for name in client_methods():
        created = request(name)
        results = routes.match(created.url.path)
        assert results is not None
        requested.add((created.method, results[0][created.method].path))
    # The hosted API manages webhooks in its console.
    own = {route for route in ROUTES if route.path.startswith("/v1/webhooks")}
    assert requested == {(route.method, route.path) for route in {*ROUTES} - own}


def test_client_has_no_other_resources() -> None:
    from anthropic._resource import SyncAPIResource

    beta = client().beta
    kinds = {name for name in dir(beta) if isinstance(getattr(beta, name), SyncAPIResource)}
    known = {name.partition(".")[0] for name in client_methods()}
    assert kinds - known == NOT_SERVED & kinds


def test_client_parses_the_responses_that_no_other_test_requests(tmp_path: Path) -> None:
    from anthropic import Anthropic, BadRequestError

    with (
        serving(tmp_path) as server,
        Anthropic(
            base_url=server.url, api_key=server.key, max_retries=0, _strict_response_validation=True
        ) as strict,
    ):
        beta = strict.beta
        store = beta.memory_stores.create(name="m")
        assert beta.memory_stores.retrieve(store.id) == store
        vault = beta.vaults.create(display_name="v")
        assert beta.vaults.retrieve(vault.id) == vault
        stored = beta.vaults.credentials.create(
            vault.id,
            auth={
                "type": "mcp_oauth",
                "mcp_server_url": "https://a.example/mcp",
                "access_token": "t",
            },
        )
        tried = beta.vaults.credentials.mcp_oauth_validate(stored.id, vault_id=vault.id)
        assert tried.credential_id == stored.id
        environment = beta.environments.create(name="e")
        agent = beta.agents.create(name="a", model="demo")
        first: Any = {"type": "user.message", "content": [{"type": "text", "text": "hi"}]}
        system: Any = {"type": "system.message", "content": [{"type": "text", "text": "be brief"}]}
        deployment = beta.deployments.create(
            name="d", agent=agent.id, environment_id=environment.id, initial_events=[first, system]
        )
        assert beta.deployments.retrieve(deployment.id) == deployment
        assert beta.deployments.update(deployment.id, description="x").description == "x"
        (model,) = beta.models.list(lifecycle=["active"])
        assert list(beta.models.list(lifecycle=["retired"])) == []
        assert beta.models.retrieve(model.id) == model
        session = beta.sessions.create(agent=agent.id, environment_id=environment.id)
        (thread,) = beta.sessions.threads.list(session.id)
        with beta.sessions.threads.events.stream(thread.id, session_id=session.id) as stream:
            beta.sessions.events.send(session.id, events=[first])
            for event in stream:
                if event.type == "session.thread_status_idle":
                    break
        # The primary thread is archived with its session.
        with pytest.raises(BadRequestError, match="archive the session"):
            beta.sessions.threads.archive(thread.id, session_id=session.id)

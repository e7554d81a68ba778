"""Nothing that the official client can ask for is unknown: methods, and their parameters."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import httpx2
import msgspec
import pytest
from anthropic import Anthropic, BadRequestError
from anthropic._resource import SyncAPIResource

from segue.http.routing import RouteTree
from segue.interfaces.rest.openapi import FORMS
from segue.interfaces.rest.request import Endpoint
from segue.interfaces.rest.routes import ROUTES
from tests.clients.rest_server import serving
from tests.interfaces.rest.judge import DOCUMENT
from tests.interfaces.rest.shapes import beyond, choices

# What the client has beside sessions and what they refer to; webhooks make no requests.
NOT_SERVED = {
    *("dreams", "messages", "organization", "threads", "tunnels", "user_profiles", "webhooks"),
}
# What may not stand in a body here.
NOT_TAKEN = {
    *("tools.configs.allowed_domains", "tools.configs.blocked_domains"),
    *("tools.configs.max_content_tokens", "tools.configs.url_sources"),
    "tools.configs.user_location",
    *("multiagent.agents:advisor", "multiagent:multiagent_20261001"),
    "execution_identity:aws_role",
    *("events.content:redacted", "initial_events.content:redacted"),
}
# Said once for all requests, by headers that mean nothing here or are read elsewhere.
HEADERS = {"betas", "workspace_id", "anthropic_worker_id"}
OPTIONS = {"extra_headers", "extra_query", "extra_body", "timeout", "idempotency_key"}

_routes = RouteTree(ROUTES)


class Asked(Exception):
    """The request that a method makes, instead of its answer."""


def refuse(request: httpx2.Request) -> httpx2.Response:
    raise Asked(request)


def client() -> Anthropic:
    return Anthropic(
        base_url="http://127.0.0.1:1",
        api_key="k",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(refuse)),
    )


def methods(resource: Any, above: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every method that makes a request, by its name below `client.beta`."""
    for name in dir(resource):
        if name.startswith(("_", "with_")):
            continue
        found = getattr(resource, name)
        if isinstance(found, SyncAPIResource):
            if above or name not in NOT_SERVED:
                yield from methods(found, f"{above}{name}.")
        elif inspect.ismethod(found):
            yield f"{above}{name}", found


FOUND = dict(methods(client().beta))


def request(name: str) -> httpx2.Request:
    """What a method sends that is given all that it takes."""
    taken = inspect.signature(FOUND[name]).parameters.keys() - OPTIONS
    given: dict[str, Any] = {each: value(each) for each in taken}
    with pytest.raises((Asked, Exception)) as raised:
        FOUND[name](**given)
    reason: BaseException | None = raised.value
    while reason is not None and not isinstance(reason, Asked):
        reason = reason.__cause__ or reason.__context__
    assert reason is not None, (name, raised.value)
    made: httpx2.Request = reason.args[0]
    return made


def value(name: str) -> Any:
    if name in ("betas", "ids", "types", "statuses", "event_deltas"):
        return ["x"]
    if name in ("files", "events", "initial_events", "tools", "resources", "inputs"):
        return [b"x"] if name == "files" else [{"type": "x"}]
    if name in ("metadata", "budget", "schedule", "config", "auth", "precondition"):
        return {"type": "x"}
    return b"x" if name == "file" else f"x-{name}"


@pytest.mark.parametrize("name", FOUND)
def test_a_method_of_the_client_s_is_served_with_all_that_it_takes(name: str) -> None:
    made = request(name)
    found = _routes.match(made.url.path)
    assert found is not None and made.method in found[0], (made.method, made.url.path)
    endpoint = found[0][made.method]
    asked = {key for key, _ in made.url.params.multi_items()} - {"beta"}
    assert asked <= set(endpoint.query), name
    assert body(made) <= fields(endpoint), name
    taken = inspect.signature(FOUND[name]).parameters.keys() - OPTIONS - HEADERS
    said = made.url.path + str(made.url.params) + made.content.decode("latin-1")
    assert [each for each in taken if each not in said and f"{value(each)}" not in said] == []


def test_what_bodies_may_hold_is_known_but_for_what_is_refused_by_name() -> None:
    found: set[str] = set()
    for method, call in FOUND.items():
        hints = get_type_hints(call, vars(sys.modules[call.__module__]))
        made = request(method)
        address = _routes.match(made.url.path)
        assert address is not None
        endpoint = address[0][made.method]
        if endpoint.request_type is None:
            continue
        operation = DOCUMENT["paths"][endpoint.path][made.method.lower()]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        (whole,) = choices(schema)
        for name in whole["properties"].keys() & hints.keys():
            where = "" if name == "agent" else name  # a session's are the agent's own
            found |= set(beyond(hints[name], whole["properties"][name], where))
    assert {each.removeprefix(".") for each in found} == NOT_TAKEN


def body(made: httpx2.Request) -> set[str]:
    if not made.headers.get("content-type", "").startswith("application/json") or not made.content:
        return set()
    return set(json.loads(made.content))


def fields(endpoint: Endpoint) -> set[str]:
    if form := FORMS.get((endpoint.method, endpoint.path)):
        return {each.removesuffix("[]") for each in form["properties"]}
    if endpoint.request_type is None:
        return set()
    (_, schemas) = msgspec.json.schema_components([endpoint.request_type], ref_template="{name}")
    (ref,) = msgspec.json.schema_components([endpoint.request_type], ref_template="{name}")[0]
    return set(schemas[ref["$ref"]]["properties"])


def test_all_addresses_are_asked_for_by_some_method() -> None:
    """Which says that the methods above are all there are."""
    asked = set()
    for name in FOUND:
        made = request(name)
        found = _routes.match(made.url.path)
        assert found is not None
        asked.add((made.method, found[0][made.method].path))
    assert asked == {(route.method, route.path) for route in ROUTES}


def test_the_client_has_nothing_else_beside() -> None:
    beta = client().beta
    kinds = {name for name in dir(beta) if isinstance(getattr(beta, name), SyncAPIResource)}
    known = {name.partition(".")[0] for name in FOUND}
    assert kinds - known == NOT_SERVED & kinds


def test_what_no_other_test_asks_by_the_client_is_answered_as_it_expects(tmp_path: Path) -> None:
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
        held = beta.vaults.credentials.create(
            vault.id,
            auth={
                "type": "mcp_oauth",
                "mcp_server_url": "https://a.example/mcp",
                "access_token": "t",
            },
        )
        tried = beta.vaults.credentials.mcp_oauth_validate(held.id, vault_id=vault.id)
        assert tried.credential_id == held.id
        environment = beta.environments.create(name="e")
        agent = beta.agents.create(name="a", model="demo")
        first: Any = {"type": "user.message", "content": [{"type": "text", "text": "hi"}]}
        system: Any = {"type": "system.message", "content": [{"type": "text", "text": "be brief"}]}
        deployment = beta.deployments.create(
            name="d", agent=agent.id, environment_id=environment.id, initial_events=[first, system]
        )
        assert beta.deployments.retrieve(deployment.id) == deployment
        assert beta.deployments.update(deployment.id, description="x").description == "x"
        (model,) = beta.models.list()
        assert beta.models.retrieve(model.id) == model
        session = beta.sessions.create(agent=agent.id, environment_id=environment.id)
        (thread,) = beta.sessions.threads.list(session.id)
        with beta.sessions.threads.events.stream(thread.id, session_id=session.id) as stream:
            beta.sessions.events.send(session.id, events=[first])
            for event in stream:
                if event.type == "session.thread_status_idle":
                    break
        # The one thread of a session goes with it.
        with pytest.raises(BadRequestError, match="archive the session"):
            beta.sessions.threads.archive(thread.id, session_id=session.id)

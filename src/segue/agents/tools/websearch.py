"""The web_search tool, which uses the search provider that the workspace has configured.

The setting `web.search` names the provider: `searxng:https://search.example.org`, `brave` or
`tavily`. The API keys come from `BRAVE_API_KEY` and `TAVILY_API_KEY`. A URL after the name replaces
the provider's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from segue.model.event import ToolResult

from .base import Tool, ToolContext, ToolError, ToolInput, completed_result

TIMEOUT_SECONDS = 20.0
MAX_RESULTS = 10


class SearchInput(ToolInput, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=1000)]


class SearchResult(NamedTuple):
    title: str
    url: str
    extract: str


class Provider(NamedTuple):
    """A search provider: how to send a query, and where the response has its results."""

    url: str | None
    key_variable: str | None  # the environment variable with the API key
    method: str
    query_parameter: str
    parameters: Mapping[str, Any]  # sent with each query
    results_path: tuple[str, ...]
    extract_field: str
    key_header: str = "authorization"
    key_prefix: str = "Bearer "


PROVIDERS = {
    "searxng": Provider(
        url=None,
        key_variable=None,
        method="GET",
        query_parameter="q",
        parameters={"format": "json"},
        results_path=("results",),
        extract_field="content",
    ),
    "brave": Provider(
        url="https://api.search.brave.com/res/v1/web/search",
        key_variable="BRAVE_API_KEY",
        method="GET",
        query_parameter="q",
        parameters={"count": MAX_RESULTS},
        results_path=("web", "results"),
        extract_field="description",
        key_header="x-subscription-token",
        key_prefix="",
    ),
    "tavily": Provider(
        url="https://api.tavily.com/search",
        key_variable="TAVILY_API_KEY",
        method="POST",
        query_parameter="query",
        parameters={"max_results": MAX_RESULTS},
        results_path=("results",),
        extract_field="content",
    ),
}


def resolve_provider(setting: str) -> tuple[Provider, str]:
    """Return the provider and URL of a `web.search` setting. Raises ToolError if it is invalid."""
    name, _, own_url = setting.partition(":")
    provider = PROVIDERS.get(name)
    if provider is None:
        raise ToolError(f"web.search: {name!r} is not one of {', '.join(PROVIDERS)}")
    url = own_url or provider.url
    if url is None:
        raise ToolError(f"web.search: {name} needs an address, as in {name}:https://…")
    if name == "searxng" and not url.rstrip("/").endswith("/search"):
        url = url.rstrip("/") + "/search"
    return provider, url


async def search(setting: str, query: str, environ: Mapping[str, str]) -> list[SearchResult]:
    """Send a query to the configured provider. Raises ToolError if that fails."""
    import httpx2

    provider, url = resolve_provider(setting)
    headers = {"accept": "application/json"}
    if provider.key_variable is not None:
        key = environ.get(provider.key_variable)
        if not key:
            raise ToolError(f"web_search needs {provider.key_variable} in the environment")
        headers[provider.key_header] = provider.key_prefix + key
    parameters = {provider.query_parameter: query, **provider.parameters}
    payload: dict[str, Any] = (
        {"params": parameters} if provider.method == "GET" else {"json": parameters}
    )
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            response = await client.request(provider.method, url, headers=headers, **payload)
            response.raise_for_status()
            answer: Any = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise ToolError(f"the search failed: {error or type(error).__name__}") from None
    return _parse_results(provider, answer)


def _parse_results(provider: Provider, answer: Any) -> list[SearchResult]:
    for name in provider.results_path:
        answer = answer.get(name, ()) if isinstance(answer, dict) else ()
    return [
        SearchResult(
            title=str(item.get("title", "")),
            url=str(item["url"]),
            extract=str(item.get(provider.extract_field) or ""),
        )
        for item in answer
        if isinstance(item, dict) and "url" in item
    ][:MAX_RESULTS]


async def _web_search(context: ToolContext, arguments: SearchInput) -> ToolResult:
    setting = context.config.get("web.search")
    if not setting:
        raise ToolError("no search provider is configured; `segue config set web.search …`")
    results = await search(setting, arguments.query, os.environ)
    text = "\n\n".join("\n".join(filter(None, result)) for result in results)
    return completed_result(text or "Nothing found.")


SEARCH = Tool(
    "web_search",
    "search",
    "Search the web. Returns titles, addresses and extracts.",
    SearchInput,
    _web_search,
)

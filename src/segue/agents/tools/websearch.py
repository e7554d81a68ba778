"""web_search, through a provider that the workspace has configured.

`web.search` names it: `searxng:https://search.example.org`, or `brave` or `tavily`, whose keys come
from `BRAVE_API_KEY` and `TAVILY_API_KEY`. An address after the name replaces the provider's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from segue.model.event import ToolResult

from .base import Input, Tool, ToolContext, ToolError, done

SECONDS = 20.0
MAX_FOUND = 10


class Search(Input, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=1000)]


class Found(NamedTuple):
    title: str
    url: str
    about: str


class Provider(NamedTuple):
    """How one is asked, and where its answers are."""

    address: str | None
    key: str | None
    method: str
    ask: str  # the name of the query in the request
    fixed: Mapping[str, Any]
    found: tuple[str, ...]
    about: str
    header: str = "authorization"
    scheme: str = "Bearer "


PROVIDERS = {
    "searxng": Provider(None, None, "GET", "q", {"format": "json"}, ("results",), "content"),
    "brave": Provider(
        "https://api.search.brave.com/res/v1/web/search",
        "BRAVE_API_KEY",
        "GET",
        "q",
        {"count": MAX_FOUND},
        ("web", "results"),
        "description",
        "x-subscription-token",
        "",
    ),
    "tavily": Provider(
        "https://api.tavily.com/search",
        "TAVILY_API_KEY",
        "POST",
        "query",
        {"max_results": MAX_FOUND},
        ("results",),
        "content",
    ),
}


def resolve_provider(setting: str) -> tuple[Provider, str]:
    """The provider that a setting names, and its address; ToolError if it names none."""
    name, _, address = setting.partition(":")
    provider = PROVIDERS.get(name)
    if provider is None:
        raise ToolError(f"web.search: {name!r} is not one of {', '.join(PROVIDERS)}")
    where = address or provider.address
    if where is None:
        raise ToolError(f"web.search: {name} needs an address, as in {name}:https://…")
    if name == "searxng" and not where.rstrip("/").endswith("/search"):
        where = where.rstrip("/") + "/search"
    return provider, where


async def search(setting: str, query: str, environ: Mapping[str, str]) -> list[Found]:
    """What a provider finds."""
    import httpx2

    provider, where = resolve_provider(setting)
    headers = {"accept": "application/json"}
    if provider.key is not None:
        key = environ.get(provider.key)
        if not key:
            raise ToolError(f"web_search needs {provider.key} in the environment")
        headers[provider.header] = provider.scheme + key
    asked = {provider.ask: query, **provider.fixed}
    sent: dict[str, Any] = {"params": asked} if provider.method == "GET" else {"json": asked}
    try:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            answer = await client.request(provider.method, where, headers=headers, **sent)
            answer.raise_for_status()
            found: Any = answer.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise ToolError(f"the search failed: {error or type(error).__name__}") from None
    for name in provider.found:
        found = found.get(name, ()) if isinstance(found, dict) else ()
    return [
        Found(str(each.get("title", "")), str(each["url"]), str(each.get(provider.about) or ""))
        for each in found
        if isinstance(each, dict) and "url" in each
    ][:MAX_FOUND]


async def _search(context: ToolContext, given: Search) -> ToolResult:
    setting = context.config.get("web.search")
    if not setting:
        raise ToolError("no search provider is configured; `segue config set web.search …`")
    found = await search(setting, given.query, os.environ)
    return done("\n\n".join("\n".join(filter(None, each)) for each in found) or "Nothing found.")


SEARCH = Tool(
    "web_search",
    "search",
    "Search the web; titles, addresses and extracts.",
    Search,
    lambda given: f"Search the web for {given.query}",
    _search,
)

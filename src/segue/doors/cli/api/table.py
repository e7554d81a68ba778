"""The resources, their actions, and the flags of each: what the commands are made from."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["text", "number", "flag", "value", "texts", "values"]
Place = Literal["path", "query", "body"]


class Flag(NamedTuple):
    """A flag, and where in a request its value goes. `values` may be given several times."""

    name: str
    help: str
    kind: Kind = "text"
    place: Place = "query"
    key: str = ""

    @property
    def wire(self) -> str:
        return self.key or self.name.replace("-", "_")


class Action(NamedTuple):
    """One request, or the pages of a list, or a stream."""

    name: str
    method: str
    path: str
    help: str
    example: str
    flags: tuple[Flag, ...] = ()
    shape: Literal["one", "pages", "stream"] = "one"


def _path(name: str, what: str) -> Flag:
    return Flag(name, f"The id of the {what}; it may stand without the flag.", place="path")


def _body(name: str, help: str, kind: Kind = "text", key: str = "") -> Flag:
    return Flag(name, help, kind, "body", key)


_CREATED = tuple(
    Flag(
        f"created-at-{bound}",
        f"Only what was created {words} this time.",
        key=f"created_at[{bound}]",
    )
    for bound, words in (
        ("gt", "after"),
        ("gte", "at or after"),
        ("lt", "before"),
        ("lte", "at or before"),
    )
)
_LIMIT = Flag("limit", "How many a page holds.", "number")
_PAGE = Flag("page", "The cursor of a page, from an earlier answer.")
_ORDER = Flag("order", "asc or desc, by creation.")
_ARCHIVED = Flag("include-archived", "Archived ones too.", "flag")
_METADATA = _body("metadata", "Keys and values.", "value")
_SESSION = _path("session-id", "session")
_AGENT = _path("agent-id", "agent")
_ENVIRONMENT = _path("environment-id", "environment")

_AGENT_BODY = (
    _body("description", "What it is for."),
    _body("mcp-server", "An MCP server. Repeat it for more.", "values", "mcp_servers"),
    _METADATA,
    _body("model", "The model that answers: an id, or an object.", "value"),
    _body("multiagent", "The agents that it may start.", "value"),
    _body("name", "Its name."),
    _body("skill", "A skill. Repeat it for more.", "values", "skills"),
    _body("system", "Its system prompt."),
    _body("tool", "A tool or a set of them. Repeat it for more.", "values", "tools"),
)
_ENVIRONMENT_BODY = (
    _body("config", "Where and how it runs.", "value"),
    _body("description", "What it is for."),
    _METADATA,
    _body("name", "Its name."),
)

SESSIONS = (
    Action(
        "list",
        "GET",
        "/v1/sessions",
        "List sessions, the newest first, page after page.",
        "segue sessions list --status idle --status running --max-items 100",
        (
            Flag("agent-id", "Only sessions made with this agent."),
            Flag("agent-version", "With --agent-id: only of this version.", "number"),
            *_CREATED,
            Flag("deployment-id", "Only sessions that this deployment made."),
            _ARCHIVED,
            _LIMIT,
            Flag("memory-store-id", "Only sessions with this memory store."),
            _ORDER,
            _PAGE,
            Flag(
                "status",
                "Only sessions in this state. Repeat it for more.",
                "texts",
                key="statuses[]",
            ),
        ),
        "pages",
    ),
    Action(
        "retrieve",
        "GET",
        "/v1/sessions/{session_id}",
        "Show a session.",
        "segue sessions retrieve sesn_011CZkZAtmR3yMPDzynEDxu7",
        (_SESSION,),
    ),
    Action(
        "create",
        "POST",
        "/v1/sessions",
        "Make a session.",
        "segue sessions create --agent agent_01… --environment-id env_01… --title 'Fix the parser'",
        (
            _body("agent", "The agent: an id, or an object.", "value"),
            _body("environment-id", "The environment."),
            _body("budget", "What it may cost.", "value"),
            _body(
                "initial-event", "A first event. Repeat it for more.", "values", "initial_events"
            ),
            _METADATA,
            _body("resource", "A file, repository or memory store.", "values", "resources"),
            _body("title", "Its title."),
            _body("vault-id", "A vault. Repeat it for more.", "texts", "vault_ids"),
        ),
    ),
    Action(
        "update",
        "POST",
        "/v1/sessions/{session_id}",
        "Change a session's title or metadata.",
        "segue sessions update sesn_01… --title 'Fix the parser' --metadata '{ticket: 12}'",
        (
            _SESSION,
            _body("agent", "What to change of its agent.", "value"),
            _body("budget", "What it may cost.", "value"),
            _METADATA,
            _body("title", "Its title; null takes it away.", "value"),
            _body("vault-id", "A vault. Repeat it for more.", "texts", "vault_ids"),
        ),
    ),
    Action(
        "archive",
        "POST",
        "/v1/sessions/{session_id}/archive",
        "Archive a session.",
        "segue sessions archive sesn_01…",
        (_SESSION,),
    ),
    Action(
        "delete",
        "DELETE",
        "/v1/sessions/{session_id}",
        "Delete a session for good; `segue delete` moves it to the trash.",
        "segue sessions delete sesn_01…",
        (_SESSION,),
    ),
)

EVENTS = (
    Action(
        "list",
        "GET",
        "/v1/sessions/{session_id}/events",
        "List a session's events, page after page.",
        "segue sessions events list sesn_01… --type user.message --type agent.message",
        (
            _SESSION,
            *_CREATED,
            _LIMIT,
            _ORDER,
            _PAGE,
            Flag("type", "Only events of this type. Repeat it for more.", "texts", key="types[]"),
        ),
        "pages",
    ),
    Action(
        "send",
        "POST",
        "/v1/sessions/{session_id}/events",
        "Send events to a session: messages, answers, interrupts.",
        "segue sessions events send sesn_01… --event "
        "'{type: user.message, content: [{type: text, text: Hello}]}'",
        (_SESSION, _body("event", "An event. Repeat it for more.", "values", "events")),
    ),
    Action(
        "stream",
        "GET",
        "/v1/sessions/{session_id}/events/stream",
        "Show a session's events as they happen, until Ctrl-C.",
        "segue sessions events stream sesn_01… --format jsonl",
        (
            _SESSION,
            Flag(
                "event-delta",
                "Previews of this type of event too. Repeat it for more.",
                "texts",
                key="event_deltas[]",
            ),
        ),
        "stream",
    ),
)

AGENTS = (
    Action(
        "list",
        "GET",
        "/v1/agents",
        "List agents, the newest first.",
        "segue agents list",
        (*(flag for flag in _CREATED if flag.name.endswith("e")), _ARCHIVED, _LIMIT, _PAGE),
        "pages",
    ),
    Action(
        "retrieve",
        "GET",
        "/v1/agents/{agent_id}",
        "Show an agent.",
        "segue agents retrieve agent_01…",
        (_AGENT, Flag("version", "One of its versions.  [default: the newest]", "number")),
    ),
    Action(
        "create",
        "POST",
        "/v1/agents",
        "Make an agent.",
        "segue agents create --name Reviewer --model claude-sonnet-4-6 --system 'You review code.'",
        _AGENT_BODY,
    ),
    Action(
        "update",
        "POST",
        "/v1/agents/{agent_id}",
        "Make the next version of an agent.",
        "segue agents update agent_01… --version 1 --system 'You review Python.'",
        (_AGENT, _body("version", "The version that you have seen.", "number"), *_AGENT_BODY),
    ),
    Action(
        "archive",
        "POST",
        "/v1/agents/{agent_id}/archive",
        "Archive an agent.",
        "segue agents archive agent_01…",
        (_AGENT,),
    ),
)

VERSIONS = (
    Action(
        "list",
        "GET",
        "/v1/agents/{agent_id}/versions",
        "List an agent's versions, the newest first.",
        "segue agents versions list agent_01…",
        (_AGENT, _LIMIT, _PAGE),
        "pages",
    ),
)

ENVIRONMENTS = (
    Action(
        "list",
        "GET",
        "/v1/environments",
        "List environments, the newest first.",
        "segue environments list",
        (_ARCHIVED, _LIMIT, _PAGE),
        "pages",
    ),
    Action(
        "retrieve",
        "GET",
        "/v1/environments/{environment_id}",
        "Show an environment.",
        "segue environments retrieve env_01…",
        (_ENVIRONMENT,),
    ),
    Action(
        "create",
        "POST",
        "/v1/environments",
        "Make an environment.",
        "segue environments create --name sandbox",
        _ENVIRONMENT_BODY,
    ),
    Action(
        "update",
        "POST",
        "/v1/environments/{environment_id}",
        "Change an environment.",
        "segue environments update env_01… --description 'For reviews'",
        (_ENVIRONMENT, *_ENVIRONMENT_BODY),
    ),
    Action(
        "archive",
        "POST",
        "/v1/environments/{environment_id}/archive",
        "Archive an environment.",
        "segue environments archive env_01…",
        (_ENVIRONMENT,),
    ),
    Action(
        "delete",
        "DELETE",
        "/v1/environments/{environment_id}",
        "Delete an environment for good.",
        "segue environments delete env_01…",
        (_ENVIRONMENT,),
    ),
)

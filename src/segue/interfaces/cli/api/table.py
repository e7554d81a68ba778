"""The resources, their actions, and the flags of each: what the commands are made from."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["text", "number", "flag", "value", "texts", "values", "files"]
Place = Literal["path", "query", "body"]


class Flag(NamedTuple):
    """A flag, and where in a request its value goes. Plural kinds may be given several times."""

    name: str
    help: str
    kind: Kind = "text"
    place: Place = "query"
    key: str = ""

    @property
    def wire(self) -> str:
        return self.key or self.name.replace("-", "_")


class Action(NamedTuple):
    """One request, or the pages of a list, or a stream, or the bytes of a file."""

    name: str
    method: str
    path: str
    help: str
    example: str
    flags: tuple[Flag, ...] = ()
    shape: Literal["one", "pages", "stream", "file"] = "one"


def in_path(name: str, what: str) -> Flag:
    return Flag(name, f"The id of the {what}; it may stand without the flag.", place="path")


def in_body(name: str, help: str, kind: Kind = "text", key: str = "") -> Flag:
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
LIMIT = Flag("limit", "How many a page holds.", "number")
PAGE = Flag("page", "The cursor of a page, from an earlier answer.")
_ORDER = Flag("order", "asc or desc, by creation.")
_ARCHIVED = Flag("include-archived", "Archived ones too.", "flag")
_METADATA = in_body("metadata", "Keys and values.", "value")
_BUDGET = in_body(
    "budget",
    "What it may cost: {type: limit, max_list_cost: {amount: '2500', currency: USD}}, in cents.",
    "value",
)
_SESSION = in_path("session-id", "session")
_AGENT = in_path("agent-id", "agent")
_ENVIRONMENT = in_path("environment-id", "environment")

_AGENT_BODY = (
    in_body("description", "What it is for."),
    in_body("mcp-server", "An MCP server. Repeat it for more.", "values", "mcp_servers"),
    _METADATA,
    in_body("model", "The model that answers: an id, or an object.", "value"),
    in_body("multiagent", "The agents that it may start.", "value"),
    in_body("name", "Its name."),
    in_body("skill", "A skill. Repeat it for more.", "values", "skills"),
    in_body("system", "Its system prompt."),
    in_body("tool", "A tool or a set of them. Repeat it for more.", "values", "tools"),
)
_ENVIRONMENT_BODY = (
    in_body("config", "Where and how it runs.", "value"),
    in_body("description", "What it is for."),
    _METADATA,
    in_body("name", "Its name."),
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
            LIMIT,
            Flag("memory-store-id", "Only sessions with this memory store."),
            _ORDER,
            PAGE,
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
            in_body("agent", "The agent: an id, or an object.", "value"),
            in_body("environment-id", "The environment."),
            _BUDGET,
            in_body(
                "initial-event", "A first event. Repeat it for more.", "values", "initial_events"
            ),
            _METADATA,
            in_body("resource", "A file, repository or memory store.", "values", "resources"),
            in_body("title", "Its title."),
            in_body("vault-id", "A vault. Repeat it for more.", "texts", "vault_ids"),
        ),
    ),
    Action(
        "update",
        "POST",
        "/v1/sessions/{session_id}",
        "Change a session's title, metadata or budget.",
        "segue sessions update sesn_01… --title 'Fix the parser' --metadata '{ticket: 12}'",
        (
            _SESSION,
            in_body("agent", "What to change of its agent.", "value"),
            _BUDGET,
            _METADATA,
            in_body("title", "Its title; null takes it away.", "value"),
            in_body("vault-id", "A vault. Repeat it for more.", "texts", "vault_ids"),
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
            LIMIT,
            _ORDER,
            PAGE,
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
        (_SESSION, in_body("event", "An event. Repeat it for more.", "values", "events")),
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
        (*(flag for flag in _CREATED if flag.name.endswith("e")), _ARCHIVED, LIMIT, PAGE),
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
        (_AGENT, in_body("version", "The version that you have seen.", "number"), *_AGENT_BODY),
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
        (_AGENT, LIMIT, PAGE),
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
        (_ARCHIVED, LIMIT, PAGE),
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

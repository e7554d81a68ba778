"""Help texts of the REST API commands: what the OpenAPI document does not say."""

from __future__ import annotations

from typing import NamedTuple


class CommandHelp(NamedTuple):
    """A sentence and an example."""

    summary: str
    example: str


# The groups that become commands, with their help. Other routes of the API have no command.
GROUPS = {
    "sessions": CommandHelp(
        "Use sessions by the REST API's names, in the local store or on a server.\n\n"
        "`beta:sessions` means the same.",
        "segue sessions list --max-items 20",
    ),
    "sessions events": CommandHelp(
        "List, send and stream a session's events.", "segue sessions events list sesn_01…"
    ),
    "agents": CommandHelp("Use agents by the REST API's names.", "segue agents list"),
    "agents versions": CommandHelp(
        "List an agent's versions.", "segue agents versions list agent_01…"
    ),
    "environments": CommandHelp(
        "Use environments by the REST API's names.", "segue environments list"
    ),
    "skills": CommandHelp(
        "Use skills (instructions and files for agents) by the REST API's names.",
        "segue skills create --file ./reviewing",
    ),
    "skills versions": CommandHelp(
        "Use a skill's versions.", "segue skills versions list skill_01…"
    ),
    "webhooks": CommandHelp(
        "Announce events of a workspace to other servers; `segue serve` delivers them.",
        "segue webhooks create --url https://example.com/hook --event-type session.status_idled",
    ),
    "webhooks deliveries": CommandHelp(
        "See what a webhook received.", "segue webhooks deliveries list whk_01…"
    ),
}

COMMANDS = {
    "sessions list": CommandHelp(
        "List sessions, the newest first, page by page.",
        "segue sessions list --status idle --status running --max-items 100",
    ),
    "sessions retrieve": CommandHelp(
        "Show a session.", "segue sessions retrieve sesn_011CZkZAtmR3yMPDzynEDxu7"
    ),
    "sessions create": CommandHelp(
        "Create a session.",
        "segue sessions create --agent agent_01… --environment-id env_01… --title 'Fix the parser'",
    ),
    "sessions update": CommandHelp(
        "Change a session's title, metadata or budget.",
        "segue sessions update sesn_01… --title 'Fix the parser' --metadata '{ticket: 12}'",
    ),
    "sessions archive": CommandHelp("Archive a session.", "segue sessions archive sesn_01…"),
    "sessions delete": CommandHelp(
        "Delete a session permanently; `segue delete` moves it to the trash.",
        "segue sessions delete sesn_01…",
    ),
    "sessions events list": CommandHelp(
        "List a session's events, page by page.",
        "segue sessions events list sesn_01… --type user.message --type agent.message",
    ),
    "sessions events send": CommandHelp(
        "Send events to a session: messages, answers, interrupts.",
        "segue sessions events send sesn_01… --event "
        "'{type: user.message, content: [{type: text, text: Hello}]}'",
    ),
    "sessions events stream": CommandHelp(
        "Show a session's events as they happen, until Ctrl-C.",
        "segue sessions events stream sesn_01… --format jsonl",
    ),
    "agents list": CommandHelp("List agents, the newest first.", "segue agents list"),
    "agents retrieve": CommandHelp("Show an agent.", "segue agents retrieve agent_01…"),
    "agents create": CommandHelp(
        "Create an agent.",
        "segue agents create --name Reviewer --model claude-sonnet-4-6 --system 'You review code.'",
    ),
    "agents update": CommandHelp(
        "Create the next version of an agent.",
        "segue agents update agent_01… --version 1 --system 'You review Python.'",
    ),
    "agents archive": CommandHelp("Archive an agent.", "segue agents archive agent_01…"),
    "agents versions list": CommandHelp(
        "List an agent's versions, the newest first.", "segue agents versions list agent_01…"
    ),
    "environments list": CommandHelp(
        "List environments, the newest first.", "segue environments list"
    ),
    "environments retrieve": CommandHelp(
        "Show an environment.", "segue environments retrieve env_01…"
    ),
    "environments create": CommandHelp(
        "Create an environment.", "segue environments create --name sandbox"
    ),
    "environments update": CommandHelp(
        "Change an environment.", "segue environments update env_01… --description 'For reviews'"
    ),
    "environments archive": CommandHelp(
        "Archive an environment.", "segue environments archive env_01…"
    ),
    "environments delete": CommandHelp(
        "Delete an environment permanently.", "segue environments delete env_01…"
    ),
    "skills list": CommandHelp("List skills, the newest first.", "segue skills list"),
    "skills retrieve": CommandHelp("Show a skill.", "segue skills retrieve skill_01…"),
    "skills create": CommandHelp(
        "Upload a skill: a directory that contains a SKILL.md.",
        "segue skills create --file ./reviewing --display-name 'How we review'",
    ),
    "skills delete": CommandHelp(
        "Delete a skill and all its versions permanently.", "segue skills delete skill_01…"
    ),
    "skills versions list": CommandHelp(
        "List a skill's versions, the newest first.", "segue skills versions list skill_01…"
    ),
    "skills versions retrieve": CommandHelp(
        "Show a version.", "segue skills versions retrieve skill_01… 2"
    ),
    "skills versions create": CommandHelp(
        "Upload the next version of a skill.",
        "segue skills versions create skill_01… --file ./reviewing",
    ),
    "skills versions delete": CommandHelp(
        "Delete a version permanently; delete the skill to delete its last version.",
        "segue skills versions delete skill_01… 1",
    ),
    "skills versions download": CommandHelp(
        "Download a version's files as a zip.",
        "segue skills versions download skill_01… latest -o reviewing.zip",
    ),
    "webhooks list": CommandHelp("List webhooks, the newest first.", "segue webhooks list"),
    "webhooks retrieve": CommandHelp("Show a webhook.", "segue webhooks retrieve whk_01…"),
    "webhooks create": CommandHelp(
        "Create a webhook. Its secret is shown once.",
        "segue webhooks create --url https://example.com/hook --event-type session.status_idled",
    ),
    "webhooks update": CommandHelp(
        "Change or disable a webhook.", "segue webhooks update whk_01… --enabled false"
    ),
    "webhooks delete": CommandHelp(
        "Delete a webhook with its deliveries permanently.", "segue webhooks delete whk_01…"
    ),
    "webhooks rotate-secret": CommandHelp(
        "Replace the secret; both are valid for some time.",
        "segue webhooks rotate-secret whk_01… --overlap-seconds 3600",
    ),
    "webhooks test": CommandHelp(
        "Send an event of a made-up change now.",
        "segue webhooks test whk_01… --event-type session.created",
    ),
    "webhooks deliveries list": CommandHelp(
        "List deliveries, the newest first, with all attempts.",
        "segue webhooks deliveries list whk_01…",
    ),
    "webhooks deliveries retrieve": CommandHelp(
        "Show a delivery.", "segue webhooks deliveries retrieve whk_01… 12"
    ),
    "webhooks deliveries resend": CommandHelp(
        "Send the event of a delivery again now.", "segue webhooks deliveries resend whk_01… 12"
    ),
}

# Help by flag, or by command and flag if the flag means something else there.
FLAGS = {
    "agent": "The agent: an id, or an object.",
    "agent-id": "Only sessions of this agent.",
    "agent-version": "With --agent-id: only sessions of this version.",
    "budget": "The cost limit, in cents: "
    "{type: limit, max_list_cost: {amount: '2500', currency: USD}}.",
    "config": "Where and how it runs.",
    "created-at-gt": "Only items created after this time.",
    "created-at-gte": "Only items created at or after this time.",
    "created-at-lt": "Only items created before this time.",
    "created-at-lte": "Only items created at or before this time.",
    "cwd": "Only sessions of this directory.",
    "deployment-id": "Only sessions of this deployment.",
    "description": "What it is for.",
    "display-name": "The name that people see.  [default: the skill's name]",
    "enabled": "Whether events are delivered: true or false.",
    "environment-id": "The environment.",
    "event": "An event. Repeatable.",
    "event-type": "A type of event, such as session.status_idled; * for all. Repeatable.",
    "webhooks test event-type": "The type of the event.  [default: the webhook's first]",
    "overlap-seconds": "How long the previous secret stays valid.  [default: 86400]",
    "url": "Where events are sent: https://HOST/PATH.",
    "event-delta": "Also show previews of events of this type. Repeatable.",
    "execution-identity": "The account that the agent runs as.",
    "file": "The skill's directory, a zip file of it, or one of its files. Repeatable.",
    "include-archived": "Include archived items.",
    "initial-event": "A first event. Repeatable.",
    "limit": "The page size.",
    "mcp-server": "An MCP server. Repeatable.",
    "memory-store-id": "Only sessions with this memory store.",
    "metadata": "Keys and values.",
    "model": "The model: an id, or an object.",
    "multiagent": "The agents that it may start.",
    "name": "The name.",
    "order": "asc or desc, by creation.",
    "page": "The cursor of a page, from an earlier response.",
    "q": "Only sessions that contain these words.",
    "resource": "A file, repository or memory store. Repeatable.",
    "scope": "account or organization.",
    "skill": "A skill. Repeatable.",
    "source": "Only sessions of this source.",
    "status": "Only sessions with this status. Repeatable.",
    "system": "The system prompt.",
    "tag": "Only sessions with this tag.",
    "title": "The title.",
    "tool": "A tool or a set of tools. Repeatable.",
    "type": "Only events of this type. Repeatable.",
    "vault-id": "A vault. Repeatable.",
    "agents retrieve version": "A version.  [default: the newest]",
    "agents update version": "The version that this change is based on.",
    "sessions update agent": "Changes to the agent.",
    "sessions update title": "The title; null removes it.",
    "skills list source": "Only skills of this source: custom.",
}
PATH_PARAMETERS = {
    "session_id": "The session id; may be given without the flag.",
    "agent_id": "The agent id; may be given without the flag.",
    "environment_id": "The environment id; may be given without the flag.",
    "skill_id": "The skill id; may be given without the flag.",
    "webhook_id": "The webhook id; may be given without the flag.",
    "delivery_id": "The delivery id; may be given without the flag.",
    "version": "The version's number or id, or latest; may be given without the flag.",
}

# Text flags that accept JSON or YAML, so that null can be passed.
STRUCTURED_FLAGS = {"sessions update title"}

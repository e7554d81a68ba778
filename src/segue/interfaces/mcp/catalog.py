"""The tools, resources and prompts that the server offers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from segue.model import codec
from segue.model.errors import InvalidInput, NotFound

from . import arguments, history_tools, work_tools, writes
from .answers import DEFAULT_CHARS, MAX_CHARS
from .caller import Call

Handler = Callable[[Call, Any], Awaitable[str]]
SESSION_URI = "segue://session/{id}"
TURN_URI = "segue://session/{id}/turn/{number}"
_URI = re.compile(r"segue://session/(?P<id>[^/]+)(?:/turn/(?P<turn>[0-9]{1,6}))?")
MAX_LISTED_RESOURCES = 50


@cache
def _required_fields(arguments: Any) -> frozenset[str]:
    fields = msgspec.structs.fields(arguments)
    return frozenset(field.name for field in fields if field.required)


class ToolSpec(NamedTuple):
    """One tool: its arguments, whose docstring describes it, and what answers a call."""

    name: str
    arguments: Any
    handler: Handler
    writes: bool = False

    @property
    def description(self) -> str:
        """Return the text that models choose the tool by."""
        return inspect.getdoc(self.arguments) or ""

    async def run(self, call: Call, values: dict[str, Any]) -> str:
        """Answer a call. Raises InvalidInput for arguments that do not fit.

        Some models fill every optional argument: with null or an empty text, if they mean none.
        """
        required = _required_fields(self.arguments)
        given = {
            n: value for n, value in values.items() if n in required or value not in (None, "")
        }
        try:
            parsed = codec.convert(given, self.arguments)
        except msgspec.ValidationError as error:
            raise InvalidInput(codec.explain(error)) from None
        return await self.handler(call, parsed)


_TOOLS = [
    ToolSpec("search_sessions", arguments.SearchSessions, history_tools.search_sessions),
    ToolSpec("read_session", arguments.ReadSession, history_tools.read_session),
    ToolSpec("sessions_touching", arguments.SessionsTouching, work_tools.sessions_touching),
    ToolSpec("recent_work", arguments.RecentWork, work_tools.recent_work),
    ToolSpec("find_command", arguments.FindCommand, work_tools.find_command),
    ToolSpec("similar_failures", arguments.SimilarFailures, work_tools.similar_failures),
    ToolSpec("set_title", arguments.SetTitle, writes.set_title, writes=True),
    ToolSpec("set_tag", arguments.SetTag, writes.set_tag, writes=True),
    ToolSpec("add_note", arguments.AddNote, writes.add_note, writes=True),
]


def tools(*, allow_write: bool) -> dict[str, ToolSpec]:
    """Return the tools by name; those that change sessions only with `allow_write`."""
    return {tool.name: tool for tool in _TOOLS if allow_write or not tool.writes}


async def read_resource(call: Call, uri: str) -> str:
    """Return a session's outline or one of its turns as Markdown.

    Raises NotFound if there is no such resource.
    """
    match = _URI.fullmatch(uri)
    if match is None:
        raise NotFound(f"there is no resource {uri!r}; use {SESSION_URI} or {TURN_URI}")
    session = await call.session(match["id"])
    if match["turn"]:
        text = await history_tools.turn_text(call, session, int(match["turn"]), MAX_CHARS)
    else:
        outline = arguments.ReadSession(session=session.id, max_chars=MAX_CHARS)
        text = await history_tools.read_session(call, outline)
    return text


class PromptSpec(NamedTuple):
    """A prompt that a person can choose in a client."""

    name: str
    title: str
    description: str
    text: str


PROMPTS = {
    prompt.name: prompt
    for prompt in (
        PromptSpec(
            "continue_from",
            "Continue from a session",
            "Continue the work of an earlier session, of any tool.",
            "Continue the work of this earlier session. First check the state of the files, then "
            "continue with what was left open. Use read_session for details.",
        ),
        PromptSpec(
            "summarise_for_handoff",
            "Summarise for handoff",
            "Summarise a session for a person or an agent who continues it.",
            "Summarise this session for a handoff: the goal, what was decided and why, what was "
            "changed, what failed, what is open, and the commands to continue. Use read_session "
            "for details, and name events by their number.",
        ),
    )
}


async def prompt_text(call: Call, name: str, session_name: str) -> str:
    """Return the text of a prompt with a session's outline and its last turn."""
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise NotFound(f"there is no prompt {name!r}; use {' or '.join(PROMPTS)}")
    session = await call.session(session_name)
    read = arguments.ReadSession(session=session.id, max_chars=DEFAULT_CHARS)
    parts = [prompt.text, await history_tools.read_session(call, read)]
    if prompts := await history_tools.prompts_of(call, session):
        parts.append(await history_tools.turn_text(call, session, len(prompts), DEFAULT_CHARS))
    return "\n\n---\n\n".join(parts)


async def recent_resources(call: Call) -> list[tuple[str, str, str]]:
    """Return the uri, the title and a description of the sessions that were active last."""
    sessions, _ = await call.page(await call.query(limit=MAX_LISTED_RESOURCES), None)
    return [
        (
            SESSION_URI.replace("{id}", session.id),
            call.title(session),
            call.line(session).partition("\n")[2],
        )
        for session in sessions
    ]

"""A program's hooks, in the shapes of Claude's Agent SDK, around the turns that it asks for.

They are `async def hook(input, tool_use_id, context)` and answer with a dict. They run one after
the other, in their order. A hook that fails before a tool is used refuses the use: it may be there
to protect something.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from segue.agents.base import Turn
from segue.agents.permission import PermissionOverride
from segue.agents.turn_hooks import HookedCall, PostToolDecision, PreToolDecision
from segue.model.content import Text, plain_text
from segue.model.errors import AgentFailed, InvalidInput
from segue.model.event import ToolResult
from segue.model.session import Session
from segue.sources.claude.exchange.jsonl_writer import result_block

from .options import sdk_name

Hook = Callable[[Any, str | None, Any], Awaitable[Mapping[str, Any]]]

EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "PreCompact",
    "Stop",
)
SECONDS = 60.0  # that a hook has, unless it is given others
_PLAIN = re.compile(r"[\w|]+")

log = logging.getLogger("segue.hooks")


class _Entry(NamedTuple):
    """Some hooks, for the tools whose name matches; for all, if there is no pattern."""

    pattern: re.Pattern[str] | None
    hooks: tuple[Hook, ...]
    seconds: float

    def matches(self, name: str | None) -> bool:
        return self.pattern is None or name is None or self.pattern.search(name) is not None


class ProgramHooks:
    """All hooks of a session."""

    def __init__(self, given: Mapping[str, Iterable[Any]]) -> None:
        """By event, each a list of objects or dicts with `matcher`, `hooks` and `timeout`."""
        if unknown := sorted(given.keys() - set(EVENTS)):
            raise InvalidInput(
                f"hooks: there is no {unknown[0]!r} here; there are {', '.join(EVENTS)}"
            )
        self._entries = {event: [_entry(event, each) for each in given[event]] for event in given}

    async def prompted(self, session: Session, mode: str | None, text: str) -> str | None:
        """What hooks add to a prompt; InvalidInput if they block it."""
        context: list[str] = []
        asked = _Asked("UserPromptSubmit", session, mode, prompt=text)
        for hook in self._for(asked):
            said = await asked.say(hook)
            if said.stops or said.blocks:
                raise InvalidInput(f"a hook blocked the prompt: {said.why}")
            context += said.context
        return _joined(context)

    # What a turn asks of them.

    async def before_tool(self, turn: Turn, call: HookedCall) -> PreToolDecision:
        asked = _Asked("PreToolUse", turn.session, turn.session.mode, call)
        context: list[str] = []
        override: PermissionOverride = None
        for hook in self._for(asked):
            try:
                said = await asked.say(hook)
                verdict = said.specific.get("permissionDecision")
                if verdict not in (None, "allow", "ask", "deny"):
                    raise AgentFailed(f"permissionDecision {verdict!r} is not possible here")
                changed = said.specific.get("updatedInput")
                if not isinstance(changed, Mapping | None):
                    raise AgentFailed(f"updatedInput {changed!r} is no dict")
            except AgentFailed as error:
                return PreToolDecision(refusal=error.message)
            if said.stops or said.blocks or verdict == "deny":
                return PreToolDecision(refusal=f"a hook refused this: {said.why}", stop=said.stops)
            context += said.context
            if verdict is not None:
                override = "ask" if "ask" in (override, verdict) else "allow"
            if changed is not None:
                asked.input["tool_input"] = dict(changed)
        given = asked.input["tool_input"]
        new = None if given == call.input else given
        return PreToolDecision(override=override, input=new, context=_joined(context))

    async def after_tool(
        self, turn: Turn, call: HookedCall, result: ToolResult
    ) -> PostToolDecision:
        failed = result.status != "completed"
        event = "PostToolUseFailure" if failed else "PostToolUse"
        told = {"error": plain_text(result.content)} if failed else {"tool_response": _told(result)}
        asked = _Asked(event, turn.session, turn.session.mode, call, **told)
        context: list[str] = []
        output: str | None = None
        stop = False
        for hook in self._for(asked):
            said = await asked.say(hook)
            context += [*said.context, *([said.why] if said.blocks else [])]
            stop = stop or said.stops
            for key in ("updatedToolOutput", "updatedMCPToolOutput"):
                if (changed := said.specific.get(key)) is not None and not failed:
                    asked.input["tool_response"] = changed
                    output = changed if isinstance(changed, str) else _json(changed)
        return PostToolDecision(output=output, context=_joined(context), stop=stop)

    async def before_compaction(self, turn: Turn) -> None:
        told: dict[str, Any] = {"trigger": "auto", "custom_instructions": None}
        asked = _Asked("PreCompact", turn.session, turn.session.mode, **told)
        for hook in self._for(asked):
            await asked.say(hook)

    async def before_stop(self, turn: Turn, *, continued: bool) -> str | None:
        asked = _Asked("Stop", turn.session, turn.session.mode, stop_hook_active=continued)
        reasons: list[str] = []
        stops = False
        for hook in self._for(asked):
            said = await asked.say(hook)
            stops = stops or said.stops
            reasons += [said.why] if said.blocks else []
        return None if stops else _joined(reasons)

    def _for(self, asked: _Asked) -> list[tuple[Hook, float]]:
        entries = self._entries.get(asked.event, ())
        name = asked.input.get("tool_name")
        return [
            (hook, each.seconds) for each in entries if each.matches(name) for hook in each.hooks
        ]


class _Asked:
    """What hooks are told of one event; the next hears what the last one changed."""

    def __init__(
        self,
        event: str,
        session: Session,
        mode: str | None,
        call: HookedCall | None = None,
        **told: Any,
    ) -> None:
        self.event = event
        self._call = call
        self.input: dict[str, Any] = {
            "hook_event_name": event,
            "session_id": session.id,
            "transcript_path": "",  # there is none: sessions are in a store
            "cwd": session.cwd,
            "permission_mode": mode or "default",
            **told,
        }
        if call is not None:
            name = sdk_name(call.name, call.server)
            self.input |= {"tool_name": name, "tool_input": call.input, "tool_use_id": call.id}

    async def say(self, hook: tuple[Hook, float]) -> _Said:
        function, seconds = hook
        try:
            async with asyncio.timeout(seconds):
                told = deepcopy(self.input)  # what a hook does to it changes nothing here
                answer = await function(told, self._call and self._call.id, {"signal": None})
            said = _Said(self.event, answer)
        except Exception as error:
            words = str(error) or f"it took longer than {seconds:g} s"
            why = f"a hook for {self.event} failed: {type(error).__name__}: {words}"
            raise AgentFailed(why) from error
        if said.warning:
            log.warning("%s: %s", self.event, said.warning)
        return said


class _Said:
    """A hook's answer. Those of Python have `continue_` for what is a word of the language."""

    def __init__(self, event: str, answer: Mapping[str, Any] | None) -> None:
        answer = answer or {}
        self.specific: Mapping[str, Any] = answer.get("hookSpecificOutput") or {}
        named = self.specific.get("hookEventName", event)
        if named != event:
            raise ValueError(f"a hook for {event} answered for {named}")
        self.stops = answer.get("continue_", answer.get("continue", True)) is False
        self.blocks = answer.get("decision") in ("block", "deny")
        self.warning = answer.get("systemMessage")
        reason = self.specific.get("permissionDecisionReason") or answer.get("reason")
        self.why = str(reason or answer.get("stopReason") or "it did not say why")

    @property
    def context(self) -> list[str]:
        said = self.specific.get("additionalContext")
        return [str(said)] if said else []


def _entry(event: str, given: Any) -> _Entry:
    def get(name: str) -> Any:
        return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)

    hooks = tuple(get("hooks") or ())
    if not hooks or not all(callable(hook) for hook in hooks):
        raise InvalidInput(f"hooks: {event} needs matchers, each with a list of functions")
    matcher = get("matcher")
    try:
        pattern = None if matcher in (None, "", "*") else _pattern(matcher)
    except re.error as error:
        raise InvalidInput(f"hooks: {matcher!r} is no pattern: {error}") from None
    return _Entry(pattern, hooks, get("timeout") or SECONDS)


def _pattern(matcher: str) -> re.Pattern[str]:
    """Names, with | between them, are whole names; anything else is a regular expression."""
    return re.compile(rf"^(?:{matcher})$" if _PLAIN.fullmatch(matcher) else matcher)


def _told(result: ToolResult) -> Any:
    """What a tool gave: words, or blocks where there is more than words."""
    words = all(isinstance(block, Text) for block in result.content)
    return plain_text(result.content) if words else result_block(result)["content"]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _joined(texts: Iterable[str]) -> str | None:
    return "\n\n".join(texts) or None

"""The demo agent: no model, no key, and honest about it.

It echoes, and does what a prompt's lines that begin with a slash tell it to. That is enough to see
every kind of event, and to test every door, with a real agent that is always there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any, get_args

from segue.model import ids
from segue.model.content import Diff, Text, as_content, plain_text
from segue.model.event import (
    AgentMessage,
    Compacted,
    Failed,
    InfoChanged,
    ModelAsked,
    ModelCalled,
    OutcomeEvaluated,
    PlanChanged,
    PlanEntry,
    StatusChanged,
    ToolCall,
    ToolKind,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.lifecycle import StopReason

from .base import Answer, Turn
from .permission import check_permission, permission_extra, refusal

HELP = """\
This is segue's demo agent. It has no model: it repeats what it is told. Lines that begin with a \
slash are instructions; everything else is said back.

    /say TEXT            a message, streamed word by word
    /think TEXT          a thought
    /plan A; > B; x C    a plan: A to do, B begun, C done
    /tool NAME TEXT      a tool call with TEXT as its result
    /ask QUESTION        a tool call that asks for permission first
    /read PATH           read a file under the session's directories
    /write PATH TEXT     write one, after asking, and show the difference
    /custom NAME {…}     call a tool that the client runs, with JSON input, and say its result
    /mcp SERVER TOOL {…} call a tool of a connected MCP server with JSON arguments
    /history             how much of the conversation it was given
    /more                take in prompts that were sent since this turn began
    /title TEXT          name the session
    /system              say what was sent along as a system message
    /model               begin a request to a model, of which there is none; /usage ends it
    /usage IN OUT        report tokens used
    /retry TEXT          fail with TEXT for now, wait a moment and go on
    /compact TEXT        a compaction with TEXT as the summary
    /slow SECONDS        from here on, pause so long before each word
    /wait SECONDS        pause once
    /repeat N TEXT       N messages
    /fail TEXT           fail with an error
    /stop REASON         end the turn: end_turn, max_tokens, max_turn_requests or refusal
    /help                this text
"""

_INSTRUCTION = re.compile(r"^/([a-z]+)(?:\s+(.*))?$", re.DOTALL)
_STOPS = {"end_turn", "max_tokens", "max_turn_requests", "refusal"} & set(get_args(StopReason))
_MARKS: dict[str, Any] = {">": "in_progress", "x": "completed"}


class DemoFailure(Exception):
    """What `/fail` asked for."""


class DemoAgent:
    """Does what the prompt says."""

    async def run(self, turn: Turn) -> StopReason:
        return await _Performance(turn).run()


class _Performance:
    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._pause = 0.0
        self._stop: StopReason | None = None
        self._asked: str | None = None

    async def run(self) -> StopReason:
        stop = await self._perform()
        if (outcome := self._turn.outcome) is not None:
            why = "The demo agent has no grader: nothing was looked at."
            for result, told in (("evaluating", None), ("failed", why)):
                await self._turn.emit(
                    OutcomeEvaluated(
                        outcome_id=outcome.outcome_id,
                        iteration=0,
                        result=result,  # type: ignore[arg-type]  # each is one of its own
                        explanation=told,
                    )
                )
        return stop

    async def _perform(self) -> StopReason:
        spoken: list[str] = []
        instructed = False
        for line in self._turn.text.splitlines():
            match = _INSTRUCTION.match(line)
            act = self._acts().get(match[1]) if match else None
            if act is None:
                spoken.append(line)
                continue
            instructed = True
            await self._echo(spoken)
            await act((match[2] or "").strip() if match else "")
            if self._stop is not None:
                return self._stop
        if instructed:
            await self._echo(spoken)
        else:
            text = "\n".join(spoken).strip() or "nothing in words"
            await self._speak(
                "I am segue's demo agent: no model is configured, so I can only repeat you."
                f" (`/help` shows what else I do.) You said:\n\n{text}"
            )
        return "end_turn"

    def _acts(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "say": self._speak,
            "think": self._think,
            "plan": self._plan,
            "tool": self._tool,
            "ask": self._ask,
            "read": self._read,
            "write": self._write,
            "custom": self._custom,
            "mcp": self._mcp,
            "history": self._history,
            "more": self._more,
            "title": self._title,
            "system": self._system,
            "model": self._model,
            "usage": self._usage,
            "retry": self._retry,
            "compact": self._compact,
            "slow": self._slow,
            "wait": self._wait,
            "repeat": self._repeat,
            "fail": self._fail,
            "stop": self._end,
            "help": self._help,
        }

    async def _echo(self, lines: list[str]) -> None:
        text = "\n".join(lines).strip()
        lines.clear()
        if text:
            await self._speak(text)

    async def _speak(self, text: str) -> None:
        await self._stream(text, "message")

    async def _think(self, text: str) -> None:
        await self._stream(text, "thought")

    async def _stream(self, text: str, kind: Any) -> None:
        for word in re.findall(r"\S+\s*|\s+", text):
            if self._pause:
                await asyncio.sleep(self._pause)
            await self._turn.delta(word, kind)
        await self._turn.emit()

    async def _plan(self, text: str) -> None:
        entries = []
        for part in filter(None, (part.strip() for part in text.split(";"))):
            mark, _, rest = part.partition(" ")
            if mark in _MARKS and rest:
                entries.append(PlanEntry(content=rest.strip(), status=_MARKS[mark]))
            else:
                entries.append(PlanEntry(content=part))
        await self._turn.emit(PlanChanged(entries=tuple(entries)))

    async def _tool(self, text: str) -> None:
        name, _, output = text.partition(" ")
        call = await self._turn.tool(name or "demo", title=f"{name or 'demo'} (demo)")
        await self._turn.emit(ToolResult(call_id=call, content=as_content(output.strip())))

    async def _permit(
        self,
        name: str,
        title: str,
        question: str,
        kind: ToolKind,
        input: Any = None,
    ) -> tuple[str, Answer]:
        """A tool call that may not be done unasked, and what came of asking."""
        turn, call = self._turn, ids.new_id()
        extra = permission_extra(turn.session, name, kind, "always_ask")
        await turn.emit(
            ToolCall(call_id=call, name=name, title=title, kind=kind, input=input, extra=extra)
        )
        return call, await check_permission(turn, call, question, name, kind, "always_ask")

    async def _ask(self, text: str) -> None:
        question = text or "May I?"
        call, answer = await self._permit("ask", question, question, "think")
        said = answer.option.name if answer.option else answer.note or "no answer"
        status: Any = "completed" if answer.allowed else "failed"
        await self._turn.emit(ToolResult(call_id=call, status=status, content=as_content(said)))

    async def _read(self, text: str) -> None:
        call = await self._turn.tool(
            "read", title=f"Read {text}", kind="read", input={"path": text}
        )
        try:
            with open(self._inside(text), encoding="utf-8", errors="replace") as file:
                result = ToolResult(call_id=call, content=as_content(file.read(100_000)))
        except OSError as error:
            result = _failure(call, error)
        await self._turn.emit(result)

    async def _write(self, text: str) -> None:
        path, _, content = text.partition(" ")
        asked = {"path": path, "content": content}
        call, answer = await self._permit("write", f"Write {path}", f"Write {path}?", "edit", asked)
        if not answer.allowed:
            why = as_content(refusal(answer))
            await self._turn.emit(ToolResult(call_id=call, status="failed", content=why))
            return
        if answer.input is not None:
            path, content = str(answer.input.get("path")), str(answer.input.get("content"))
        try:
            target = self._inside(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            old = _replace(target, content + "\n")
            diff = Diff(path=target, old=old, new=content + "\n")
            result = ToolResult(call_id=call, content=(diff,))
        except (OSError, UnicodeError) as error:
            result = _failure(call, error)
        await self._turn.emit(result)

    def _inside(self, path: str) -> str:
        """The real path, if it is under the session's directories."""
        from .tools.path_guard import PathGuard, ToolError

        try:
            return PathGuard(self._turn.roots, mounts=self._turn.mounts).resolve(path).path
        except ToolError as error:
            raise PermissionError(str(error)) from None

    async def _custom(self, text: str) -> None:
        name, given = text.partition("{")[0].strip(), _object(text)
        if not name or given is None:
            await self._speak("/custom needs a name, and its input must be one JSON object.")
            return
        call = await self._turn.tool(name, title=f"{name} (custom)", input=given, custom=True)
        result = (await self._turn.result(call))[0].body
        assert isinstance(result, ToolResult)
        told = plain_text(result.content) or "nothing in words"
        await self._speak(f"{name} {result.status}: {told}")

    async def _mcp(self, text: str) -> None:
        parts = shlex.split(text.partition("{")[0])
        server, tool = (*parts, "", "")[:2]
        arguments = _object(text)
        if arguments is None:
            await self._speak("The arguments of /mcp must be one JSON object.")
            return
        call = await self._turn.tool(tool, title=f"{server}: {tool}", input=arguments)
        answer = await check_permission(self._turn, call, tool, tool, "other", "always_allow")
        if answer.allowed:
            result = await self._turn.tools.call(server, tool, arguments)
        else:  # only to plan
            why = as_content(refusal(answer))
            result = ToolResult(call_id=call, status="failed", content=why)
        await self._turn.emit(
            ToolResult(
                call_id=call, status=result.status, content=result.content, output=result.output
            )
        )

    async def _history(self, _: str) -> None:
        events = await self._turn.history()
        mine = sum(isinstance(event.body, AgentMessage) for event in events)
        yours = sum(isinstance(event.body, UserMessage) for event in events)
        await self._speak(f"Before this turn: {yours} messages of yours, {mine} of mine.")

    async def _more(self, _: str) -> None:
        for event in await self._turn.more():
            if isinstance(event.body, UserMessage):
                texts = [block.text for block in event.body.content if isinstance(block, Text)]
                await self._speak("You added: " + " ".join(texts))

    async def _title(self, text: str) -> None:
        await self._turn.emit(InfoChanged(title=text or None, by="agent"))

    async def _usage(self, text: str) -> None:
        given = [int(number) for number in text.split() if number.isdigit()]
        read, wrote = (*given, 0, 0)[:2]
        usage = Usage(input_tokens=read, output_tokens=wrote)
        await self._turn.emit(ModelCalled(model="demo", usage=usage, asked=self._asked))
        self._asked = None

    async def _model(self, _: str) -> None:
        asked = (await self._turn.emit(ModelAsked(model="demo")))[-1]
        self._asked = asked.id

    async def _system(self, _: str) -> None:
        await self._speak(plain_text(self._turn.system) or "There was no system message.")

    async def _retry(self, text: str) -> None:
        turn = self._turn.id
        await self._turn.emit(
            Failed(message=text or "overloaded", code="model_overloaded_error", retry="retrying"),
            StatusChanged(status="rescheduling", turn=turn),
        )
        await asyncio.sleep(0.05)
        await self._turn.emit(StatusChanged(status="running", turn=turn))

    async def _compact(self, text: str) -> None:
        await self._turn.emit(Compacted(summary=as_content(text), trigger="manual"))

    async def _slow(self, text: str) -> None:
        self._pause = _seconds(text)

    async def _wait(self, text: str) -> None:
        await asyncio.sleep(_seconds(text))

    async def _repeat(self, text: str) -> None:
        count, _, rest = text.partition(" ")
        for number in range(int(count) if count.isdigit() else 1):
            await self._turn.say(f"{rest} ({number + 1})")

    async def _fail(self, text: str) -> None:
        raise DemoFailure(text or "the demo agent failed, as it was told to")

    async def _end(self, text: str) -> None:
        self._stop = text if text in _STOPS else "end_turn"  # type: ignore[assignment]  # in _STOPS

    async def _help(self, _: str) -> None:
        await self._turn.say(HELP)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that stands at the end, an empty one if there is none; None if it is none."""
    try:
        found = json.loads(text[text.index("{") :]) if "{" in text else {}
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 3600.0)
    except ValueError:
        return 1.0


def _failure(call: str, error: Exception) -> ToolResult:
    text = getattr(error, "strerror", None) or str(error)
    return ToolResult(call_id=call, status="failed", content=as_content(text))


def _replace(path: str, content: str) -> str | None:
    """Write a file by way of a new one beside it; what it held before, or None."""
    old: str | None = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            old = file.read()
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".segue-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(content)
        if old is not None:
            os.chmod(beside, os.stat(path).st_mode & 0o7777)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    return old

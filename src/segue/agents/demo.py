"""The demo agent, which needs no model and no API key.

It repeats the prompt, and runs the lines that begin with a slash as commands. The commands produce
every kind of event, so that people can try, and tests can exercise, every interface.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from msgspec.structs import replace

from segue.model import ids
from segue.model.content import FileChange, Text, as_content, plain_text
from segue.model.event import (
    AgentMessage,
    Compacted,
    Failed,
    InfoChanged,
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
from segue.model.tools.patches import file_change

from .base import Answer, Turn
from .permission import check_permission, permission_fields, refusal

if TYPE_CHECKING:
    from .tools.path_guard import PathGuard

T = TypeVar("T")

MAX_WORDS_CHARACTERS = 100_000  # a longer text is not streamed word by word
MAX_PIECES = 1_000
HELP = """\
This is segue's demo agent. It has no model: it repeats your prompt. Lines that begin with a \
slash are commands; it repeats all other lines.

    /say TEXT            a message, streamed word by word
    /think TEXT          a thought
    /plan A; > B; x C    a plan: A pending, B in progress, C completed
    /tool NAME TEXT      a tool call with TEXT as its result
    /ask QUESTION        a tool call that asks for permission first
    /read PATH           read a file in the session's directories
    /write PATH TEXT     write a file, after asking for permission, and show the diff
    /custom NAME {…}     call a tool that the client runs, with JSON input, and show its result
    /mcp SERVER TOOL {…} call a tool of a connected MCP server with JSON arguments
    /history             the number of messages before this turn
    /more                add prompts that were sent since this turn began
    /title TEXT          set the session's title
    /system              show the system message that was sent with the prompt
    /model               begin a simulated model request; /usage ends it
    /usage IN OUT        report token usage
    /retry TEXT          report TEXT as a temporary failure, then continue
    /compact TEXT        a compaction with TEXT as the summary
    /slow SECONDS        pause before each of the following words
    /wait SECONDS        pause once
    /repeat N TEXT       N messages
    /fail TEXT           fail with an error
    /stop REASON         end the turn: end_turn, max_tokens, max_turn_requests or refusal
    /help                this text
"""

MAX_READ_BYTES = 100_000
MAX_REPLACED_BYTES = 10_000_000
_COMMAND = re.compile(r"^/([a-z]+)(?:\s+(.*))?$", re.DOTALL)
_STOPS = {"end_turn", "max_tokens", "max_turn_requests", "refusal"} & set(get_args(StopReason))
_MARKS: dict[str, Any] = {">": "in_progress", "x": "completed"}


class DemoFailure(Exception):
    """The failure that `/fail` requested."""


class DemoAgent:
    """Runs the commands in a prompt."""

    async def run(self, turn: Turn) -> StopReason:
        return await _DemoTurn(turn).run()


class _DemoTurn:
    """One prompt that the demo agent answers."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._word_seconds = 0.0
        self._stop_reason: StopReason | None = None
        self._request_id: str | None = None  # the simulated model request that is open
        self._read_only: tuple[str, ...] = ()  # directories that it may not change

    async def run(self) -> StopReason:
        self._read_only = await self._turn.read_only_directories()
        stop_reason = await self._run_lines()
        if (outcome := self._turn.outcome) is not None:
            failure = "The demo agent has no grader: nothing was looked at."
            for result, explanation in (("evaluating", None), ("failed", failure)):
                await self._turn.emit(
                    OutcomeEvaluated(
                        outcome_id=outcome.outcome_id,
                        iteration=0,
                        result=result,  # type: ignore[arg-type]  # both are valid results
                        explanation=explanation,
                    )
                )
        return stop_reason

    async def _run_lines(self) -> StopReason:
        plain_lines: list[str] = []
        has_commands = False
        commands = self._commands()
        for line in self._turn.text.splitlines():
            match = _COMMAND.match(line)
            command = commands.get(match[1]) if match else None
            if match is None or command is None:
                plain_lines.append(line)
                continue
            has_commands = True
            await self._echo(plain_lines)
            await command((match[2] or "").strip())
            if self._stop_reason is not None:
                return self._stop_reason
        if has_commands:
            await self._echo(plain_lines)
        else:
            text = "\n".join(plain_lines).strip() or "no text"
            await self._say(
                "I am segue's demo agent: no model is configured, so I can only repeat you."
                f" (`/help` shows what else I do.) You said:\n\n{text}"
            )
        return "end_turn"

    def _commands(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "say": self._say,
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
            "stop": self._end_turn,
            "help": self._help,
        }

    async def _echo(self, lines: list[str]) -> None:
        text = "\n".join(lines).strip()
        lines.clear()
        if text:
            await self._say(text)

    async def _say(self, text: str) -> None:
        await self._stream(text, "message")

    async def _think(self, text: str) -> None:
        await self._stream(text, "thought")

    async def _stream(self, text: str, kind: Any) -> None:
        for word in _pieces(text):
            if self._word_seconds:
                await asyncio.sleep(self._word_seconds)
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
        call = await self._turn.start_tool(name or "demo", title=f"{name or 'demo'} (demo)")
        await self._turn.emit(ToolResult(call_id=call, content=as_content(output.strip())))

    async def _call_with_permission(
        self,
        name: str,
        title: str,
        question: str,
        kind: ToolKind,
        input: Any = None,
    ) -> tuple[str, Answer]:
        """Store a tool call, ask for permission, and return the call's id and the answer."""
        turn, call = self._turn, ids.new_id()
        fields = permission_fields(turn, name, kind, "always_ask")
        await turn.emit(
            ToolCall(call_id=call, name=name, title=title, kind=kind, input=input, **fields)
        )
        return call, await check_permission(turn, call, question, name, kind, "always_ask")

    async def _ask(self, text: str) -> None:
        question = text or "May I?"
        call, answer = await self._call_with_permission("ask", question, question, "think")
        answer_text = answer.option.name if answer.option else answer.note or "no answer"
        status: Any = "completed" if answer.allowed else "failed"
        await self._turn.emit(
            ToolResult(call_id=call, status=status, content=as_content(answer_text))
        )

    async def _read(self, text: str) -> None:
        call = await self._turn.start_tool(
            "read", title=f"Read {text}", kind="read", input={"path": text}
        )
        try:
            content = as_content(await asyncio.to_thread(self._read_file, text))
            result = ToolResult(call_id=call, content=content)
        except OSError as error:
            result = _failed_result(call, error)
        await self._turn.emit(result)

    async def _write(self, text: str) -> None:
        path, _, content = text.partition(" ")
        arguments = {"path": path, "content": content}
        call, answer = await self._call_with_permission(
            "write", f"Write {path}", f"Write {path}?", "edit", arguments
        )
        if not answer.allowed:
            reason = as_content(refusal(answer))
            await self._turn.emit(ToolResult(call_id=call, status="failed", content=reason))
            return
        if answer.input is not None:
            path, content = str(answer.input.get("path")), str(answer.input.get("content"))
        try:
            change = await asyncio.to_thread(self._replace_file, path, content + "\n")
            result = ToolResult(call_id=call, content=(change,))
        except (OSError, UnicodeError) as error:
            result = _failed_result(call, error)
        await self._turn.emit(result)

    def _read_file(self, path: str) -> str:
        """Return the text of a file. Raises PermissionError if it cannot be read."""
        return self._read_bytes(path, MAX_READ_BYTES).decode("utf-8", "replace")

    def _read_bytes(self, path: str, limit: int) -> bytes:
        _, data, _ = self._in_directories(lambda paths: paths.read_file(path, limit))
        return data

    def _replace_file(self, path: str, content: str) -> FileChange:
        """Write a file and return the difference. Raises PermissionError if that fails."""
        try:
            old: bytes | None = self._read_bytes(path, MAX_REPLACED_BYTES)
        except PermissionError:
            old = None  # a new or unreadable file; replace_file checks whether it may be written
        data = content.encode()
        file = self._in_directories(lambda paths: paths.replace_file(path, data))
        return file_change(file.path, old, data)

    def _in_directories(self, operation: Callable[[PathGuard], T]) -> T:
        """Return the result of a file operation. Raises PermissionError if it fails."""
        from .tools.path_guard import PathGuard, ToolError

        turn = self._turn
        paths = PathGuard(
            turn.roots, strict=not turn.local, mounts=turn.mounts, read_only=self._read_only
        )
        try:
            return operation(paths)
        except ToolError as error:
            raise PermissionError(str(error)) from None

    async def _custom(self, text: str) -> None:
        name, arguments = text.partition("{")[0].strip(), _parse_object(text)
        if not name or arguments is None:
            await self._say("/custom needs a tool name, and its input must be one JSON object.")
            return
        call = await self._turn.start_tool(
            name, title=f"{name} (custom)", input=arguments, custom=True
        )
        result = (await self._turn.result(call))[0].body
        assert isinstance(result, ToolResult)
        output = plain_text(result.content) or "no text"
        await self._say(f"{name} {result.status}: {output}")

    async def _mcp(self, text: str) -> None:
        parts = shlex.split(text.partition("{")[0])
        server, tool = (*parts, "", "")[:2]
        arguments = _parse_object(text)
        if arguments is None:
            await self._say("The arguments of /mcp must be one JSON object.")
            return
        call = await self._turn.start_tool(tool, title=f"{server}: {tool}", input=arguments)
        answer = await check_permission(self._turn, call, tool, tool, "other", "always_allow")
        if answer.allowed:
            result = await self._turn.tools.call(server, tool, arguments)
        else:  # plan mode
            reason = as_content(refusal(answer))
            result = ToolResult(call_id=call, status="failed", content=reason)
        await self._turn.emit(replace(result, call_id=call))

    async def _history(self, _: str) -> None:
        events = await self._turn.history()
        from_agent = sum(isinstance(event.body, AgentMessage) for event in events)
        from_user = sum(isinstance(event.body, UserMessage) for event in events)
        await self._say(f"Before this turn: {from_user} messages of yours, {from_agent} of mine.")

    async def _more(self, _: str) -> None:
        for event in await self._turn.take_new_prompts():
            if isinstance(event.body, UserMessage):
                texts = [block.text for block in event.body.content if isinstance(block, Text)]
                await self._say("You added: " + " ".join(texts))

    async def _title(self, text: str) -> None:
        await self._turn.emit(InfoChanged(title=text or None, by="agent"))

    async def _usage(self, text: str) -> None:
        counts = [int(number) for number in text.split() if number.isdigit()]
        input_tokens, output_tokens = (*counts, 0, 0)[:2]
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        await self._turn.emit(ModelCalled(model="demo", usage=usage, asked=self._request_id))
        self._request_id = None

    async def _model(self, _: str) -> None:
        self._request_id = await self._turn.begin_request("demo")

    async def _system(self, _: str) -> None:
        await self._say(plain_text(self._turn.system) or "There was no system message.")

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
        self._word_seconds = _parse_seconds(text)

    async def _wait(self, text: str) -> None:
        await asyncio.sleep(_parse_seconds(text))

    async def _repeat(self, text: str) -> None:
        count, _, message = text.partition(" ")
        for number in range(int(count) if count.isdigit() else 1):
            await self._turn.send_message(f"{message} ({number + 1})")

    async def _fail(self, text: str) -> None:
        raise DemoFailure(text or "the demo agent failed because of /fail")

    async def _end_turn(self, text: str) -> None:
        self._stop_reason = text if text in _STOPS else "end_turn"  # type: ignore[assignment]  # in _STOPS

    async def _help(self, _: str) -> None:
        await self._turn.send_message(HELP)


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object at the end of `text`: {} if there is none, None if it is invalid."""
    try:
        value = json.loads(text[text.index("{") :]) if "{" in text else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _parse_seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 3600.0)
    except ValueError:
        return 1.0


def _failed_result(call: str, error: Exception) -> ToolResult:
    return ToolResult(call_id=call, status="failed", content=as_content(str(error)))


def _pieces(text: str) -> list[str]:
    """Return the words of a text; of a long text, pieces of equal length.

    A client may send megabytes, and each piece costs time of the event loop.
    """
    if len(text) <= MAX_WORDS_CHARACTERS:
        return re.findall(r"\S+\s*|\s+", text)
    size = -(-len(text) // MAX_PIECES)
    return [text[start : start + size] for start in range(0, len(text), size)]

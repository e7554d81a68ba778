"""ToolRun: a tool call of an agent, from its beginning to its result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol

from segue.model import ids
from segue.model.content import Block, Content, Diff, FileChange, Text, as_content
from segue.model.event import (
    AnyBody,
    ConfigChanged,
    Draft,
    Event,
    Location,
    Option,
    ToolCall,
    ToolCallChanged,
    ToolKind,
    ToolResult,
)
from segue.model.session import ALWAYS_ALLOWED, Session
from segue.model.tools.patches import file_change

from .client import PROTOCOL, Terminal
from .ports import ALLOW, ALLOW_ALWAYS, REJECT, Answer

UPDATE_SECONDS = 0.25  # between two stored updates of a call's output

Paths = Iterable[str | Location]


class CallSteps(Protocol):
    """The part of a turn that tool calls use."""

    @property
    def session(self) -> Session: ...
    async def emit(self, *bodies: AnyBody | Draft) -> list[Event]: ...
    async def request_permission(
        self, title: str, options: Sequence[Option], call_id: str | None
    ) -> Answer: ...


class ToolRun:
    """A tool call: an asynchronous context, whose end is the result of the call.

        async with turn.tool("edit", kind="edit", input={"path": path}, locations=[path]) as call:
            if not (await call.request_permission()).allowed:
                return call.fail("not allowed")
            path.write_text(new)
            call.diff(path, old, new)

    An exception in the block makes the call fail with the exception's text, and is raised again.

    A diff that is added before the permission is requested is a proposal, which clients show with
    the request. The result has it only if the user allows the call and the call completes.
    """

    def __init__(
        self,
        steps: CallSteps,
        name: str,
        *,
        input: Any = None,
        title: str | None = None,
        kind: ToolKind = "other",
        content: str | Block | Iterable[Block] = (),
        locations: Paths = (),
        meta: dict[str, Any] | None = None,
    ) -> None:
        self._steps = steps
        self.id = ids.new_id()
        self._call = ToolCall(
            call_id=self.id,
            name=name,
            title=title,
            kind=kind,
            input=input,
            content=as_content(content),
            locations=_locations(locations),
            extra=_extra(meta),
        )
        self._content: list[Block] = []
        self._proposed: list[Block] = []  # the blocks of `_content` from before a request
        self._progress: str | None = None
        self._shown: str | None = None  # the terminal that the call shows
        self._stored_at = 0.0
        self._failed = False
        self.output: Any = None  # the raw output, for programs
        self.exit_code: int | None = None  # of the command that the call ran

    async def __aenter__(self) -> ToolRun:
        await self._steps.emit(self._call)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            return  # the turn is cancelled, and the engine ends its open calls
        if error is not None:
            self.fail(str(error) or type(error).__name__)
        if self._failed:
            self._withdraw_proposals()
        result = ToolResult(
            call_id=self.id,
            status="failed" if self._failed else "completed",
            content=tuple(self._content),
            output=self.output,
            exit_code=self.exit_code,
        )
        if self._stored_at and not self._content:
            # The result would leave the last progress in place.
            cleared = ToolCallChanged(call_id=self.id, content=self._call.content)
            await self._steps.emit(cleared, result)
        else:
            await self._steps.emit(result)

    async def update(
        self,
        *,
        title: str | None = None,
        kind: ToolKind | None = None,
        input: Any = None,
        locations: Paths | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Change what the client shows of the call; None leaves a field as it is."""
        fields: dict[str, Any] = {"title": title, "kind": kind, "input": input}
        changed = {name: value for name, value in fields.items() if value is not None}
        if locations is not None:
            changed["locations"] = _locations(locations)
        await self._steps.emit(ToolCallChanged(call_id=self.id, extra=_extra(meta), **changed))

    async def write(self, text: str) -> None:
        """Append to the output of the call. Clients get it at most four times a second."""
        last = self._content[-1] if self._content else None
        if isinstance(last, Text):
            self._content[-1] = Text(text=last.text + text)
        else:
            self._content.append(Text(text=text))
        await self._store_content()

    async def progress(self, text: str) -> None:
        """Show how far the call is, until the next progress or its end. Each is shown at most four
        times a second.
        """
        self._progress = text
        await self._store_content()

    def add(self, content: str | Block | Iterable[Block]) -> None:
        """Add blocks to the result of the call."""
        self._content += as_content(content)

    def diff(self, path: Any, old: str | None, new: str) -> None:
        """Add a changed file to the result; `old` is None for a new file."""
        before = None if old is None else old.encode("utf-8", "replace")
        self.add(file_change(str(path), before, new.encode("utf-8", "replace")))

    async def show(self, terminal: Terminal) -> None:
        """Show a terminal of the client in the call, while the terminal exists."""
        self._shown = terminal.id
        await self._store_content(at_once=True)

    def fail(self, text: str) -> None:
        """Make the call fail when the block ends, with a text that says why."""
        self._failed = True
        self.add(text)

    async def request_permission(
        self,
        title: str | None = None,
        options: Sequence[Option] = (ALLOW, ALLOW_ALWAYS, REJECT),
    ) -> Answer:
        """Ask the user for permission to run the call, and wait for the answer.

        If the user always allows the tool, the session remembers its name, and later calls that
        offer the same are allowed without a request.
        """
        always = next((option for option in options if option.kind == "allow_always"), None)
        if always and self._call.name in self._steps.session.options.get(ALWAYS_ALLOWED, ()):
            return Answer(option=always)
        await self._store_content(at_once=bool(self._content))
        self._proposed = list(self._content)
        name = title or self._call.title or self._call.name
        answer = await self._steps.request_permission(name, options, self.id)
        await remember_permission(self._steps, self._call.name, answer)
        if not answer.allowed:
            self._withdraw_proposals()
        return answer

    def _withdraw_proposals(self) -> None:
        """Remove the diffs from before the request: the files were not changed."""
        withdrawn = {id(block) for block in self._proposed if isinstance(block, Diff | FileChange)}
        self._content = [block for block in self._content if id(block) not in withdrawn]

    async def _store_content(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._stored_at < UPDATE_SECONDS:
            return
        self._stored_at = now
        content: Content = (*self._call.content, *self._content)
        if self._progress is not None:
            content = (*content, Text(text=self._progress))
        extra = {} if self._shown is None else {PROTOCOL: {"terminal": self._shown}}
        await self._steps.emit(ToolCallChanged(call_id=self.id, content=content, extra=extra))


async def remember_permission(steps: CallSteps, name: str, answer: Answer) -> None:
    """Remember in the session that the user always allows a tool."""
    names = steps.session.options.get(ALWAYS_ALLOWED, ())
    always = answer.option is not None and answer.option.kind == "allow_always"
    if always and name not in names:
        await steps.emit(ConfigChanged(options={ALWAYS_ALLOWED: sorted({*names, name})}))


def _locations(paths: Paths) -> tuple[Location, ...]:
    return tuple(path if isinstance(path, Location) else Location(path=str(path)) for path in paths)


def _extra(meta: dict[str, Any] | None) -> dict[str, Any]:
    return {} if meta is None else {PROTOCOL: {"_meta": meta}}

"""The events that a new session starts with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from segue.hub.turns.inbox import SystemText
from segue.hub.turns.service import TurnService
from segue.model import ids
from segue.model.content import Content
from segue.model.errors import InvalidInput
from segue.model.principal import Principal
from segue.model.session import Session

from .content_blocks import (
    BlockIn,
    Body,
    SearchResultIn,
    TextIn,
    Uploaded,
    file_ids,
    parse_blocks,
)
from .files import FileBody, Files
from .records import Records

MAX_RUBRIC_LENGTH = 262_144
MAX_FILE_BYTES = 32 * 1024 * 1024  # of all files in a message

Blocks = Annotated[tuple[BlockIn, ...], Meta(min_length=1, max_length=1000)]
SendStep = Callable[[Session], Awaitable[object]]


class UserMessage(Body, frozen=True, tag_field="type", tag="user.message"):
    content: Blocks


class TextRubric(Body, frozen=True, tag_field="type", tag="text"):
    content: Annotated[str, Meta(min_length=1, max_length=MAX_RUBRIC_LENGTH)]


class FileRubric(Body, frozen=True, tag_field="type", tag="file"):
    file_id: str


class DefineOutcome(Body, frozen=True, tag_field="type", tag="user.define_outcome"):
    description: Annotated[str, Meta(min_length=1)]
    rubric: TextRubric | FileRubric
    max_iterations: Annotated[int, Meta(ge=1, le=20)] | None = None


class SystemMessage(Body, frozen=True, tag_field="type", tag="system.message"):
    content: Annotated[tuple[TextIn, ...], Meta(min_length=1, max_length=1000)]


InitialEvent = UserMessage | DefineOutcome
FirstEvent = InitialEvent | SystemMessage


class FirstEvents:
    """Check events before a session exists, and send them to it once it does."""

    def __init__(self, records: Records, files: Files, turns: TurnService) -> None:
        self._records = records
        self._files = files
        self._turns = turns

    async def prepare(self, principal: Principal, events: Sequence[FirstEvent]) -> list[SendStep]:
        """Return the steps that send events to a session. Raises InvalidInput or NotFound."""
        system = system_message(events)
        prompts = [event for event in events if not isinstance(event, SystemMessage)]
        if sum(isinstance(event, DefineOutcome) for event in prompts) > 1:
            raise InvalidInput("initial_events: at most one may be a user.define_outcome")
        return [
            await self._prepare_outcome(principal, event)
            if isinstance(event, DefineOutcome)
            else await self._prepare_message(
                principal, event, system if event is prompts[-1] else None
            )
            for event in prompts
        ]

    async def _prepare_message(
        self, principal: Principal, message: UserMessage, system: SystemText | None
    ) -> SendStep:
        content = await self.read_content(principal.workspace, message.content)

        async def send(session: Session) -> None:
            await self._turns.submit(
                principal, session.id, content, system=system, replay_to_late_stream=True
            )

        return send

    async def _prepare_outcome(self, principal: Principal, outcome: DefineOutcome) -> SendStep:
        rubric = await self.read_rubric(principal.workspace, outcome)

        async def send(session: Session) -> None:
            await self._turns.define_outcome(
                principal, session.id, outcome.description, rubric, outcome.max_iterations or 3
            )

        return send

    async def read_content(
        self, workspace: str, blocks: Sequence[BlockIn | SearchResultIn]
    ) -> Content:
        """Return the content of blocks, with the files that they refer to.

        Raises NotFound for a file that does not exist, InvalidInput if the files are too large.
        """
        files: dict[str, Uploaded] = {}
        for id in set(file_ids(blocks)):
            file = await self._records.resolve(workspace, "file", id, field="content")
            body = FileBody.of(file)
            size = body.size + sum(len(uploaded.data) for uploaded in files.values())
            if size > MAX_FILE_BYTES:
                raise InvalidInput(
                    f"content: files in messages may have at most {MAX_FILE_BYTES} bytes;"
                    " mount larger ones"
                )
            data = b"".join([part async for part in self._files.read(file)])
            files[id] = Uploaded(body.mime_type or "", data)
        return parse_blocks(blocks, files)

    async def read_rubric(self, workspace: str, outcome: DefineOutcome) -> dict[str, Any]:
        """Return the rubric of an outcome, with the text of its file.

        Raises NotFound or InvalidInput if the file does not exist, is too long or is not text.
        """
        rubric: dict[str, Any] = to_builtins(outcome.rubric)
        if isinstance(outcome.rubric, FileRubric):
            rubric["content"] = await self._read_rubric_file(workspace, outcome.rubric.file_id)
        return rubric

    async def _read_rubric_file(self, workspace: str, file_id: str) -> str:
        file = await self._records.resolve(workspace, "file", file_id, field="rubric.file_id")
        data = b""
        async for part in self._files.read(file):
            data += part
            if len(data) > 4 * MAX_RUBRIC_LENGTH:
                break
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise InvalidInput("rubric.file_id: the file is not UTF-8 text") from None
        if len(text) > MAX_RUBRIC_LENGTH:
            raise InvalidInput(f"rubric.file_id: longer than {MAX_RUBRIC_LENGTH} characters")
        return text


def system_message(
    events: Iterable[object], *, follows: tuple[type, ...] = ()
) -> SystemText | None:
    """Return the system message at the end of some events, or None.

    Raises InvalidInput unless it is the last event and follows a user message or one of the types
    `follows`.
    """
    events = list(events)
    for index, event in enumerate(events):
        if isinstance(event, SystemMessage):
            if index != len(events) - 1:
                raise InvalidInput("system.message: must be the last of the events")
            if index == 0 or not isinstance(events[index - 1], (UserMessage, *follows)):
                raise InvalidInput("system.message: must follow a user.message or a tool's result")
            return SystemText(id=ids.new_id(), content=parse_blocks(event.content))
    return None

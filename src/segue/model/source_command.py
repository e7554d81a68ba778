"""Commands that a source adds to the command line: `segue SOURCE COMMAND`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from .event import Event
from .session import Session


class CommandArgument(NamedTuple):
    """A positional argument: a session, or a directory that exists."""

    kind: Literal["session", "directory"]  # also the name of the function's parameter
    required: bool = True


class CommandOption(NamedTuple):
    """A flag, or with a default a number."""

    name: str  # without dashes; also the name of the function's parameter
    help: str
    default: int | None = None


class Note(NamedTuple):
    """A remark for standard error. A `problem` makes the exit code 1."""

    text: str
    problem: bool = False


class TranscriptChanged(NamedTuple):
    """A transcript has changed in a way that lists show: an imported copy is imported again."""

    native_id: str


# A string is a line for standard output.
CommandOutput = str | Note | TranscriptChanged


class SourceCommand(NamedTuple):
    """A command that maintains a source's own files.

    `run` gets a `Session` (None if it was left out), the path of a directory, and the values of
    the options, all by name.
    """

    name: str
    help: str
    run: Callable[..., Iterator[CommandOutput]]
    arguments: tuple[CommandArgument, ...] = ()
    options: tuple[CommandOption, ...] = ()


class Conversation(NamedTuple):
    """A session and the events of its conversation, as its transcript has them."""

    session: Session
    events: Sequence[Event]


class DocumentCommand(NamedTuple):
    """A command that writes a session's conversation as Markdown or HTML."""

    name: str
    help: str
    read: Callable[[Session], Conversation]


class SourceCommands(NamedTuple):
    """All commands of a source, and the help of their group."""

    help: str
    commands: tuple[SourceCommand | DocumentCommand, ...]

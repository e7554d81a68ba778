"""Show a turn as it happens: as plain text, or in a terminal as Markdown with a spinner."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

import click

from segue.interfaces.cli.output.markdown import MarkdownBlocks, markdown
from segue.interfaces.cli.output.tables import terminal_columns
from segue.interfaces.cli.output.text import event_text, safe

if TYPE_CHECKING:
    from segue.model.event import Delta, Event, ToolCall

_SPINNER = "dots"
_REFRESHES_PER_SECOND = 8
_OUTPUT_LINES = 6  # of a tool that runs
_MAX_OUTPUT_CHARACTERS = 4_000


class TurnDisplay(Protocol):
    """Shows the deltas and events of one turn."""

    def wait(self) -> None:
        """Show that the turn runs, until the next output."""

    def pause(self) -> None:
        """Leave the terminal to a question, until `wait`."""

    def add_delta(self, delta: Delta) -> None:
        """Show a part of a message."""

    def finish_message(self, event: Event) -> bool:
        """Complete a message that was shown in parts; return False if the event is not this one."""

    def show(self, event: Event, call: ToolCall | None) -> None:
        """Show an event. `call` is the tool call that a permission request is about."""

    def close(self) -> None:
        """Show the rest of an incomplete message, and stop."""


def open_display() -> TurnDisplay:
    """Return the display for standard output."""
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return LiveDisplay() if is_terminal else PlainDisplay()


class PlainDisplay:
    """Prints text as it arrives."""

    def __init__(self) -> None:
        self._message = ""

    def wait(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def add_delta(self, delta: Delta) -> None:
        click.echo(click.style(safe(delta.text), dim=delta.kind == "thought"), nl=False)
        self._message = delta.message

    def finish_message(self, event: Event) -> bool:
        if self._message != event.id:
            return False
        click.echo()
        return True

    def show(self, event: Event, call: ToolCall | None) -> None:
        if (text := event_text(event, call)) is not None:
            click.echo(text)

    def close(self) -> None:
        pass


class LiveDisplay:
    """Renders Markdown block by block. The block that is being written is drawn again and again."""

    def __init__(self) -> None:
        from rich.console import Console

        no_color = bool(os.environ.get("NO_COLOR"))
        self._console = Console(highlight=False, no_color=no_color)
        self._live: Any = None
        self._message = ""
        self._is_thought = False
        self._blocks = MarkdownBlocks()
        self._output = ""  # of a tool that runs

    def wait(self) -> None:
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                transient=True,
                refresh_per_second=_REFRESHES_PER_SECOND,
                vertical_overflow="ellipsis",
            )
            self._live.start()
        self._draw()

    def pause(self) -> None:
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None

    def add_delta(self, delta: Delta) -> None:
        if delta.kind == "request":
            return
        if delta.kind == "output":
            self._output = (self._output + safe(delta.text))[-_MAX_OUTPUT_CHARACTERS:]
            self._draw()
            return
        if delta.message != self._message:
            self._flush()
            self._message, self._is_thought = delta.message, delta.kind == "thought"
        if blocks := self._blocks.add(safe(delta.text)):
            self._print(self._rendered(blocks))
        self._draw()

    def finish_message(self, event: Event) -> bool:
        if not self._message or self._message != event.id:
            return False
        self._flush()
        self._draw()
        return True

    def show(self, event: Event, call: ToolCall | None) -> None:
        self._output = ""
        text = event_text(event, call, columns=terminal_columns())
        if text is not None:
            from rich.text import Text

            self._print(Text.from_ansi(text))
        self._draw()

    def close(self) -> None:
        self._flush()
        self.pause()

    def _draw(self) -> None:
        """Draw the block that is being written, the end of a tool's output, or the spinner."""
        if self._live is None:
            return
        if self._output.strip():
            from rich.text import Text

            lines = self._output.rstrip("\n").split("\n")[-_OUTPUT_LINES:]
            self._live.update(Text("\n".join(lines), style="dim"))
        elif self._blocks.rest.strip():
            self._live.update(self._rendered(self._blocks.rest))
        else:
            from rich.spinner import Spinner

            if not isinstance(self._live.renderable, Spinner):
                self._live.update(Spinner(_SPINNER))

    def _flush(self) -> None:
        """Print the rest of a message."""
        rest, self._blocks = self._blocks.rest, MarkdownBlocks()
        self._message = ""
        if rest.strip():
            self._print(self._rendered(rest))

    def _rendered(self, text: str) -> Any:
        from rich.styled import Styled

        message = markdown(text.strip("\n"), terminal_columns())
        return Styled(message, "dim") if self._is_thought else message

    def _print(self, renderable: Any) -> None:
        self._console.print(renderable)

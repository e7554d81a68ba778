"""Group what an agent did into replies of its model, as tools record them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from segue.model.content import plain_text

from .conversation import Call, Interruption, Item, Message, Summary, Thought


class Reply(NamedTuple):
    """One reply of a model: its thoughts, its text and a call of a tool, as far as it has them."""

    thoughts: tuple[Thought, ...] = ()
    message: Message | None = None
    call: Call | None = None

    @property
    def parts(self) -> list[Thought | Message | Call]:
        """The items of the reply, in order."""
        others = [part for part in (self.message, self.call) if part is not None]
        return [*self.thoughts, *others]

    @property
    def id(self) -> str:
        """The id of the first item."""
        return self.parts[0].id

    @property
    def at(self) -> int:
        """When the first item began."""
        return self.parts[0].at

    @property
    def text(self) -> str:
        """The text of the message; empty if there is none."""
        return "" if self.message is None else plain_text(self.message.content)

    def fits(self, item: Thought | Message | Call) -> bool:
        """Return whether an item can be the next one of this reply."""
        match item:
            case Thought():
                return self.message is None and self.call is None
            case Message():
                return self.message is None and self.call is None
            case Call():
                return self.call is None

    def added(self, item: Thought | Message | Call) -> Reply:
        """Return the reply with one more item."""
        match item:
            case Thought():
                return self._replace(thoughts=(*self.thoughts, item))
            case Message():
                return self._replace(message=item)
            case Call():
                return self._replace(call=item)


Step = Message | Reply | Summary | Interruption


def replies(items: Iterable[Item]) -> Iterator[Step]:
    """Yield prompts, system messages, summaries and interruptions as they are, and replies."""
    reply = Reply()
    for item in items:
        is_prompt = isinstance(item, Message) and item.role != "agent"
        if is_prompt or isinstance(item, Summary | Interruption):
            if reply.parts:
                yield reply
            reply = Reply()
            assert isinstance(item, Message | Summary | Interruption)
            yield item
            continue
        assert isinstance(item, Thought | Message | Call)
        if not reply.fits(item):
            yield reply
            reply = Reply()
        reply = reply.added(item)
    if reply.parts:
        yield reply

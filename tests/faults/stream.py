"""Check what a follower receives while it receives it."""

from segue.model.content import plain_text
from segue.model.event import AgentMessage, AgentThought, Delta, Event


class FollowerCheck:
    """Checks that events come in order and the deltas of a message before the message."""

    def __init__(self, after: int = 0) -> None:
        self.last = after
        self.events: list[Event] = []
        self.pieces: dict[str, list[str]] = {}  # message → its pieces, in order
        self.writing: str | None = None  # the message of which only pieces were shown
        self._stored: set[str] = set()

    def show(self, item: Event | Delta) -> None:
        if isinstance(item, Delta):
            self._delta(item)
        else:
            self._event(item)

    def _delta(self, delta: Delta) -> None:
        assert delta.message not in self._stored, "a piece of a message that was shown whole"
        if self.writing is not None:
            assert delta.message == self.writing, "a piece of the next message came too early"
        self.writing = delta.message
        pieces = self.pieces.setdefault(delta.message, [])
        shown = sum(map(len, pieces))
        assert delta.offset == shown, f"a piece at {delta.offset} after {shown} characters"
        assert delta.text
        pieces.append(delta.text)

    def _event(self, event: Event) -> None:
        assert event.seq == self.last + 1, f"event {event.seq} after {self.last}"
        self.last = event.seq
        self.events.append(event)
        self._stored.add(event.id)
        if isinstance(event.body, AgentMessage | AgentThought):
            message_text = plain_text(event.body.content)
            shown = "".join(self.pieces.get(event.id, ()))
            assert message_text.startswith(shown), f"{shown!r} was shown of {message_text!r}"
            if self.writing is not None:
                assert event.id == self.writing, "a message in the middle of another"
            self.writing = None

    @property
    def bodies(self) -> list:
        return [event.body for event in self.events]

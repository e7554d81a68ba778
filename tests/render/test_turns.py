"""What a turn did and used."""

from segue.model.content import Text
from segue.model.event import AgentMessage, Event, InfoChanged, UserMessage
from segue.render.turns import summarize


def test_a_later_tag_does_not_lengthen_the_last_turn() -> None:
    events = [
        Event(seq=1, id="a", at=1_000, body=UserMessage(content=(Text(text="Fix it"),))),
        Event(seq=2, id="b", at=4_000, body=AgentMessage(content=(Text(text="Done"),))),
        Event(seq=3, id="c", at=900_000, body=InfoChanged(tag="parser")),
    ]
    summary = summarize(events)
    assert summary is not None and summary.duration == 3_000

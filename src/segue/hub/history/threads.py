"""Read the threads that segue's own turns have started, from the events of their session."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from segue.model.event import Event, ThreadChanged, ThreadMessage, ThreadStarted, UserMessage
from segue.model.requests import Usage
from segue.model.session import Session, Thread
from segue.store.base import Store

THREAD_TYPES = ("thread_started", "thread_changed")
EVENTS_PER_READ = 1000


async def read_threads(store: Store, session: Session) -> list[Thread]:
    """Return the threads of a stored session, in the order in which they started."""
    events: list[Event] = []
    while session.threads:
        after = events[-1].seq if events else 0
        page = await store.events(
            session.workspace, session.id, after=after, types=THREAD_TYPES, limit=EVENTS_PER_READ
        )
        events += page
        if len(page) < EVENTS_PER_READ:
            break
    return fold_threads(events, session)


def fold_threads(events: Iterable[Event], session: Session) -> list[Thread]:
    """Return the threads that events of THREAD_TYPES describe, as of the session's row.

    A fork starts with no cost, so the usage of its parent's threads does not count in it.
    """
    inherited = 0 if session.fork is None else session.fork.seq
    threads: dict[str, Thread] = {}
    for event in events:
        body = event.body
        if isinstance(body, ThreadStarted):
            threads[body.id] = Thread(
                id=body.id,
                seq=event.seq,
                parent=body.thread,
                kind=body.name,
                title=body.title,
                created_at=event.at,
                active_at=event.at,
                call_id=body.call_id,
                agent=body.agent,
                definition=body.definition,
                is_own=True,
            )
        elif isinstance(body, ThreadChanged) and body.thread in threads:
            thread = _changed(threads[body.thread], event, body)
            threads[body.thread] = (
                thread._replace(usage=Usage()) if event.seq <= inherited else thread
            )
    for id, state in session.open_threads.items():
        if id in threads:
            threads[id] = threads[id]._replace(usage=state.usage)
    return list(threads.values())


def _changed(thread: Thread, event: Event, body: ThreadChanged) -> Thread:
    return thread._replace(
        status=body.status,
        stop_reason=body.stop_reason,
        last_call_id=body.call_id or thread.last_call_id,
        active_at=event.at,
        usage=body.usage or thread.usage,
        running_time=body.running_time,
        running_since=event.at if body.status == "running" else None,
        archived_at=event.at if body.status == "terminated" else None,
    )


def thread_event(event: Event, thread: str) -> Event | None:
    """Return an event as the history of a thread has it; None if it is not a part of it.

    The message of the agent that delegates the work is the prompt, as in other tools' threads.
    """
    body = event.body
    if body.thread != thread:
        return None
    if isinstance(body, ThreadMessage):
        prompt = UserMessage(content=body.content, thread=thread)
        return None if body.reply else replace(event, body=prompt)
    return event

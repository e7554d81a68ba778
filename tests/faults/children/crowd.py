"""Many writers at once, each telling of every event it was promised.

    crowd.py DIRECTORY URL NAME WRITERS EVENTS SESSION...

Each writer appends EVENTS events, one change each, to the sessions in turn.
"""

import asyncio
import sys

from common import WORKSPACE, open_location, read_requests, report

from segue.model import ids
from segue.model.content import as_content
from segue.model.event import Draft, UserMessage


async def main() -> None:
    directory, url, name, writers, count, *sessions = sys.argv[1:]
    store = await open_location(directory, url)

    async def write(writer: int) -> None:
        for number in range(int(count)):
            session = sessions[(writer + number) % len(sessions)]
            id = ids.new_id()
            body = UserMessage(content=as_content(f"{name} {writer} {number}"))
            _, events = await store.change(
                WORKSPACE, session, lambda _, id=id, body=body: [Draft(id=id, body=body)]
            )
            # Long lines fill the pipe soon, and then a writer has to wait for its reader.
            report("kept", session=session, id=id, seq=events[0].seq, padding="." * 500)

    report("ready")
    async for _ in read_requests():  # all begin together
        break
    await asyncio.gather(*(write(writer) for writer in range(int(writers))))
    await store.close()
    report("done")


if __name__ == "__main__":
    asyncio.run(main())

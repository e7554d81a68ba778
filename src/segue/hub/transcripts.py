"""Claude Code's transcripts: read into the store, and written out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..model.errors import Conflict, InvalidInput, NotFound, StoreError, Unauthorized
from ..model.principal import Principal
from ..model.session import Session
from .base import Base

if TYPE_CHECKING:
    from ..sources.claude.whole import Whole
    from .mirror import Mirror

T = TypeVar("T")


class Transcripts(Base):
    """What passes between the store and Claude Code's own files."""

    def mirror(self, principal: Principal) -> Mirror:
        """The transcripts of the principal's workspace."""
        from .mirror import Mirror

        return Mirror(self.store, principal.workspace)

    async def import_claude(self, principal: Principal, named: str) -> tuple[Session, int]:
        """A session of Claude Code's, by its id or its file, whole; and how many lines were new.

        It keeps its id, so what is in the store stands before the files from now on. Importing
        it again adds what the files have beyond that.
        """
        _local(principal)
        return await self.mirror(principal).take(await _aside(lambda: _read(named)))

    async def export_claude(self, principal: Principal, id: str) -> str:
        """Write a session so that Claude Code can resume it; gives the transcript's path.

        Conflict when Claude Code has a session of that id: nothing is written over.
        """
        _local(principal)
        whole = await self._whole(principal, id)

        def write() -> str:
            from ..sources.claude import whole as files
            from ..sources.claude.layout import Home

            try:
                return files.write(Home.current(), whole)
            except FileExistsError as error:
                raise Conflict(str(error), session=id) from None
            except OSError as error:
                raise StoreError(f"the transcript cannot be written: {error}") from error

        return await _aside(write)

    async def claude_transcript(self, principal: Principal, id: str) -> list[bytes]:
        """The lines of the transcript that `export_claude` would write."""
        return [line.data() + b"\n" for line in (await self._whole(principal, id)).lines]

    async def _whole(self, principal: Principal, id: str) -> Whole:
        session, source = await self._find(principal, id)
        if source is not None:
            raise Conflict(f"session {id} is in the files of {source.name} already", session=id)
        return await self.mirror(principal).whole(session)


def _local(principal: Principal) -> None:
    if not principal.local:
        raise Unauthorized("only the user of this machine may have its files read and written")


def _read(named: str) -> Whole:
    from ..sources.claude import files, locate, whole
    from ..sources.claude.layout import Home, is_uuid

    path = named
    if is_uuid(named) and not os.path.exists(named):
        place = locate.find(Home.current(), named)
        if place is None:
            raise NotFound(f"Claude Code has no session {named}")
        path = place.path
    try:
        return whole.read(path)
    except files.Unreadable:
        raise NotFound(f"there is no file {named} to read") from None
    except ValueError as error:
        raise InvalidInput(f"{named}: {error}") from None


async def _aside(work: Callable[[], T]) -> T:
    """Do what waits for files beside the event loop."""
    import asyncio

    return await asyncio.to_thread(work)

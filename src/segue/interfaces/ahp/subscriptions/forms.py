"""Forms that agents show: every client of this process that has the session open sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import segue
from segue.acp.rpc import METHOD_NOT_FOUND, RpcError
from segue.agents.base.client import FORM
from segue.interfaces.ahp.chat.questions import ACCEPT, CANCEL, Question, form
from segue.model import ids
from segue.model.errors import ClientFailed

Name = tuple[str, str]  # a workspace and a session


class Viewer(Protocol):
    """A client's view of a session; `local` if the client is the local user's."""

    @property
    def local(self) -> bool: ...
    async def show(self, question: Question) -> None: ...
    async def hide(self, question: Question, response: str, answers: dict[str, Any]) -> None: ...


class _OpenForm(NamedTuple):
    """A form that waits for an answer, of the local user alone if `local`."""

    question: Question
    answer: asyncio.Future[dict[str, Any]]
    local: bool


class Forms:
    """The forms that wait for an answer, by session."""

    def __init__(self) -> None:
        self._open: dict[Name, dict[str, _OpenForm]] = {}
        self._viewers: dict[Name, list[Viewer]] = {}
        self._clients = 0

    @property
    def has_clients(self) -> bool:
        """Whether a client is connected."""
        return self._clients > 0

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Count a client as connected."""
        self._clients += 1
        try:
            yield
        finally:
            self._clients -= 1

    def viewed_session(self, session_id: str) -> Name | None:
        """Return the name of a session that the local user has open; None if they have not."""
        for name, viewers in self._viewers.items():
            if name[1] == session_id and any(viewer.local for viewer in viewers):
                return name
        return None

    def of(self, name: Name, *, local: bool) -> list[Question]:
        """Return the forms of a session that wait for an answer of this client."""
        open_forms = self._open.get(name, {}).values()
        return [waiting.question for waiting in open_forms if local or not waiting.local]

    @contextmanager
    def viewed_by(self, name: Name, viewer: Viewer) -> Iterator[None]:
        """Show the session's new forms to a viewer."""
        viewers = self._viewers.setdefault(name, [])
        viewers.append(viewer)
        try:
            yield
        finally:
            viewers.remove(viewer)
            if not viewers:
                self._viewers.pop(name, None)

    async def ask(
        self, name: Name, params: Mapping[str, Any], *, local: bool = False
    ) -> dict[str, Any]:
        """Show a form and return the user's answer. A cancellation withdraws the form.

        With `local`, only the local user sees it.
        """
        question = form(ids.new_id(), params)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open.setdefault(name, {})[question.id] = _OpenForm(question, answer, local)
        result: dict[str, Any] = {"action": CANCEL}
        try:
            for viewer in self._viewers_of(name, local=local):
                await viewer.show(question)
            result = await answer
        finally:
            self._open[name].pop(question.id, None)
            if not self._open[name]:
                del self._open[name]
            answers = question.answers(result.get("content") or {})
            for viewer in self._viewers_of(name, local=local):
                await viewer.hide(question, result["action"], answers)
        return result

    def _viewers_of(self, name: Name, *, local: bool) -> list[Viewer]:
        return [viewer for viewer in self._viewers.get(name, ()) if viewer.local or not local]

    def complete(
        self, name: Name, id: str, response: str, values: dict[str, Any], *, local: bool
    ) -> bool:
        """Give a user's answer to a form; return False if it does not wait for that user's."""
        waiting = self._open.get(name, {}).get(id)
        if waiting is None or waiting.answer.done() or (waiting.local and not local):
            return False
        content = {"content": values} if response == ACCEPT else {}
        waiting.answer.set_result({"action": response, **content})
        return True


class FormClient:
    """The client of a session, to which its agent sends forms."""

    version = 1
    info: Mapping[str, Any] = {"name": "vscode", "version": segue.__version__}
    capabilities: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}
    meta: Mapping[str, Any] = {}
    methods = frozenset({FORM})

    def __init__(self, forms: Forms, name: Name) -> None:
        self._forms = forms
        self._name = name

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Show a form. Raises ClientFailed for other requests."""
        if method != FORM:
            raise ClientFailed(f"VS Code does not support {method}", code=-32601)
        return await self._forms.ask(self._name, params)

    async def extension(self, method: str, params: Any) -> Any:
        """Refuse a request that is not part of the protocol."""
        raise ClientFailed(f"VS Code does not support {method}", code=-32601)

    async def notify(self, method: str, params: Any) -> None:
        """Ignore a notification."""


class AgentForms:
    """The client of processes of external agents: it shows their forms in VS Code.

    Only the local user may use these agents, so only that user sees their forms. A process learns
    when it starts whether forms can be shown: if VS Code is connected then. A form of a session
    that this user does not have open in VS Code is cancelled.
    """

    version = 1
    initialize_params: Mapping[str, Any] = {}
    forms: Mapping[str, Any] = {"form": {}, "url": {}}

    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    @property
    def methods(self) -> frozenset[str]:
        """The requests that are answered."""
        return frozenset({FORM}) if self._forms.has_clients else frozenset()

    def has(self, session: str) -> bool:
        """Return False: segue answers requests for files itself."""
        return False

    async def request(self, session: str, method: str, params: Mapping[str, Any]) -> Any:
        """Show a form and return the answer."""
        name = self._forms.viewed_session(session)
        return (
            {"action": CANCEL} if name is None else await self._forms.ask(name, params, local=True)
        )

    async def extension(self, method: str, params: Any) -> Any:
        """Refuse a request that is not part of the protocol."""
        raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}")

    async def notify(self, method: str, params: Any) -> None:
        """Ignore a notification."""

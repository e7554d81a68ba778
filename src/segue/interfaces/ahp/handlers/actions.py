"""Carry out the actions of a client."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from segue.acp.rpc import RpcError
from segue.interfaces.ahp.chat.questions import ACCEPT, RESPONSES, Question
from segue.interfaces.ahp.chat.state import ChatState
from segue.interfaces.ahp.client import DEMO, Client, Origin
from segue.interfaces.ahp.config import (
    OFFERED,
    agent_option,
    has_value,
    model_option,
    session_config,
)
from segue.interfaces.ahp.protocol import (
    DEFAULT_CHAT,
    ROOT,
    Action,
    Channel,
    chat_uri,
    event_id_of,
    session_uri,
)
from segue.model.content import Block, Image, Text
from segue.model.errors import NotFound, SegueError
from segue.model.event import ConfigChanged, PermissionAsked, ToolResult
from segue.model.session import Session

log = logging.getLogger("segue.ahp")


class Refused(Exception):
    """An action that is not carried out; the message says why."""


class ClientActions:
    """Carry out what a client dispatches. What it changes reaches the client as an action."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._hub = client.hub
        self._principal = client.principal
        self._handlers: dict[str, Callable[[Channel, Action, Origin], Awaitable[None]]] = {
            "chat/turnStarted": self._start_turn,
            "chat/turnCancelled": self._cancel_turn,
            "chat/toolCallConfirmed": self._confirm,
            "chat/inputAnswerChanged": self._draft_answer,
            "chat/inputCompleted": self._answer_question,
            "chat/pendingMessageSet": self._queue_message,
            "chat/pendingMessageRemoved": self._unqueue_message,
            "session/titleChanged": self._rename,
            "session/isArchivedChanged": self._archive,
            "session/isReadChanged": self._mark_read,
            "session/activeClientSet": self._set_client,
            "session/activeClientRemoved": self._remove_client,
            "session/configChanged": self._configure,
        }

    async def dispatch(self, params: dict[str, Any]) -> None:
        """Carry out an action of the client, or send it back with the reason against it."""
        channel, action = str(params.get("channel")), params.get("action")
        if not isinstance(action, dict):
            return
        client_seq = params.get("clientSeq")
        origin = Origin(self._client.id, client_seq if type(client_seq) is int else 0)
        name = str(action.get("type"))
        try:
            if not self._client.id:
                raise Refused("initialize or reconnect first")
            if channel.rstrip("/") == ROOT.rstrip("/"):
                await self._act_on_root(action, origin)
            elif name == "chat/draftChanged":
                await self._client.send_action(
                    channel, action, origin
                )  # only this client has drafts
            elif (handler := self._handlers.get(name)) is None:
                raise Refused(f"segue does not support {name}")
            else:
                await handler(await self._client.resolve(channel), action, origin)
        except (Refused, RpcError) as error:
            await self._client.send_action(channel, action, origin, str(error))
        except SegueError as error:
            await self._client.send_action(channel, action, origin, error.remote_message)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"a field is missing or wrong: {error}"
            await self._client.send_action(channel, action, origin, reason)
        except Exception:
            log.exception("an action failed")
            await self._client.send_action(channel, action, origin, "internal error")

    async def _act_on_root(self, action: Action, origin: Origin) -> None:
        if action.get("type") != "root/configChanged":
            raise Refused(f"segue does not support {action.get('type')}")
        # The client's own settings. They are part of its state, and have no effect here.
        self._client.root_values |= action.get("config") or {}
        await self._client.send_action(ROOT, action, origin)

    async def _start_turn(self, channel: Channel, action: Action, origin: Origin) -> None:
        if channel.chat != DEFAULT_CHAT:
            raise Refused("the chat of a subagent can only be read")
        turn_id = str(action["turnId"])
        message = action["message"]
        content = _content(message)
        await self._create_from_draft(channel.session_id)
        if channel.session_id not in self._client.chats:
            session = await self._hub.sessions.get(self._principal, channel.session_id)
            await self._client.follow_chat(session, chat_uri(session.id))
        self._client.expected["chat/turnStarted", turn_id] = (action, origin)
        try:
            await self._submit(channel.session_id, content, turn_id, message)
        except BaseException:
            self._client.expected.pop(("chat/turnStarted", turn_id), None)
            raise

    async def _submit(
        self, session_id: str, content: list[Block], client_id: str, message: Mapping[str, Any]
    ) -> None:
        """Send a message to the agent, under the id that the client gave it."""
        session = await self._hub.sessions.get(self._principal, session_id)
        overrides = await self._choose_model(session, (message.get("model") or {}).get("id"))
        turn_id = event_id_of(client_id)
        with suppress(NotFound):
            await self._hub.history.locate(self._principal, session_id, turn_id)
            raise Refused("this message was sent already")
        opened = await self._client.open_session(session_id)
        self._client.ids_of_events[turn_id] = client_id
        await self._hub.turns.submit(
            self._principal,
            session_id,
            content,
            turn_id=turn_id,
            overrides=overrides,
            opened=opened,
        )

    async def _choose_model(self, session: Session, model: str | None) -> dict[str, Any]:
        """Return the overrides of a turn that a model answers, or set the agent's own option."""
        if model is None:
            return {}
        option = model_option(session)
        if option is not None and has_value(option, model):
            if option["value"] != model:
                await self._set_option(session, option["id"], model)
            return {}
        if model not in self._client.model_names:
            names = [model_info["id"] for model_info in await self._client.models()]
            if model not in names:
                raise Refused(f"there is no model {model!r}; choose one of: {', '.join(names)}")
        agents = self._hub.agents
        spec = await agents.spec(session, {}, local=self._principal.local)
        has_own_models = spec.get("kind", "default") not in ("default", "model")
        if model == DEMO or has_own_models or agents.describe_spec(spec) == model:
            return {}
        return {"model": model}

    async def _create_from_draft(self, session_id: str) -> None:
        draft = self._client.drafts.get(session_id)
        if draft is None:
            return
        # A key has a directory of its own on the server, and none of the client's machine.
        cwd = draft.directory if self._principal.local else None
        await self._hub.editor.create(self._principal, id=session_id, cwd=cwd, origin="ahp")
        if draft.mode is not None:
            change = ConfigChanged(mode=draft.mode)
            await self._hub.editor.configure(self._principal, session_id, change)
        del self._client.drafts[session_id]

    async def _cancel_turn(self, channel: Channel, action: Action, origin: Origin) -> None:
        turn_id = str(action["turnId"])
        self._client.expected["chat/turnCancelled", turn_id] = ({"type": action["type"]}, origin)
        await self._hub.turns.cancel(self._principal, channel.session_id, event_id_of(turn_id))

    async def _confirm(self, channel: Channel, action: Action, origin: Origin) -> None:
        call_id = str(action["toolCallId"])
        state = self._client.state_of(channel)
        request = None if state is None else state.call_of_request(call_id)
        if request is None:
            raise Refused("this request was answered already")
        option = _chosen_option(request, action)
        note = _plain(action.get("reasonMessage")) or _plain(
            (action.get("userSuggestion") or {}).get("text")
        )
        self._client.expected["chat/toolCallConfirmed", call_id] = (action, origin)
        try:
            await self._hub.turns.answer(
                self._principal, channel.session_id, request.ask_id, option, note
            )
        except BaseException:
            self._client.expected.pop(("chat/toolCallConfirmed", call_id), None)
            raise

    async def _draft_answer(self, channel: Channel, action: Action, origin: Origin) -> None:
        """Remember an answer to a question until it is submitted."""
        _, question = self._open_question(channel, action)
        question.set_draft(str(action["questionId"]), action.get("answer"))
        await self._client.send_action(self._client.chat_uri(*channel), action, origin)

    async def _answer_question(self, channel: Channel, action: Action, origin: Origin) -> None:
        state, question = self._open_question(channel, action)
        response = action["response"]
        if response not in RESPONSES:
            raise Refused(f"response must be one of {', '.join(RESPONSES)}, not {response!r}")
        values = question.values(action.get("answers") or {}) if response == ACCEPT else {}
        key = ("chat/inputCompleted", question.id)
        self._client.expected[key] = (action, origin)
        try:
            await self._send_answer(channel.session_id, state, question, response, values)
        except BaseException:
            self._client.expected.pop(key, None)
            raise

    def _open_question(self, channel: Channel, action: Action) -> tuple[ChatState, Question]:
        """Return the question that an action is about. Raises Refused if it is not open."""
        state = self._client.state_of(channel)
        question = None if state is None else state.question(str(action["requestId"]))
        if state is None or question is None:
            raise Refused("this question was answered already")
        return state, question

    async def _send_answer(
        self,
        session_id: str,
        state: ChatState,
        question: Question,
        response: str,
        values: dict[str, Any],
    ) -> None:
        """Pass an answer to what asked: a form, a permission request or a tool call."""
        is_accepted = response == ACCEPT
        if question.kind == "form":
            name = (self._principal.workspace, session_id)
            local = self._principal.local
            if not self._client.forms.complete(name, question.id, response, values, local=local):
                raise Refused("this question was answered already")
        elif question.kind == "permission":
            option = _chosen_option(state.request(question.id), {"approved": is_accepted})
            input = question.tool_input(values) if is_accepted else None
            await self._hub.turns.answer(
                self._principal, session_id, question.id, option, input=input
            )
        else:
            text = question.tool_result(values) if is_accepted else "The user did not answer."
            result = ToolResult(
                call_id=question.id,
                status="completed" if is_accepted else "failed",
                content=(Text(text=text),),
            )
            await self._hub.turns.submit_tool_result(self._principal, session_id, result)

    async def _queue_message(self, channel: Channel, action: Action, origin: Origin) -> None:
        """Submit a message for after the running turn, or for the turn itself to take up."""
        message_id = str(action["id"])
        message = action["message"]
        content = _content(message)
        chat = self._client.chats.get(channel.session_id)
        if chat is not None:
            is_steering = action.get("kind") == "steering"
            chat.queue(message_id, message, kind="steering" if is_steering else "queued")
        await self._client.send_action(self._client.chat_uri(channel.session_id), action, origin)
        try:
            await self._submit(channel.session_id, content, message_id, message)
        except BaseException:
            if chat is not None:
                chat.take_from_queue(message_id)
            raise

    async def _unqueue_message(self, channel: Channel, action: Action, origin: Origin) -> None:
        message_id = str(action["id"])
        event_id = event_id_of(message_id)
        if not await self._hub.turns.withdraw(self._principal, channel.session_id, event_id):
            raise Refused("the turn of this message has begun")
        chat = self._client.chats.get(channel.session_id)
        if chat is not None:
            chat.take_from_queue(message_id)
        await self._client.send_action(self._client.chat_uri(channel.session_id), action, origin)

    async def _rename(self, channel: Channel, action: Action, origin: Origin) -> None:
        """Rename a session. VS Code sends this to the channel of the chat."""
        title = str(action["title"])
        session = session_uri(channel.session_id)
        if (chat := self._client.chats.get(channel.session_id)) is not None:
            chat.title = title.strip()
            session = chat.session_uri
        await self._hub.editor.set_title(self._principal, channel.session_id, title)
        await self._client.send_action(session_uri(channel.session_id), action, origin)
        uri = self._client.chat_uri(channel.session_id)
        updated = {"type": "session/chatUpdated", "chat": uri, "changes": {"title": title}}
        await self._client.send_action(session, updated, None)

    async def _archive(self, channel: Channel, action: Action, origin: Origin) -> None:
        change = self._hub.editor.archive if action["isArchived"] else self._hub.editor.unarchive
        await change(self._principal, channel.session_id)
        await self._client.send_action(session_uri(channel.session_id), action, origin)

    async def _mark_read(self, channel: Channel, action: Action, origin: Origin) -> None:
        await self._client.list.mark_read(channel.session_id, is_read=bool(action["isRead"]))
        await self._client.send_action(session_uri(channel.session_id), action, origin)

    async def _set_client(self, channel: Channel, action: Action, origin: Origin) -> None:
        """Remember the client without its tools: segue's agents do not call them."""
        client = action["activeClient"]
        if self._client.active_clients.get(channel.session_id) == client:
            return
        self._client.active_clients[channel.session_id] = client
        await self._client.send_action(session_uri(channel.session_id), action, origin)

    async def _remove_client(self, channel: Channel, action: Action, origin: Origin) -> None:
        if self._client.active_clients.pop(channel.session_id, None) is not None:
            await self._client.send_action(session_uri(channel.session_id), action, origin)

    async def _configure(self, channel: Channel, action: Action, origin: Origin) -> None:
        session = await self._hub.sessions.get(self._principal, channel.session_id)
        known = session_config(session)["schema"]["properties"]
        for name, value in action["config"].items():
            if name not in known:
                raise Refused(f"there is no setting {name!r}; there are {', '.join(known)}")
            choices = known[name].get("enum", (False, True))
            if value not in choices or isinstance(value, bool) != (choices == (False, True)):
                raise Refused(f"{name} must be one of {', '.join(map(str, choices))}")
        if (chat := self._client.chats.get(session.id)) is not None:
            chat.settings |= action["config"]
        for name, value in action["config"].items():
            if agent_option(session, name) is not None:
                session = await self._set_option(session, name, value)
            else:
                change = ConfigChanged(mode=value)
                session = await self._hub.editor.configure(self._principal, session.id, change)
        await self._client.send_action(session_uri(channel.session_id), action, origin)

    async def _set_option(self, session: Session, id: str, value: str | bool) -> Session:
        """Set an option that the agent of a session offers."""
        changed = await self._hub.agents.set_option(session, id, value)
        change = ConfigChanged(options={OFFERED: changed.offered})
        return await self._hub.editor.configure(self._principal, session.id, change)


def _content(message: Mapping[str, Any]) -> list[Block]:
    """Return the content of a message. Raises Refused for an attachment that cannot be sent."""
    text = str(message["text"])
    content: list[Block] = [Text(text=text)] if text.strip() else []
    for attachment in message.get("attachments") or ():
        content.append(_attachment(attachment))
    if not content:
        raise Refused("the message is empty")
    return content


def _attachment(attachment: Mapping[str, Any]) -> Block:
    label, type = str(attachment.get("label", "")), attachment.get("type")
    mime = str(attachment.get("contentType") or "")
    if type == "embeddedResource" and mime.startswith("image/"):
        return Image(mime=mime, data=str(attachment["data"]))
    if type == "simple" and attachment.get("modelRepresentation"):
        return Text(text=f"{label}:\n{attachment['modelRepresentation']}")
    if type == "resource":
        return Text(text=f"Attached: {attachment['uri']}")
    raise Refused(f"segue does not support the attachment {label!r} ({type})")


def _chosen_option(request: PermissionAsked, action: Action) -> str:
    """Return the option that a client chose by its id, or by approving or denying."""
    chosen = action.get("selectedOptionId")
    if any(option.id == chosen for option in request.options):
        return str(chosen)
    decision = "allow" if action["approved"] else "reject"
    for option in request.options:
        if option.kind == f"{decision}_once":
            return option.id
    for option in request.options:
        if option.kind.startswith(decision):
            return option.id
    raise Refused(f"the request offers no option to {decision}")


def _plain(value: Any) -> str | None:
    """Return a text that may be given as Markdown."""
    if isinstance(value, dict):
        value = value.get("markdown")
    return value if isinstance(value, str) and value else None

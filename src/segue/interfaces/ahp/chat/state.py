"""The state of a chat, made from a session's events, and the actions by which it changes.

`ChatState.apply` changes the state with one event and returns the actions that change a client's
copy in the same way. A snapshot is the state after all events so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from segue.interfaces.ahp.protocol import Action, chat_uri, time_text
from segue.model.content import plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Delta,
    Event,
    Failed,
    Interrupted,
    ModelCalled,
    Option,
    PermissionAnswered,
    PermissionAsked,
    PlanChanged,
    Response,
    StatusChanged,
    ThreadStarted,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.tools.changes import apply_change
from segue.model.tools.titles import call_title, request_title

from .edits import proposed_edits, result_content
from .messages import input_text, message_fields, plan_text
from .questions import ACCEPT, CANCEL, DECLINE, Question, of_client_tool, of_permission

_PART_OF_DELTA = {"message": "markdown", "thought": "reasoning"}
# What an agent does. A turn whose end is not recorded ends with the last of these.
_TIMED = (AgentMessage, AgentThought, ToolCall, ToolCallChanged, ToolResult, ModelCalled, Failed)
_NOT_NEEDED, _USER_ACTION = "not-needed", "user-action"


class ChatState:
    """The turns of one chat. The last one may be running."""

    def __init__(self, session_id: str, client_ids: Mapping[str, str] | None = None) -> None:
        """Create an empty chat. `client_ids` has the ids that a client gave to its messages."""
        self._session_id = session_id
        self._client_ids = client_ids if client_ids is not None else {}
        self.turns: list[dict[str, Any]] = []
        self.active: dict[str, Any] | None = None
        self._started_at = 0
        self._last_at = 0
        self._usage: Usage | None = None
        self._model: str | None = None
        self._error: str | None = None
        self._is_cancelled = False
        self._calls: dict[str, ToolCall] = {}
        self._parts: dict[str, dict[str, Any]] = {}  # of the active turn: by message or call
        # The pieces of messages that are being written, the first to keep them apart.
        self._pieces: dict[str, list[str]] = {}
        self._requests: dict[str, PermissionAsked] = {}
        self._questions: dict[str, Question] = {}  # questions that wait for an answer
        self._question_parts: dict[str, dict[str, Any]] = {}
        self._subagents: dict[str, list[dict[str, Any]]] = {}  # by the call that started them

    def fields(self) -> dict[str, Any]:
        """Return the turns as fields of a snapshot."""
        self._join_pieces()
        fields: dict[str, Any] = {"turns": self.turns}
        if self.active is not None:
            fields["activeTurn"] = self.active
        return fields

    def call_of_request(self, call_id: str) -> PermissionAsked | None:
        """Return the open permission request that a client sees as this tool call."""
        return next(
            (ask for ask in self._requests.values() if _call_id(ask) == call_id),
            None,
        )

    def question(self, id: str) -> Question | None:
        """Return a question that waits for an answer."""
        return self._questions.get(id)

    def request(self, ask_id: str) -> PermissionAsked:
        """Return an open permission request by its own id."""
        return self._requests[ask_id]

    # Events.

    def apply(self, event: Event) -> list[Action]:
        """Change the state with an event, and return the actions that a client gets for it."""
        if isinstance(event.body, _TIMED):
            self._last_at = max(self._last_at, event.at)
        match event.body:
            case UserMessage() as message:
                return [*self.finish(), *self._start(event, message)]
            case AgentMessage() | AgentThought() as message:
                return [*self._ensure_turn(event), *self._add_text(event.id, message)]
            case ToolCall() as call:
                self._add_usage(call)
                return [*self._ensure_turn(event), *self._start_call(call)]
            case ToolCallChanged() as change:
                return self._change_call(change)
            case ToolResult() as result:
                return self._end_call(event.seq, result)
            case PermissionAsked() as request:
                return [*self._ensure_turn(event), *self._ask(request)]
            case PermissionAnswered() as answer:
                return self._answer(answer)
            case ModelCalled() as called:
                self._sum_usage(called.usage, called.model)
            case PlanChanged() as plan:
                return self._notify(plan_text(plan))
            case Compacted():
                return self._notify("The conversation so far was summarized for the model.")
            case Failed(retry="retrying") as failed:
                return self._notify(f"{failed.message}. Trying again.")
            case Failed() as failed:
                self._error = failed.message
            case Interrupted():
                self._is_cancelled = True
            case StatusChanged(status="idle") as change if not change.pending:
                self._last_at = max(self._last_at, event.at)
                if change.stop_reason != "requires_action":
                    return self.finish(change)
            case StatusChanged(status="idle") as change:
                return self._ask_for_results(change.pending)
            case ThreadStarted() as started:
                return self._show_subagent(started)
        return []

    def add_delta(self, delta: Delta) -> list[Action]:
        """Append a piece of a message that is being written."""
        kind = _PART_OF_DELTA.get(delta.kind)
        if kind is None or self.active is None:
            return []
        actions: list[Action] = []
        pieces = self._pieces.get(delta.message)
        if pieces is None:
            pieces = self._pieces[delta.message] = [self._separator(kind)]
            part = self._add_part({"kind": kind, "id": delta.message, "content": pieces[0]})
            self._parts[delta.message] = part
            actions.append(self._part_action(dict(part)))
        pieces.append(delta.text)
        return [*actions, self._append_action(kind, delta.message, delta.text)]

    def _join_pieces(self) -> None:
        """Give the messages that are being written their text so far."""
        for message, pieces in self._pieces.items():
            self._parts[message]["content"] = "".join(pieces)

    def finish(self, change: StatusChanged | None = None) -> list[Action]:
        """End the active turn, if there is one, and return the actions."""
        turn = self.active
        if turn is None:
            return []
        self._join_pieces()
        reason = change.stop_reason if change is not None else None
        duration = max(0, self._last_at - self._started_at) // 1000
        actions: list[Action] = []
        if (usage := self._usage_info()) is not None:
            turn["usage"] = usage
            actions.append({"type": "chat/usage", "turnId": turn["id"], "usage": usage})
        end: Action = {"turnId": turn["id"], "duration": duration}
        if reason == "cancelled" or (self._is_cancelled and reason != "error"):
            state, end["type"] = "cancelled", "chat/turnCancelled"
        elif reason == "error" or self._error is not None:
            message = (change.message if change is not None else None) or self._error
            error = {"errorType": "turnFailed", "message": message or "The turn failed."}
            part = {"kind": "error", "error": error}
            state, end["type"] = "error", "chat/error"
            end |= {"part": part, "error": error}  # the part from version 0.9.0 on
            turn["responseParts"].append(part)
            turn["error"] = error
        else:
            state, end["type"] = "complete", "chat/turnComplete"
        self.turns.append({**turn, "duration": duration, "state": state})
        self.active = None
        self._parts.clear()
        self._pieces.clear()
        self._requests.clear()
        self._questions.clear()
        self._question_parts.clear()
        return [*actions, end]

    # Turns.

    def _start(self, event: Event, message: UserMessage) -> list[Action]:
        return self._begin(event, message_fields(message))

    def _ensure_turn(self, event: Event) -> list[Action]:
        """Begin a turn for what an agent does without a message of the user."""
        if self.active is not None:
            return []
        return self._begin(event, {"text": "", "origin": {"kind": "agent"}})

    def _begin(self, event: Event, message: dict[str, Any]) -> list[Action]:
        self._started_at = event.at
        self._usage = self._model = self._error = None
        self._is_cancelled = False
        self.active = {
            "id": self._client_ids.get(event.id, event.id),
            "startedAt": time_text(event.at),
            "message": message,
            "responseParts": [],
        }
        return [
            {
                "type": "chat/turnStarted",
                "turnId": self.active["id"],
                "startedAt": self.active["startedAt"],
                "message": message,
            }
        ]

    # Parts.

    def _add_part(self, part: dict[str, Any]) -> dict[str, Any]:
        assert self.active is not None
        self.active["responseParts"].append(part)
        return part

    def _part_action(self, part: dict[str, Any]) -> Action:
        assert self.active is not None
        return {"type": "chat/responsePart", "turnId": self.active["id"], "part": part}

    def _append_action(self, kind: str, part_id: str, text: str) -> Action:
        assert self.active is not None
        return {
            "type": "chat/delta" if kind == "markdown" else "chat/reasoning",
            "turnId": self.active["id"],
            "partId": part_id,
            "content": text,
        }

    def _add_text(self, event_id: str, message: AgentMessage | AgentThought) -> list[Action]:
        """Add a complete message, or the rest of a message that was streamed."""
        self._add_usage(message)
        text = plain_text(message.content)
        part = self._parts.get(event_id)
        if part is None:
            kind = "markdown" if isinstance(message, AgentMessage) else "reasoning"
            content = self._separator(kind) + text
            part = self._add_part({"kind": kind, "id": event_id, "content": content})
            return [self._part_action(dict(part))]
        pieces = self._pieces.pop(event_id, [part["content"]])
        text, streamed = pieces[0] + text, "".join(pieces)
        part["content"] = text if text.startswith(streamed) else streamed
        rest = part["content"][len(streamed) :]
        return [self._append_action(part["kind"], event_id, rest)] if rest else []

    def _separator(self, kind: str) -> str:
        """Return what keeps a message apart from the one before it: clients join such parts."""
        assert self.active is not None
        parts = self.active["responseParts"]
        return "\n\n" if parts and parts[-1]["kind"] == kind else ""

    def _notify(self, text: str) -> list[Action]:
        if self.active is None:
            return []
        part = {"kind": "systemNotification", "content": {"markdown": text}}
        return [self._part_action(self._add_part(part))]

    # Usage.

    def _add_usage(self, response: Response) -> None:
        if response.usage is not None:
            self._sum_usage(response.usage, response.model)

    def _sum_usage(self, usage: Usage, model: str | None) -> None:
        self._usage = usage if self._usage is None else self._usage + usage
        self._model = model or self._model

    def _usage_info(self) -> dict[str, Any] | None:
        if self._usage is None:
            return None
        fields = {
            "inputTokens": self._usage.input_tokens,
            "outputTokens": self._usage.output_tokens,
            "cacheReadTokens": self._usage.cache_read_tokens,
            "model": self._model,
        }
        return {name: value for name, value in fields.items() if value is not None}

    # Tool calls.

    def _call_action(self, type: str, call_id: str, **fields: Any) -> Action:
        assert self.active is not None
        return {
            "type": f"chat/toolCall{type}",
            "turnId": self.active["id"],
            "toolCallId": call_id,
            **fields,
        }

    def _start_call(self, call: ToolCall) -> list[Action]:
        self._calls[call.call_id] = call
        names = {"toolName": call.name, "displayName": call.name}
        state = {"toolCallId": call.call_id, **names, "status": "streaming"}
        self._parts[call.call_id] = self._add_part({"kind": "toolCall", "toolCall": state})
        actions = [self._call_action("Start", call.call_id, **names)]
        if call.effective_verdict == "ask":
            return actions  # the permission request follows
        return [*actions, *self._ready(call)]

    def _ready(self, call: ToolCall, **confirmation: Any) -> list[Action]:
        """Return the actions for a call that runs or, with `confirmation`, waits for it."""
        part = self._parts.get(call.call_id)
        if part is None or self.active is None:
            return []
        fields: dict[str, Any] = {"invocationMessage": call_title(call)}
        if call.input is not None:
            fields["toolInput"] = input_text(call.input)
        fields |= confirmation or {"confirmed": _NOT_NEEDED}
        status = "pending-confirmation" if confirmation else "running"
        part["toolCall"].update(fields, status=status)
        return [self._call_action("Ready", call.call_id, **fields)]

    def _change_call(self, change: ToolCallChanged) -> list[Action]:
        call = self._calls.get(change.call_id)
        if call is None:
            return []
        changed = self._calls[change.call_id] = apply_change(call, change)
        part = self._parts.get(change.call_id)
        if part is None or part["toolCall"]["status"] != "running":
            return []
        actions = []
        if (call_title(changed), changed.input) != (call_title(call), call.input):
            actions += self._ready(changed)
        if changed.content != call.content:
            content = [{"type": "text", "text": plain_text(changed.content)}]
            part["toolCall"]["content"] = content
            actions.append(self._call_action("ContentChanged", change.call_id, content=content))
        return actions

    def _end_call(self, seq: int, result: ToolResult) -> list[Action]:
        part = self._parts.get(result.call_id)
        if part is None or self.active is None:
            return []
        call = self._calls[result.call_id]
        state = part["toolCall"]
        if state["status"] == "cancelled":
            return []
        fields: dict[str, Any] = {
            "success": result.status == "completed",
            "pastTenseMessage": call_title(call),
            "content": [
                *self._subagents.get(result.call_id, ()),
                *result_content(self._session_id, seq, call, result),
            ],
        }
        if result.status != "completed":
            code = None if result.exit_code is None else str(result.exit_code)
            message = plain_text(result.content)[:1000] or result.status
            fields["error"] = {"message": message, **({"code": code} if code else {})}
        state.update(_confirmed_fields(state, call), **fields, status="completed")
        completed = self._call_action("Complete", result.call_id, result=fields)
        return [*self._end_client_tool(result), completed]

    # Permission requests.

    def _ask(self, request: PermissionAsked) -> list[Action]:
        self._requests[request.ask_id] = request
        call_id = _call_id(request)
        call = self._calls.get(call_id)
        question = of_permission(request.ask_id, call)
        if question is not None and call is not None:
            return [*self._ready(call), *self.ask_question(question)]
        actions: list[Action] = []
        if call is None or call_id not in self._parts:
            title = request_title(request, call)
            call = ToolCall(call_id=call_id, name="permission", title=title, verdict="ask")
            actions += self._start_call(call)
        confirmation: dict[str, Any] = {
            "confirmationTitle": request_title(request, call),
            "options": [_option(option) for option in request.options],
        }
        if edits := proposed_edits(self._session_id, call):
            confirmation["edits"] = {"items": edits}
        return [*actions, *self._ready(call, **confirmation)]

    def _answer(self, answer: PermissionAnswered) -> list[Action]:
        request = self._requests.pop(answer.ask_id, None)
        if request is None or self.active is None:
            return []
        if (question := self._questions.get(answer.ask_id)) is not None:
            return self._answer_question(question, request, answer)
        call_id = _call_id(request)
        state = self._parts[call_id]["toolCall"]
        for name in ("options", "confirmationTitle", "edits"):
            state.pop(name, None)
        chosen = next((option for option in request.options if option.id == answer.option), None)
        fields: dict[str, Any]
        if chosen is not None and chosen.kind.startswith("allow"):
            fields = {"approved": True, "confirmed": _USER_ACTION}
            state.update(status="running", confirmed=_USER_ACTION)
        else:
            fields = {"approved": False, "reason": "denied" if chosen else "skipped"}
            if answer.note:
                fields["reasonMessage"] = answer.note
            state.update(status="cancelled", reason=fields["reason"])
        if chosen is not None:
            fields["selectedOptionId"] = chosen.id
            state["selectedOption"] = _option(chosen)
        actions = [self._call_action("Confirmed", call_id, **fields)]
        if call_id == answer.ask_id and fields["approved"]:
            result = {"success": True, "pastTenseMessage": "Allowed"}
            state.update(result, status="completed")
            actions.append(self._call_action("Complete", call_id, result=result))
        return actions

    # Questions.

    def ask_question(self, question: Question) -> list[Action]:
        """Show a question in the active turn."""
        if self.active is None:
            return []
        self._questions[question.id] = question
        part = {"kind": "inputRequest", "request": question.request}
        self._question_parts[question.id] = self._add_part(part)
        return [{"type": "chat/inputRequested", "request": dict(question.request)}]

    def end_question(
        self, question: Question, response: str, answers: dict[str, Any]
    ) -> list[Action]:
        """Show how a question was answered."""
        part = self._question_parts.pop(question.id, None)
        if self._questions.pop(question.id, None) is None or part is None:
            return []
        if answers:
            question.request["answers"] = answers
        part["response"] = response
        fields = {"answers": answers} if answers else {}
        completed = {"type": "chat/inputCompleted", "requestId": question.id}
        return [{**completed, "response": response, **fields}]

    def _answer_question(
        self, question: Question, request: PermissionAsked, answer: PermissionAnswered
    ) -> list[Action]:
        chosen = next((option for option in request.options if option.id == answer.option), None)
        if chosen is None:
            return self.end_question(question, CANCEL, {})
        if not chosen.kind.startswith("allow"):
            return self.end_question(question, DECLINE, {})
        values = (answer.input or {}).get("answers")
        answers = question.answers(values) if isinstance(values, dict) else {}
        return self.end_question(question, ACCEPT, answers)

    def _ask_for_results(self, pending: tuple[str, ...]) -> list[Action]:
        """Ask for the results of tools that the client runs, which the turn waits for."""
        actions: list[Action] = []
        for call_id in pending:
            call = self._calls.get(call_id)
            if call is not None and call.custom and call_id not in self._questions:
                actions += self.ask_question(of_client_tool(call))
        return actions

    def _end_client_tool(self, result: ToolResult) -> list[Action]:
        question = self._questions.get(result.call_id)
        if question is None:
            return []
        if result.status != "completed":
            response = CANCEL if result.status == "cancelled" else DECLINE
            return self.end_question(question, response, {})
        values = question.values_of_result(plain_text(result.content))
        return self.end_question(question, ACCEPT, question.answers(values))

    # Subagents.

    def _show_subagent(self, started: ThreadStarted) -> list[Action]:
        """Refer to a subagent's chat in the tool call that started it."""
        content = self._subagents.setdefault(started.call_id, [])
        reference = {
            "type": "subagent",
            "resource": chat_uri(self._session_id, started.id),
            "title": started.title or started.name,
            "agentName": started.name,
        }
        content.append(reference)
        part = self._parts.get(started.call_id)
        if part is None or self.active is None or part["toolCall"]["status"] != "running":
            return []
        part["toolCall"]["content"] = list(content)
        return [self._call_action("ContentChanged", started.call_id, content=list(content))]


def _call_id(request: PermissionAsked) -> str:
    """Return the tool call that a request is shown as: the one it is about, or one of its own."""
    return request.call_id or request.ask_id


def _option(option: Option) -> dict[str, Any]:
    kind = "approve" if option.kind.startswith("allow") else "deny"
    return {"id": option.id, "label": option.name, "kind": kind}


def _confirmed_fields(state: dict[str, Any], call: ToolCall) -> dict[str, Any]:
    """Return the fields that a finished call needs, and an unconfirmed one does not have."""
    return {
        "confirmed": state.get("confirmed", _NOT_NEEDED),
        "invocationMessage": state.get("invocationMessage", call_title(call)),
    }

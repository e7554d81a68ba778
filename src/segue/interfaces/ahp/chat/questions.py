"""Questions of agents to the user, and their answers.

A question is a form that an agent shows, or a tool call whose input has questions, or a call of a
tool that the client runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from segue.model.event import ToolCall
from segue.model.tools.titles import call_title

QuestionKind = Literal["form", "permission", "tool"]
ACCEPT, DECLINE, CANCEL = RESPONSES = ("accept", "decline", "cancel")
_TEXT, _SINGLE, _MULTIPLE = "text", "single-select", "multi-select"
_SIMPLE_KINDS = {"string": _TEXT, "number": "number", "integer": "integer", "boolean": "boolean"}


class Field(NamedTuple):
    """One field of a question: its name in the answer, and how the client shows it."""

    name: str
    shown: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.shown["id"])


class Question:
    """A question that the user has not answered yet. `call` is the tool call that asks it."""

    def __init__(
        self,
        id: str,
        kind: QuestionKind,
        message: str,
        fields: Iterable[Field],
        *,
        url: str | None = None,
        call: ToolCall | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.call = call
        self._fields = tuple(fields)
        self.request: dict[str, Any] = {"id": id}
        if message:
            self.request["message"] = message
        if url is not None:
            self.request["url"] = url
        if self._fields:
            self.request["questions"] = [field.shown for field in self._fields]

    def set_draft(self, field_id: str, answer: Any) -> None:
        """Remember an answer that is not submitted yet; None removes it."""
        drafts = {**self.request.get("answers", {}), field_id: answer}
        self.request["answers"] = {id: draft for id, draft in drafts.items() if draft is not None}

    def values(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields, from answers and drafts.

        Raises ValueError if a required one has none.
        """
        answers = {**self.request.get("answers", {}), **answers}
        values: dict[str, Any] = {}
        for field in self._fields:
            value = _value(field, answers.get(field.id))
            if value is not None:
                values[field.name] = value
            elif field.shown.get("required"):
                raise ValueError(f"the question {field.name!r} has no answer")
        return values

    def answers(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers that have these values, as clients show them."""
        return {
            field.id: {"state": "submitted", "value": _answer_value(field, values[field.name])}
            for field in self._fields
            if field.name in values
        }

    def tool_input(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input with which a tool that asks runs: its questions and the answers."""
        return {**_input(self.call), "answers": _texts(values)}

    def tool_result(self, values: Mapping[str, Any]) -> str:
        """Return the result of a tool that the client runs: the text, or the answers as JSON."""
        if _questions(_input(self.call)):
            return json.dumps({"answers": _texts(values)}, ensure_ascii=False)
        return "\n".join(map(str, values.values()))

    def values_of_result(self, text: str) -> dict[str, Any]:
        """Return the values of a result that another client gave."""
        if not _questions(_input(self.call)):
            return {field.name: text for field in self._fields}
        try:
            answers = json.loads(text)["answers"]
        except (ValueError, KeyError, TypeError):
            return {}
        return answers if isinstance(answers, dict) else {}


def form(id: str, params: Mapping[str, Any]) -> Question:
    """Return the question of a form, which an agent describes as in `elicitation/create`."""
    schema = params.get("requestedSchema") or {}
    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    fields = [
        _schema_field(name, property, is_required=name in required)
        for name, property in properties.items()
        if isinstance(property, dict)
    ]
    url = params.get("url") if params.get("mode") == "url" else None
    return Question(id, "form", str(params.get("message") or ""), fields, url=url)


def of_permission(ask_id: str, call: ToolCall | None) -> Question | None:
    """Return the question of a permission request for a tool that asks the user; else None."""
    questions = _questions(_input(call))
    if call is None or not questions:
        return None
    return Question(ask_id, "permission", "", _tool_fields(questions), call=call)


def of_client_tool(call: ToolCall) -> Question:
    """Return the question for the result of a tool that the client runs."""
    if questions := _questions(_input(call)):
        return Question(call.call_id, "tool", "", _tool_fields(questions), call=call)
    shown = {"id": "result", "kind": _TEXT, "title": call.name, "required": True}
    text = "" if call.input is None else json.dumps(call.input, ensure_ascii=False, indent=2)
    message = f"The result of {call.name}:\n{text}" if text else f"The result of {call.name}:"
    return Question(
        call.call_id,
        "tool",
        call_title(call),
        [Field("result", {**shown, "message": message})],
        call=call,
    )


def _input(call: ToolCall | None) -> dict[str, Any]:
    return call.input if call is not None and isinstance(call.input, dict) else {}


def _questions(input: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the questions in a tool's input; none if the input has another form."""
    questions = input.get("questions")
    if not isinstance(questions, list):
        return []
    for question in questions:
        options = question.get("options") if isinstance(question, dict) else None
        if not isinstance(options, list) or not isinstance(question.get("question"), str):
            return []
        if not all(isinstance(option, dict) and option.get("label") for option in options):
            return []
    return questions


def _tool_fields(questions: Iterable[Mapping[str, Any]]) -> list[Field]:
    return [
        Field(
            question["question"],
            {
                "id": str(number),
                "kind": _MULTIPLE if question.get("multiSelect") else _SINGLE,
                "title": str(question.get("header") or question["question"]),
                "message": question["question"],
                "required": True,
                "allowFreeformInput": True,
                "options": [
                    _option(option["label"], option["label"], option.get("description"))
                    for option in question["options"]
                ],
            },
        )
        for number, question in enumerate(questions, 1)
    ]


def _schema_field(name: str, property: Mapping[str, Any], *, is_required: bool) -> Field:
    """Return the field of a JSON Schema property."""
    title = property.get("title") or name
    shown: dict[str, Any] = {
        "id": name,
        "title": str(title),
        "message": str(property.get("description") or title),
        "required": is_required,
    }
    items = property.get("items")
    if property.get("type") == "array" and isinstance(items, dict):
        shown |= {"kind": _MULTIPLE, "options": _schema_options(items, property.get("default"))}
        limits = ("minItems", "maxItems")
    elif options := _schema_options(property, property.get("default")):
        shown |= {"kind": _SINGLE, "options": options}
        limits = ("", "")
    else:
        type = str(property.get("type"))
        shown["kind"] = _SIMPLE_KINDS.get(type, _TEXT)
        limits = ("minLength", "maxLength") if type == "string" else ("minimum", "maximum")
        if (default := property.get("default")) is not None:
            shown["defaultValue"] = default
        if type == "string" and "format" in property:
            shown["format"] = property["format"]
    for limit, shown_as in zip(limits, ("min", "max"), strict=True):
        if limit in property:
            shown[shown_as] = property[limit]
    return Field(name, shown)


def _schema_options(property: Mapping[str, Any], default: Any) -> list[dict[str, Any]]:
    titled = property.get("oneOf") or property.get("anyOf")
    if isinstance(titled, list):
        pairs = [(item.get("const"), item.get("title")) for item in titled]
    else:
        names = property.get("enumNames") or ()
        values = property.get("enum") or ()
        pairs = [
            (value, names[number] if number < len(names) else None)
            for number, value in enumerate(values)
        ]
    defaults = default if isinstance(default, list) else [default]
    return [
        _option(value, title or value, None) | ({"recommended": True} if value in defaults else {})
        for value, title in pairs
    ]


def _option(id: Any, label: Any, description: Any) -> dict[str, Any]:
    option = {"id": str(id), "label": str(label)}
    return {**option, "description": str(description)} if description else option


def _value(field: Field, answer: Any) -> Any:
    """Return the value of an answer; None if the user has skipped the field.

    VS Code sends numbers as text. Raises ValueError if that is no number.
    """
    if not isinstance(answer, dict) or answer.get("state") == "skipped":
        return None
    value, kind = answer["value"], field.shown["kind"]
    texts = [str(text) for text in value.get("freeformValues") or ()]
    match value["kind"]:
        case "selected":
            return texts[0] if texts else value["value"]
        case "selected-many":
            return [*value["value"], *texts]
        case "text" if kind in ("number", "integer"):
            try:
                return int(value["value"]) if kind == "integer" else float(value["value"])
            except ValueError:
                raise ValueError(f"{value['value']!r} is not a number") from None
        case "text" if kind == _MULTIPLE:
            return [value["value"]]
    return value["value"]


def _answer_value(field: Field, value: Any) -> dict[str, Any]:
    kind = field.shown["kind"]
    if kind in (_SINGLE, _MULTIPLE):
        texts = [str(text) for text in value] if isinstance(value, list) else [str(value)]
        return _selection(field, texts)
    if isinstance(value, bool):
        return {"kind": "boolean", "value": value}
    if isinstance(value, int | float):
        return {"kind": "number", "value": value}
    return {"kind": "text", "value": str(value)}


def _selection(field: Field, texts: list[str]) -> dict[str, Any]:
    """Return chosen options, and the texts that are not an option."""
    ids = {option["id"] for option in field.shown["options"]}
    if field.shown["kind"] == _MULTIPLE:
        if len(texts) == 1 and texts[0] not in ids:
            texts = texts[0].split(", ")  # of a tool, which has all answers in one text
        chosen: Any = [text for text in texts if text in ids]
        answer = {"kind": "selected-many", "value": chosen}
    else:
        answer = {"kind": "selected", "value": ", ".join(texts)}
    others = [text for text in texts if text not in ids]
    return {**answer, "freeformValues": others} if others else answer


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in values.items()
    }

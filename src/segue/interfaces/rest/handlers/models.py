"""Models: list and retrieve the configured model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from segue.hub.resources.agent_settings import DEMO_MODEL
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Out
from segue.model.errors import InvalidInput, NotFound

Lifecycle = Literal["active", "deprecated", "retired"]


class Model(Out, frozen=True, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: str
    lifecycle: Lifecycle = "active"
    line: None = None
    capabilities: None = None
    allowed_fallback_models: None = None
    max_input_tokens: int | None = None
    max_tokens: int | None = None
    deprecated_at: str | None = None
    retires_at: str | None = None


class Models(Out, frozen=True):
    data: Sequence[Model]
    has_more: bool
    first_id: str | None
    last_id: str | None


_DEMO = Model(
    id=DEMO_MODEL,
    display_name="The demo agent: no model, it repeats its input",
    created_at="2026-01-01T00:00:00Z",
)


async def _models(request: RestRequest) -> tuple[Model, ...]:
    """Return the configured model, or the demo agent if no model is configured."""
    id = (await request.hub.config.all(request.workspace)).get("model")
    if id is None:
        return (_DEMO,)
    name = id.partition(":")[2] or id
    return (Model(id=id, display_name=name, created_at=_DEMO.created_at),)


async def list_(request: RestRequest) -> Models:
    limit = request.params.limit(20, 1000)
    stages = request.params.values("lifecycle") or ("active", "deprecated")
    for stage in stages:
        if stage not in get_args(Lifecycle):
            raise InvalidInput(
                f"lifecycle: {stage!r} is not one of {', '.join(get_args(Lifecycle))}"
            )
    models = [model for model in await _models(request) if model.lifecycle in stages]
    names = [model.id for model in models]
    after, before = request.params.text("after_id"), request.params.text("before_id")
    start = names.index(after) + 1 if after in names else 0
    stop = names.index(before) if before in names else len(names)
    matches = models[start:stop]
    page = matches[:limit] if before is None else matches[-limit:]
    return Models(
        data=page,
        has_more=len(matches) > limit,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
    )


async def retrieve(request: RestRequest) -> Model:
    for model in await _models(request):
        if model.id == request.path_params["model_id"]:
            return model
    raise NotFound(f"model {request.path_params['model_id']} not found")

"""Webhooks: create, change, test and delete them, and list their deliveries.

The hosted API has a console for this. The requests that webhooks receive are those of the hosted
API, so official clients verify them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, to_builtins

from segue.hub.resources.record_ids import format_record_id
from segue.hub.webhooks.payload import event_id
from segue.hub.webhooks.service import (
    DEFAULT_OVERLAP_SECONDS,
    KIND,
    MAX_OVERLAP_SECONDS,
    MAX_URL_CHARACTERS,
    NewSecret,
    WebhookBody,
)
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Out, Page
from segue.model import clock
from segue.model.errors import NotFound
from segue.model.record import Record
from segue.model.webhooks.delivery import Delivery

Url = Annotated[str, Meta(min_length=1, max_length=MAX_URL_CHARACTERS)]
EventTypes = Annotated[list[str], Meta(min_length=1, max_length=100)]
Description = Annotated[str, Meta(max_length=1000)]
Overlap = Annotated[int, Meta(ge=0, le=MAX_OVERLAP_SECONDS)]


class Create(Body, frozen=True):
    url: Url
    event_types: EventTypes
    description: Description | None = None


class Update(Body, frozen=True):
    url: Url | UnsetType = UNSET
    event_types: EventTypes | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET


class RotateSecret(Body, frozen=True):
    overlap_seconds: Overlap = DEFAULT_OVERLAP_SECONDS


class Test(Body, frozen=True):
    event_type: str | None = None


class Webhook(Out, frozen=True, tag_field="type", tag="webhook"):
    id: str
    url: str
    event_types: list[str]
    description: str | None
    enabled: bool
    disabled_reason: str | None
    previous_secret_expires_at: str | None
    created_at: str
    updated_at: str


class WebhookWithSecret(Webhook, frozen=True, tag_field="type", tag="webhook"):
    """A webhook whose secret is new. It is shown in this response only."""

    secret: str


class WebhookDeleted(Deleted, frozen=True, tag_field="type", tag="webhook_deleted"):
    """The webhook was deleted with its queue and its log."""


class AttemptOut(Out, frozen=True):
    at: str
    duration_ms: int
    status_code: int | None
    error: str | None


class DeliveryOut(Out, frozen=True, tag_field="type", tag="webhook_delivery"):
    id: str
    webhook_id: str
    event_id: str
    event_type: str
    status: Literal["pending", "delivered", "failed"]
    test: bool
    created_at: str
    next_attempt_at: str | None
    attempts: list[AttemptOut]


def show(record: Record) -> Webhook:
    """Return a webhook as the API shows it."""
    body = WebhookBody.of(record)
    until = body.previous_until
    return Webhook(
        id=format_record_id(record),
        url=body.url,
        event_types=list(body.event_types),
        description=body.description,
        enabled=body.enabled,
        disabled_reason=body.disabled_reason,
        previous_secret_expires_at=(
            None if until is None or until < clock.now() else clock.to_rfc3339(until)
        ),
        created_at=clock.to_rfc3339(record.created_at),
        updated_at=clock.to_rfc3339(record.updated_at),
    )


def show_delivery(record: Record, delivery: Delivery) -> DeliveryOut:
    """Return a delivery as the API shows it."""
    return DeliveryOut(
        id=str(delivery.number),
        webhook_id=format_record_id(record),
        event_id=event_id(delivery),
        event_type=delivery.type,
        status=delivery.status,
        test=delivery.test,
        created_at=clock.to_rfc3339(delivery.at),
        next_attempt_at=None if delivery.due_at is None else clock.to_rfc3339(delivery.due_at),
        attempts=[
            AttemptOut(
                at=clock.to_rfc3339(attempt.at),
                duration_ms=attempt.ms,
                status_code=attempt.status,
                error=attempt.error,
            )
            for attempt in delivery.attempts
        ],
    )


async def create(request: RestRequest) -> WebhookWithSecret:
    sent = await request.stored_body(Create)
    created = await request.hub.webhooks.create(
        request.workspace, sent.url, sent.event_types, sent.description
    )
    return _with_secret(created)


async def list_(request: RestRequest) -> Page[Webhook]:
    return await records.page(request, KIND, show)


async def retrieve(request: RestRequest) -> Webhook:
    return show(await _find(request))


async def update(request: RestRequest) -> Webhook:
    sent = await request.stored_body(Update)
    changes = {
        name: value
        for name in sent.__struct_fields__
        if (value := getattr(sent, name)) is not UNSET
    }
    return show(await request.hub.webhooks.update(await _find(request), changes))


async def delete(request: RestRequest) -> WebhookDeleted:
    record = await _find(request)
    await request.hub.webhooks.delete(record)
    return WebhookDeleted(id=format_record_id(record))


async def rotate_secret(request: RestRequest) -> WebhookWithSecret:
    sent = await request.stored_body(RotateSecret)
    record = await _find(request)
    return _with_secret(await request.hub.webhooks.rotate_secret(record, sent.overlap_seconds))


async def test(request: RestRequest) -> DeliveryOut:
    sent = await request.stored_body(Test)
    record = await _find(request)
    return show_delivery(record, await request.hub.webhooks.test(record, sent.event_type))


async def list_deliveries(request: RestRequest) -> Page[DeliveryOut]:
    record = await _find(request)
    limit = request.params.limit(20, 100)
    kind = f"{KIND}_delivery:{record.id}"
    token = request.params.text("page")
    before = None if token is None else (await paging.decode_page(request, token, kind))[0]
    rows = await request.hub.webhooks.deliveries(record, before=before, limit=limit + 1)
    next_page = None
    if len(rows) > limit:
        next_page = await paging.encode_page(request, kind, rows[limit - 1].number)
    data = [show_delivery(record, row) for row in rows[:limit]]
    return Page(data=data, next_page=next_page)


async def retrieve_delivery(request: RestRequest) -> DeliveryOut:
    record = await _find(request)
    return show_delivery(record, await request.hub.webhooks.delivery(record, _number(request)))


async def resend_delivery(request: RestRequest) -> DeliveryOut:
    record = await _find(request)
    return show_delivery(record, await request.hub.webhooks.resend(record, _number(request)))


async def _find(request: RestRequest) -> Record:
    return await records.find(request, KIND, request.path_params["webhook_id"])


def _number(request: RestRequest) -> int:
    name = request.path_params["delivery_id"]
    if not (name.isascii() and name.isdecimal() and len(name) < 19):
        raise NotFound(f"delivery {name} not found")
    return int(name)


def _with_secret(webhook: NewSecret) -> WebhookWithSecret:
    fields = to_builtins(show(webhook.record))
    del fields["type"]
    return WebhookWithSecret(**fields, secret=webhook.secret)

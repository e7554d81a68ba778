"""Budgets: how much a session may cost, by the list prices of its models.

A budget is set when a session is created; later it can be changed or removed, but not added. When
the session's cost reaches the budget, no further model request is made. The turn that this stopped
is resumed as a new turn when the budget is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from segue.model.errors import InvalidInput
from segue.model.event import AnyBody, ConfigChanged
from segue.model.session import Session

MICRODOLLARS_PER_CENT = 10_000  # budgets are in cents, costs in millionths of a dollar


def budget_error(code: str, message: str) -> InvalidInput:
    """Return an error with a code for programs."""
    return InvalidInput(message, details={"error_code": code})


async def check_prices(specs: Iterable[Mapping[str, Any]]) -> None:
    """Raise InvalidInput if a model of one of the agents has no list price."""
    import asyncio

    from segue.agents.model.settings import resolve_model
    from segue.prices.estimate import has_price

    for spec in specs:
        model = resolve_model(spec) if spec.get("kind") in ("default", "model") else None
        if model is None:
            why = "budget: the agent has no model that is known here"
            if not spec.get("config", {}).get("model"):
                why += "; set one, for example `segue config set model anthropic:claude-sonnet-4-6`"
            raise budget_error("model_not_budgetable", why)
        if not await asyncio.to_thread(has_price, model):
            raise budget_error("model_not_budgetable", f"budget: {model} has no known list price")


def budget_changes(session: Session, budget: int | None) -> list[AnyBody]:
    """Return the events that change or remove a budget; raises InvalidInput if not allowed."""
    if budget == session.budget and not session.at_budget:
        return []
    if budget is not None:
        if session.budget is None:
            why = "budget: can only be set when a session is created"
            raise budget_error("budget_create_only", why)
        if not session.is_priced:
            why = "budget: the session has used a model without a list price; it can be removed"
            raise budget_error("model_not_budgetable", why)
        if budget <= (cost := session.usage.cost or 0):
            why = f"budget: the session has cost {dollars(cost)} already"
            raise budget_error("budget_not_raised", why)
    return [ConfigChanged(budget=budget)]


def require_budget_left(session: Session) -> None:
    """Raise InvalidInput if a session has reached its budget."""
    if session.at_budget:
        raise InvalidInput(
            f"{budget_message(session)}; change or remove the budget to continue",
            details={"error_code": "budget_reached"},
        )


def budget_message(session: Session) -> str:
    """Return why no further model request is made."""
    if not session.is_priced:
        return "the session has a budget, and used a model without a list price"
    return f"the session has reached its budget of {dollars(session.budget or 0)}"


def dollars(cost: int) -> str:
    return f"${cost / 1e6:,.2f}"

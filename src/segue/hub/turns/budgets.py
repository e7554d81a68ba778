"""Budgets: what a session may cost, by the list prices of the models that answer in it.

A budget is given when a session is made; later it can be changed or removed, not added. No model
is asked any more once what the session used has come to it. A turn that this cut short goes on,
as a new turn, when the budget is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from segue.model.errors import InvalidInput
from segue.model.event import AnyBody, ConfigChanged
from segue.model.session import Session

CENT = 10_000  # of which budgets are, in the unit of costs


def refused(reason: str, why: str) -> InvalidInput:
    """`reason` is for programs."""
    return InvalidInput(why, details={"error_code": reason})


async def check_prices(specs: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a budget for agents of which one would use what has no list price."""
    import asyncio

    from segue.agents.model.prices import has_price
    from segue.agents.model.settings import resolve_model

    for spec in specs:
        model = resolve_model(spec) if spec.get("kind") in ("default", "model") else None
        if model is None:
            why = "budget: no model that is known here answers for the agent"
            if not spec.get("config", {}).get("model"):
                why += "; set one, as with `segue config set model anthropic:claude-sonnet-4-6`"
            raise refused("model_not_budgetable", why)
        if not await asyncio.to_thread(has_price, model):
            raise refused("model_not_budgetable", f"budget: {model} has no known list price")


def changing(session: Session, budget: int | None) -> list[AnyBody]:
    """What a new budget, or none, is to a session; InvalidInput where it may not have it."""
    if budget == session.budget and not session.at_budget:
        return []
    if budget is not None:
        if session.budget is None:
            why = "budget: can only be given when a session is made"
            raise refused("budget_create_only", why)
        if not session.is_priced:
            why = "budget: the session has used a model without a list price; it can be removed"
            raise refused("model_not_budgetable", why)
        if budget <= session.usage.cost:
            why = f"budget: the session has cost {dollars(session.usage.cost)} already"
            raise refused("budget_not_raised", why)
    return [ConfigChanged(budget=budget)]


def check_left(session: Session) -> None:
    """Refuse to begin anything in a session that has spent what it may."""
    if session.at_budget:
        raise InvalidInput(
            f"{reached(session)}; change or remove the budget to go on",
            details={"error_code": "budget_reached"},
        )


def reached(session: Session) -> str:
    """Why no model is asked any more."""
    if not session.is_priced:
        return "the session has a budget, and used a model without a list price"
    return f"the session has reached its budget of {dollars(session.budget or 0)}"


def dollars(cost: int) -> str:
    return f"${cost / 1e6:,.2f}"

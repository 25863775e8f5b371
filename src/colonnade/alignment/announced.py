"""What crosses to find and divide shared rows, as it is known before a run."""

from __future__ import annotations

from colonnade.alignment.dividing import divides_by_labels, tells_split
from colonnade.alignment.messages import MESSAGES, SplitNumber, crosses
from colonnade.session import Method, RunPlan

__all__ = ["messages_of", "sends"]


def messages_of(method: Method, plan: RunPlan) -> tuple[type, ...]:
    """Return what may cross to find and divide shared rows: nothing where rows are scored that one party knows."""
    if method.stage(plan.stage).rows == "own":
        return ()
    is_divided = divides_by_labels(method, plan)
    return tuple(one for one in MESSAGES if is_divided or one is not SplitNumber)


def sends(method: Method, plan: RunPlan, message: type, sender: str, receiver: str) -> bool:
    """Tell whether one party sends another a message to find or divide shared rows."""
    if message is SplitNumber:
        return tells_split(method, plan, sender, receiver)
    is_from_lead = plan.role_of(sender) == method.lead_in(plan)
    return (
        message in messages_of(method, plan)
        and method.are_aligned(plan, sender, receiver)
        and crosses(message, plan.alignment, is_from_lead=is_from_lead)
    )

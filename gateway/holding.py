"""Holds what an attempt may cost at most, before it is sent; a refusal becomes the error the client sees."""

from gateway import errors
from gateway.auth import Caller
from gateway.live import Live, Services, Target
from gateway.shared_state import Admission, Demand, Refusal
from pricing.money import PicoUsd
from routers.facts import RequestFacts


async def hold(
    services: Services,
    target: Target,
    facts: RequestFacts,
    caller: Caller,
    request_id: str,
    now_ms: int,
    most_output: int,
    *,
    counts_as_request: bool = True,
) -> Admission:
    """Hold the most an attempt may cost. Raises GatewayError when a budget or limit does not allow it."""
    answer = services.state.admit(
        Demand(
            request_id=request_id,
            key_id=caller.key_id,
            team=caller.team,
            application=facts.application,
            worst_case=target.worst_case(facts, most_output, now_ms),
            tokens=facts.input_tokens + most_output * facts.choices,
            requests_per_minute=caller.requests_per_minute,
            tokens_per_minute=caller.tokens_per_minute,
            counts_as_request=counts_as_request,
        ),
        now_ms / 1000,
    )
    if isinstance(answer, Admission):
        return answer
    if not isinstance(answer, Refusal):
        answer = await answer
        if isinstance(answer, Admission):
            return answer
    if answer.code == "rate_limit_exceeded":
        raise errors.rate_limit_exceeded(
            answer.message, retry_after_seconds=answer.retry_after_seconds or 1.0
        )
    if answer.code == "unpriced":
        raise errors.unpriced(answer.message)
    raise errors.budget_exceeded(answer.message)


async def hold_again(
    services: Services,
    live: Live,
    target: Target,
    tier: str,
    facts: RequestFacts,
    caller: Caller,
    request_id: str,
    now_ms: int,
    most_output: int,
) -> Admission:
    """Hold the most one more attempt of a request may cost. Raises GatewayError when it is not allowed.

    `tier` is the one decided on, empty for a pinned deployment. It is not changed any more, so a budget that has
    room for other tiers only refuses the attempt.
    """
    admission = await hold(
        services, target, facts, caller, request_id, now_ms, most_output, counts_as_request=False
    )
    allowed = admission.allowed_tiers
    if allowed is None or tier in allowed or (not tier and live.policy.tiers_of[target.name] & allowed):
        return admission
    services.state.settle(admission, cost=PicoUsd(0), tokens=0)
    names = ", ".join(f'"{name}"' for name in admission.over)
    raise errors.budget_exceeded(
        f"one more attempt, at {target.name}, does not fit into the budget {names}; "
        f"it leaves only {', '.join(sorted(allowed))}"
    )

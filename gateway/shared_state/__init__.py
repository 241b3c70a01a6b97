"""Budgets and rate limits that several requests share: one interface, in memory or in Redis.

A request asks once, before anything is sent: all limits that touch it admit it together or none does.
What it may cost at most is held; when its books close the true cost is settled and the rest given back.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pricing.money import PicoUsd


class Demand(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one request asks of the limits."""

    request_id: str
    key_id: str
    team: str
    application: str | None
    worst_case: PicoUsd | None  # None: some deployment it may reach has neither a price nor a ceiling
    tokens: int  # input estimate + the most output it may have
    requests_per_minute: int | None  # the key's own limits; the team's and budgets come from the config
    tokens_per_minute: int | None
    counts_as_request: bool = True  # False: a fallback of a request that was counted already


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request was not admitted."""

    code: str  # budget_exceeded | unpriced | rate_limit_exceeded
    message: str  # for the client: which limit, how much, when it opens again
    retry_after_seconds: float | None  # None: waiting does not help
    budget: str | None = None  # the name of the budget that refused it; None: it was something else


class Admission(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What was granted. Give it back exactly once, by `SharedState.settle` (a cost of 0 releases it all)."""

    demand: Demand
    budgets: tuple[str, ...]  # names of the budgets it is held against
    over: tuple[str, ...]  # budgets that are spent but let it through to `when_spent` tiers only
    allowed_tiers: frozenset[str] | None  # None: any; else spent budgets leave only these


class SharedState(Protocol):
    """Where limits are kept."""

    def admit(self, demand: Demand, now: float) -> "Admission | Refusal | Awaitable[Admission | Refusal]":
        """Hold the worst case and count the request, or say why not.

        `now` is wall time in seconds (UTC). In memory it answers at once; with Redis it must be awaited.
        """
        ...

    def settle(self, admission: Admission, *, cost: PicoUsd, tokens: int) -> None:
        """Replace what is held by what it cost. Never waits and never raises.

        The second call for one admission does nothing.
        """
        ...

    def budget_left_share(self, team: str, application: str | None) -> float | None:
        """The smallest share (0 to 1) left of the budgets that touch them, as last known; None: none does."""
        ...

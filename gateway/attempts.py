"""What an attempt's end means: may another follow, where, after how long, and did it cost anything.

The rules (all hold only while no byte has gone to the client; after that there is no further attempt):

- at most three attempts a request, within one deadline that includes waiting;
- a connect failure and 429, 500, 502, 503, 529 move to the next deployment at once; the same deployment is
  asked again only when no other is left, and only after a pause with full jitter;
- a deployment that answered nonsense, too late or not at all is not asked again for this request;
- 400, 404, 413, 422 are the client's: relayed, never repeated, no mark against the deployment; the one
  exception is a prompt too long for this deployment, which moves once to one with a larger window;
- 401 and 403 are the operator's: the next deployment, and this one rests;
- a request that broke before any answer may have been worked on: it goes to the next deployment, except when the
  client gave it an idempotency key: then once more to the same one first, which may have the answer ready;
- over the whole process retries stay under a fifth of the requests of the last ten seconds, or three a second;
  a move to a deployment whose last attempt went well is counted, but never refused.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal

from gateway.upstream import FailureKind

MAX_ATTEMPTS = 3
QUOTA_REST_SECONDS = 300.0  # a provider whose quota is gone
KEY_REST_SECONDS = 60.0  # a provider that refuses the operator's key

Cost = Literal["unbilled", "estimated"]
Again = Literal["no", "here", "elsewhere", "anywhere", "larger_window"]
Health = Literal["ignored", "failed", "rests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows from one attempt that gave the client nothing."""

    again: Again
    cost: Cost
    health: Health
    rest_seconds: float | None = None


# Whether a failure without an answer leaves the provider with something to bill is known by `sent`.
_REPEATABLE: frozenset[FailureKind] = frozenset(
    {"resolve", "connect_refused", "connect_timeout", "tls", "pool_exhausted"}
)


def verdict_on_failure(kind: FailureKind, *, sent: bool) -> Verdict:
    """For an attempt that ended without a whole answer."""
    cost: Cost = "estimated" if sent else "unbilled"
    if kind == "invalid_response":
        # What came was not an answer of this wire; a packed one may have been a whole answer all the same.
        return Verdict(again="elsewhere", cost=cost, health="failed")
    if kind == "total_timeout":
        return Verdict(again="no", cost=cost, health="failed")
    if kind == "pool_exhausted":
        return Verdict(again="elsewhere", cost="unbilled", health="ignored")
    if kind in _REPEATABLE:
        return Verdict(again="anywhere", cost="unbilled", health="failed")
    return Verdict(again="elsewhere", cost=cost, health="failed")


def verdict_on_status(status: int, *, code: str | None, wait_seconds: float | None) -> Verdict:
    """For a whole answer with an error status; `code` is the provider's own, `wait_seconds` what it asks to wait."""
    if status == 429:
        if code == "insufficient_quota":
            return Verdict(
                again="elsewhere", cost="unbilled", health="rests", rest_seconds=QUOTA_REST_SECONDS
            )
        return Verdict(again="anywhere", cost="unbilled", health="rests", rest_seconds=wait_seconds)
    if status in (401, 403):
        return Verdict(again="elsewhere", cost="unbilled", health="rests", rest_seconds=KEY_REST_SECONDS)
    if code == "context_length_exceeded":
        return Verdict(again="larger_window", cost="unbilled", health="ignored")
    if status >= 500 or status == 408:
        return Verdict(again="anywhere", cost="unbilled", health="failed", rest_seconds=wait_seconds)
    if status == 402:
        return Verdict(again="elsewhere", cost="unbilled", health="rests", rest_seconds=QUOTA_REST_SECONDS)
    return Verdict(again="no", cost="unbilled", health="ignored")


NONSENSE = Verdict(again="elsewhere", cost="unbilled", health="failed")
"""A 200 that holds no answer: an error in its body, a page, nothing at all."""

BROKEN = Verdict(again="elsewhere", cost="estimated", health="failed")
"""A 200 that began as an answer and is not a whole one."""


REPEATED = Verdict(again="here", cost="estimated", health="failed")
"""Broken before any answer, with an idempotency key: the same deployment is asked once more."""


def pause_seconds(attempt: int, random: Random, *, base_seconds: float) -> float:
    """How long to wait before asking the same deployment again, after so many attempts.

    Jitter over the upper half of a doubling span: the pauses of one request grow, and no two requests keep step.
    """
    span = base_seconds * (2 ** (attempt - 1))
    return random.uniform(span / 2, span)


class RetryBudget:
    """Keeps retries under a fifth of the requests of the last ten seconds, with a floor of three a second."""

    SHARE = 0.2
    WINDOW_SECONDS = 10
    FLOOR_PER_SECOND = 3

    def __init__(self) -> None:
        self._second = 0
        self._slot = 0  # of the present second
        self._turns_at = 1.0  # when it is over
        self._requests = [0] * self.WINDOW_SECONDS
        self._retries = [0] * self.WINDOW_SECONDS
        self._unwell: set[str] = set()  # deployments whose last attempt failed

    def _turn(self, now: float) -> None:
        second = int(now)
        behind = second - self._second
        if behind > 0:
            for step in range(min(behind, self.WINDOW_SECONDS)):
                slot = (second - step) % self.WINDOW_SECONDS
                self._requests[slot] = self._retries[slot] = 0
            self._second = second
            self._slot = second % self.WINDOW_SECONDS
            self._turns_at = second + 1.0

    def request(self, now: float) -> None:
        """A request came in; `now` is a monotonic clock in seconds."""
        if now >= self._turns_at:
            self._turn(now)
        self._requests[self._slot] += 1

    def may_retry(self, deployment: str, now: float) -> bool:
        """True, and counted, if one more attempt, at this deployment, is within the budget.

        Where the last attempt there went well it always is: one deployment's failures must not become errors
        while another is healthy. When everything fails, nothing looks well and the budget holds.
        """
        self._turn(now)
        slot = self._slot
        if (
            deployment in self._unwell
            and self._retries[slot] >= self.FLOOR_PER_SECOND
            and sum(self._retries) >= self.SHARE * sum(self._requests)
        ):
            return False
        self._retries[slot] += 1
        return True

    def failed(self, deployment: str) -> None:
        """An attempt at this deployment failed by its fault."""
        self._unwell.add(deployment)

    def answered(self, deployment: str) -> None:
        """An attempt at this deployment went well."""
        if self._unwell:
            self._unwell.discard(deployment)

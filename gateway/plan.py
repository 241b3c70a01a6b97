"""Which deployment is asked next for one request, after how long a pause, and what is said when there is none.

The decision names the deployments in their order. Each is asked once; then, if the rules of `attempts` allow it,
one of them again after a pause: the one that rests shortest, if its provider asked for that rest, never one that
health has taken out of use. Where every deployment rests, one attempt is the probe and there is no second.

What an attempt says about its deployment is told to health, to the retry budget and, where the operator has to do
something, to the alerts.
"""

from typing import Literal

import msgspec

from gateway import attempts, errors
from gateway.errors import GatewayError
from gateway.live import Live, Services, Target
from gateway.outcome import QUOTA_GONE, Failed
from routers.decide import Decision

_NOTHING_ASKED = "every deployment that could answer rests after failures"
_LIMITED = "every deployment that could answer is at its provider's rate limit"


class Step(msgspec.Struct, frozen=True, eq=False):
    """One more attempt."""

    target: Target
    pause_seconds: float = 0.0  # to wait before it


class Plan:
    """One request's way through its deployments."""

    __slots__ = ("_asked", "_decision", "_due", "_left", "_live", "_services", "made")

    def __init__(self, services: Services, live: Live, decision: Decision, *, due: float) -> None:
        """`due`: when the request must be answered, by the services' clock."""
        self._services = services
        self._live = live
        self._decision = decision
        self._due = due
        self._left = decision.deployments  # not asked yet
        self._asked: list[tuple[Target, Failed]] = []
        self.made = 0  # attempts

    def next(self) -> Step | None:
        """The next attempt; None: there is none. Without a pause it is to be made at once."""
        asked = self._asked
        if not asked:
            return self._first(last_resort=self._decision.all_rest)
        target, failed = asked[-1]
        again = failed.verdict.again
        if again == "no" or self.made >= attempts.MAX_ATTEMPTS:
            return None
        if again == "here":
            return self._repeat(target, 0.0)
        if again == "larger_window":
            self._left = self._larger(target)
        if not self._decision.all_rest:
            found = self._first(last_resort=False)
            return self._again() if found is None else found
        return None

    def may_go(self, step: Step) -> bool:
        """After a pause: may the deployment still be asked? Without one `next` has seen to it."""
        return self._services.health.may_try(step.target.name, self._services.clock(), last_resort=True)

    def _first(self, *, last_resort: bool) -> Step | None:
        """The next that was not asked yet."""
        services = self._services
        clock = services.clock()
        while self._left:
            name, self._left = self._left[0], self._left[1:]
            if self._asked and not services.retries.may_retry(name, clock):
                continue
            if services.health.may_try(name, clock, last_resort=last_resort):
                return Step(self._live.targets[name])
        return None

    def _again(self) -> Step | None:
        """One that was asked already."""
        health, now = self._services.health, self._services.clock()
        best: tuple[float, Target] | None = None
        for target, failed in {target.name: (target, failed) for target, failed in self._asked}.values():
            rest = health.rests_for(target.name, now)
            if failed.verdict.again != "anywhere" or (rest and failed.verdict.health != "rests"):
                continue
            if best is None or rest < best[0]:
                best = rest, target
        if best is None or best[0] > self._services.retry_wait_seconds:
            return None
        return self._repeat(best[1], best[0])

    def _repeat(self, target: Target, rest_seconds: float) -> Step | None:
        services = self._services
        now = services.clock()
        pause = rest_seconds + attempts.pause_seconds(
            self.made, services.random, base_seconds=services.retry_base_seconds
        )
        if now + pause >= self._due or not services.retries.may_retry(target.name, now):
            return None
        return Step(target, pause)

    def _larger(self, target: Target) -> tuple[str, ...]:
        """After a prompt too long for `target`: one other deployment with a larger window, if there is one."""
        if target.context_tokens is None:
            return ()
        for name in self._left:
            window = self._live.targets[name].context_tokens
            if window is not None and window > target.context_tokens:
                return (name,)
        return ()

    # ── what came of it ──

    def answers(self, target: Target) -> None:
        """The attempt under way has content for the client."""
        services = self._services
        services.health.note(target.name, "ok", services.clock())
        services.retries.answered(target.name)

    def says_nothing(self, target: Target) -> None:
        """The attempt ended by no doing of its deployment."""
        self._services.health.note(target.name, "ignored", self._services.clock())

    def failed(self, target: Target, failed: Failed) -> None:
        """The attempt gave the client nothing."""
        services, name, verdict = self._services, target.name, failed.verdict
        failed.__traceback__ = failed.__context__ = None  # they hold on to the request, and it to us
        self._asked.append((target, failed))
        services.health.note(name, verdict.health, services.clock(), rest_seconds=verdict.rest_seconds)
        if verdict.health == "ignored":
            return
        services.retries.failed(name)
        if verdict.health == "failed":
            services.refusals.pop(name, None)
            return
        services.refusals[name] = _fresh(failed.error)
        cause = _alert(failed)
        if cause is not None:
            services.metrics.alert(name, cause)

    def last_word(self) -> GatewayError:
        """The error that the client gets when nobody could answer."""
        if not self._asked:
            return self._all_rest()
        last = self._asked[-1][1]
        if self._decision.all_rest and last.verdict.health == "failed":
            return self._overloaded()
        failures = [failed for _, failed in self._asked]
        limited = [failed for failed in failures if failed.error.code == "upstream_rate_limited"]
        if limited and all(failed.status == 429 for failed in failures):
            waits = [failed.verdict.rest_seconds for failed in limited]
            known = [wait for wait in waits if wait is not None]
            names = {target.name for target, _ in self._asked}
            return errors.upstream_rate_limited(
                last.error.message if len(names) == 1 else _LIMITED,
                retry_after_seconds=min(known) if known else None,
            )
        return last.error

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What of the last failed answer's headers goes with the last word."""
        return self._asked[-1][1].headers if self._asked else []

    def _all_rest(self) -> GatewayError:
        """Not one may be asked: if their providers said why, that is the better answer."""
        services = self._services
        why = [services.refusals.get(name) for name in self._decision.deployments]
        known = [error for error in why if error is not None]
        if len(known) < len(why):
            return self._overloaded()
        if any(error.code == "upstream_rate_limited" for error in known):
            return errors.upstream_rate_limited(_LIMITED, retry_after_seconds=self._shortest_rest())
        return _fresh(known[0])

    def _overloaded(self) -> GatewayError:
        return errors.overloaded(_NOTHING_ASKED, retry_after_seconds=max(self._shortest_rest(), 1.0))

    def _shortest_rest(self) -> float:
        health, now = self._services.health, self._services.clock()
        return min((health.rests_for(name, now) for name in self._decision.deployments), default=1.0)


def _alert(failed: Failed) -> Literal["key_refused", "quota_gone"] | None:
    """What the operator has to mend."""
    if failed.status in (401, 403):
        return "key_refused"
    if failed.status == 402 or failed.error.code == QUOTA_GONE:
        return "quota_gone"
    return None


def _fresh(error: GatewayError) -> GatewayError:
    """The same error, never raised yet: one that was holds on to all that its request had."""
    return type(error)(
        error.status,
        error.type,
        error.code,
        error.message,
        param=error.param,
        retry_after_seconds=error.retry_after_seconds,
        should_retry=error.should_retry,
    )

"""The account of one request: every attempt that was made for it, closed exactly once.

However a request ends (answered, failed, the client left, the process is shutting down) `Books.close` is
called in one place, without waiting: it hands the entry to the recorder, which has it in the spool before
the answer's last byte goes out, gives back what is held, counts the metrics and writes the log line.
An accounting failure never breaks an answer: the recorder and the counters do not raise.
"""

from msgspec.structs import replace

from gateway.live import Live, Services, Target
from gateway.shared_state import Admission
from ledger.entry import Admitted, Attempt, Closed, RequestState
from pricing.cost import UNMETERED, Cost, cost_at_ms
from pricing.money import PicoUsd
from pricing.savings import same_tokens_at_ms
from pricing.usage import Reading, Usage
from routers.facts import RequestFacts

_STATE_OF = {
    "provider": "settled",
    "provider_partial": "estimated",
    "mixed": "estimated",
    "estimated": "estimated",
    "none": "unbilled",
}


def nothing_billed(flag: str | None = None) -> Reading:
    """The reading of an attempt for which the provider bills nothing."""
    return Reading(usage=Usage(), source="none", flags=frozenset((flag,)) if flag else frozenset())


def input_guessed(facts: RequestFacts, *flags: str) -> Reading:
    """The reading of an attempt that the provider may have begun and told us nothing about."""
    return Reading(
        usage=Usage(input_uncached=facts.input_tokens),
        source="estimated",
        flags=frozenset((*flags, "estimated_input")),
    )


class Try:
    """An attempt under way: what is known when it starts."""

    __slots__ = ("admission", "first_byte_ms", "n", "started", "started_ms", "target")

    def __init__(self, n: int, target: Target, admission: Admission, started: float, started_ms: int) -> None:
        self.n = n
        self.target = target
        self.admission = admission
        self.started = started  # monotonic seconds
        self.started_ms = started_ms
        self.first_byte_ms: int | None = None


class Books:
    """One request's books."""

    __slots__ = (
        "_admitted",
        "_attempts",
        "_billed",
        "_closed",
        "_cost",
        "_facts",
        "_held",
        "_live",
        "_services",
        "_started",
    )

    def __init__(
        self, services: Services, live: Live, admitted: Admitted, facts: RequestFacts, *, started: float
    ) -> None:
        self._services = services
        self._live = live
        self._billed: Reading | None = None  # the last attempt that was
        self._admitted = admitted
        self._facts = facts
        self._started = started
        self._attempts: list[Attempt] = []
        self._cost: int | None = 0
        self._held: Admission | None = None
        self._closed = False
        services.recorder.admitted(admitted)

    @property
    def closed(self) -> bool:
        """True once the books are closed."""
        return self._closed

    @property
    def held(self) -> Admission | None:
        """What is held for the attempt under way; None: it is settled."""
        return self._held

    @property
    def cost(self) -> int | None:
        """What the attempts so far cost, in pico-dollars; None: one of them is unpriced."""
        return self._cost

    @property
    def attempts(self) -> int:
        """How many attempts are booked."""
        return len(self._attempts)

    def hold(self, admission: Admission) -> None:
        """This is held for the attempt that starts now; `book` or `close` settles it."""
        self._held = admission

    def book(
        self,
        tried: Try,
        reading: Reading,
        *,
        status: int | None,
        failure: str | None = None,
        output_high: int | None = None,
    ) -> Cost:
        """Write down how an attempt ended, price it and settle what was held for it.

        `output_high` is the most output it may have had, where that was not told.
        """
        services, target = self._services, tried.target
        now_ms = services.wall_ms()
        cost = cost_at_ms(
            reading,
            target.book,
            requested_model=target.model,
            started_ms=tried.started_ms,
            completed_ms=now_ms,
            requested_service_tier=self._facts.service_tier,
        )
        usage = reading.usage
        state = _STATE_OF[reading.source]
        if state == "settled" and "estimated_output" in reading.flags:
            state = "estimated"
        elif cost.total is None and state == "unbilled":
            state = "estimated"  # it is billed, and nobody here knows for what
        flags = reading.flags | cost.flags
        # In three parts, since Python is three times slower with more than fifteen keywords in one call.
        attempt = Attempt(
            n=tried.n,
            deployment=target.name,
            provider=target.provider,
            model_called=target.model,
            model_answered=reading.model,
            started_at_ms=tried.started_ms,
            status=status,
            state=state,  # pyright: ignore[reportArgumentType] - the table above holds these words only
            failure=failure,
            usage_source=reading.source,
            service_tier=reading.service_tier,
            flags=tuple(sorted(flags)) if flags else (),
            first_byte_ms=tried.first_byte_ms,
            duration_ms=round((services.clock() - tried.started) * 1000),
        )
        attempt = replace(
            attempt,
            input_uncached=usage.input_uncached,
            input_cached=usage.input_cached,
            output_text=usage.output_text,
            output_reasoning=usage.output_reasoning,
            price_id=cost.price_id,
            priced_as=cost.priced_as,
            rate_set=cost.rate_set,
            cost_pico_usd=cost.total,
            cost_input_uncached_pico_usd=cost.input_uncached,
            cost_input_cached_pico_usd=cost.input_cached,
            cost_cache_write_pico_usd=cost.cache_write,
            cost_output_pico_usd=cost.output,
            cost_fees_pico_usd=cost.fees,
        )
        if reading.answer_id is not None:
            attempt = replace(attempt, answer_id=reading.answer_id)
        guessed_output = state == "estimated"
        provider_usd = cost.provider_cost_usd
        if not reading.is_plain and (guessed_output or provider_usd is not None or not usage.is_simple):
            attempt = replace(
                attempt,
                cache_write_5m=usage.cache_write_5m,
                cache_write_1h=usage.cache_write_1h,
                input_audio=usage.input_audio,
                input_audio_cached=usage.input_audio_cached,
                input_image=usage.input_image,
                output_audio=usage.output_audio,
                output_image=usage.output_image,
                tools=dict(usage.tools),
                extra=dict(usage.extra),
                provider_cost_usd=None if provider_usd is None else format(provider_usd, "f"),
                output_low=usage.output_total if guessed_output else None,
                output_high=output_high if guessed_output else None,
            )
        self._attempts.append(attempt)
        if cost.total is None:
            self._cost = None
        elif self._cost is not None:
            self._cost += cost.total
        self._billed = None if state == "unbilled" else reading
        tokens = (
            usage.input_uncached + usage.input_cached + usage.output_text + usage.output_reasoning
            if reading.is_plain
            else usage.input_total + usage.output_total
        )
        if cost.total is None and UNMETERED in flags:
            tokens = self._facts.input_bytes  # as it was held
        self._settle(tried.admission, cost.total, target, tokens=tokens)
        return cost

    def _settle(self, admission: Admission, cost: PicoUsd | None, target: Target, *, tokens: int) -> None:
        if cost is None:  # unpriced: the budget is charged by the deployment's configured ceiling
            cost = PicoUsd(tokens * (target.ceiling or 0))
        self._services.state.settle(admission, cost=cost, tokens=tokens)
        if self._held is admission:
            self._held = None

    def close(
        self, *, state: RequestState, status: int, error: str | None = None, first_byte_ms: int | None = None
    ) -> None:
        """End the request. The first call counts; it neither waits nor raises."""
        if self._closed:
            return
        self._closed = True
        services = self._services
        if self._held is not None:
            services.state.settle(self._held, cost=PicoUsd(0), tokens=0)
            self._held = None
        baseline, baseline_pico_usd = self._baseline()
        closed = Closed(
            id=self._admitted.id,
            closed_at_ms=services.wall_ms(),
            state=state,
            status=status,
            error=error,
            attempts=tuple(self._attempts),
            cost_pico_usd=self._cost,
            baseline_deployment=baseline,
            baseline_pico_usd=baseline_pico_usd,
            first_byte_ms=first_byte_ms,
            duration_ms=round((services.clock() - self._started) * 1000),
        )
        services.recorder.closed(closed)
        services.closed(self._admitted, closed)

    def _baseline(self) -> tuple[str | None, int | None]:
        """The baseline in force and what the answering attempt's tokens would have cost there."""
        billed = self._billed
        if billed is None:
            return None, None
        at_ms = self._attempts[-1].started_at_ms
        found = self._live.baseline_at(at_ms)
        if found is None:
            return None, None
        name, model, book = found
        return name, same_tokens_at_ms(billed, book, model=model, at_ms=at_ms)

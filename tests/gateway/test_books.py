"""What the books call an attempt, by what is known of its usage."""

from decimal import Decimal
from typing import Any, cast

from gateway.books import Books, Try, input_guessed, nothing_billed
from gateway.live import Live, Services, Target
from gateway.shared_state import Admission
from ledger.entry import Admitted, Attempt, Closed
from pricing.sheet import PriceBook
from pricing.usage import BUCKETS, Reading, Usage
from routers.facts import RequestFacts

STARTED_MS = 1_764_547_200_000
SHEET = {"rates": {"input": "1", "output": "2"}, "tools": {"web_search": "0.01"}}


class OneRequest:
    """As much of the services, of their recorder and of their state as books need."""

    def __init__(self) -> None:
        self.recorder = self.state = self
        self.settled: list[tuple[int, int]] = []
        self.written: list[Admitted | Closed] = []

    def clock(self) -> float:
        return 12.5

    def wall_ms(self) -> int:
        return STARTED_MS + 2500

    def admitted(self, entry: Admitted) -> None:
        self.written.append(entry)

    def closed(self, *entries: Admitted | Closed) -> None:
        self.written.append(entries[-1])

    def settle(self, admission: Admission, *, cost: int, tokens: int) -> None:
        self.settled.append((cost, tokens))

    def baseline_at(self, at_ms: int) -> tuple[str, str, PriceBook]:
        return "base", "m", PriceBook.from_tables({"m": {"rates": {"input": "3", "output": "3"}}})


def booked(reading: Reading, **ended: Any) -> tuple[Attempt, Closed, list[tuple[int, int]]]:
    """The one attempt of a request, its closing, and what was settled."""
    one = OneRequest()
    target = Target(
        name="luna",
        model="m",
        provider="openai",
        dialect="openai",
        drains=True,
        connect_seconds=1,
        idle_seconds=1,
        api_key=None,
        upstream=cast("Any", None),
        parameters=None,
        book=PriceBook.from_tables({"m": SHEET}, origin="file"),
        ceiling=None,
        context_tokens=None,
        max_output_tokens=None,
    )
    entry = Admitted(id="r1", admitted_at_ms=STARTED_MS, key_id="k", team="t")
    books = Books(
        cast("Services", one),
        cast("Live", one),
        entry,
        RequestFacts(model="m", input_bytes=400),
        started=10.0,
    )
    tried = Try(1, target, cast("Admission", object()), 10.5, STARTED_MS)
    books.book(tried, reading, status=200, **ended)
    books.close(state="answered", status=200)
    closed = one.written[-1]
    assert isinstance(closed, Closed)
    return closed.attempts[0], closed, one.settled


def plain_attempt(**fields: Any) -> Attempt:
    return Attempt(
        n=1,
        deployment="luna",
        provider="openai",
        model_called="m",
        started_at_ms=STARTED_MS,
        status=200,
        duration_ms=2000,
        price_id="file:m@always",
        priced_as="m",
        rate_set="base",
        **fields,
    )


def test_nothing_billed_is_a_known_nothing() -> None:
    reading = nothing_billed("http_error")
    assert (reading.usage, reading.source, reading.flags) == (Usage(), "none", {"http_error"})
    assert nothing_billed().flags == frozenset()


def test_what_a_provider_may_have_begun_is_its_input_and_marked_as_a_guess() -> None:
    facts = RequestFacts(model="standard", input_tokens=12)
    reading = input_guessed(facts, "upstream_cut")
    assert (reading.usage, reading.source) == (Usage(input_uncached=12), "estimated")
    assert reading.flags == {"upstream_cut", "estimated_input"}


def test_an_attempt_is_written_down_with_its_price_and_settled() -> None:
    usage = Usage(input_uncached=10, output_text=3, output_reasoning=1)
    attempt, closed, settled = booked(Reading(usage=usage, source="provider", model="m-1"))
    assert attempt == plain_attempt(
        model_answered="m-1",
        state="settled",
        usage_source="provider",
        input_uncached=10,
        output_text=3,
        output_reasoning=1,
        cost_pico_usd=18_000_000,
        cost_input_uncached_pico_usd=10_000_000,
        cost_output_pico_usd=8_000_000,
    )
    assert settled == [(18_000_000, 14)]
    assert (closed.cost_pico_usd, closed.baseline_deployment, closed.baseline_pico_usd) == (
        18_000_000,
        "base",
        14 * 3_000_000,
    )


def test_no_count_of_an_answer_with_all_kinds_of_tokens_is_left_out() -> None:
    counts: dict[str, int] = {bucket: number for number, bucket in enumerate(BUCKETS, start=1)}
    usage = Usage(**counts, tools={"web_search": 2}, extra={"citation_tokens": 5})
    attempt, _, settled = booked(
        Reading(usage=usage, source="provider", provider_cost_usd=Decimal("1E-7"), service_tier="flex")
    )
    assert {bucket: getattr(attempt, bucket) for bucket in BUCKETS} == counts
    assert (attempt.tools, attempt.extra) == ({"web_search": 2}, {"citation_tokens": 5})
    assert (attempt.provider_cost_usd, attempt.service_tier) == ("0.0000001", "flex")
    assert attempt.cost_fees_pico_usd == 2 * 10**10
    assert (attempt.output_low, attempt.output_high) == (None, None)
    assert settled == [(attempt.cost_pico_usd, sum(counts.values()))]


def test_an_estimated_output_is_written_down_with_its_range() -> None:
    usage = Usage(input_uncached=10, output_text=3)
    reading = Reading(usage=usage, source="mixed", flags=frozenset(("b", "a")))
    attempt, _, _ = booked(reading, failure="upstream_cut", output_high=64)
    assert attempt == plain_attempt(
        state="estimated",
        failure="upstream_cut",
        usage_source="mixed",
        input_uncached=10,
        output_text=3,
        cost_pico_usd=16_000_000,
        cost_input_uncached_pico_usd=10_000_000,
        cost_output_pico_usd=6_000_000,
        output_low=3,
        output_high=64,
        flags=("a", "b"),
    )


def test_what_nobody_could_meter_has_no_cost_and_is_no_fact():
    unknown = Reading(usage=Usage(), source="none", flags=frozenset({"unmetered"}))
    attempt, closed, settled = booked(unknown)
    assert attempt.cost_pico_usd is None
    assert attempt.flags == ("unmetered", "unpriced")
    assert attempt.state == "estimated"
    assert closed.cost_pico_usd is None
    assert settled == [
        (0, 400)
    ]  # a budget is charged for as many tokens as the body has bytes, at the ceiling

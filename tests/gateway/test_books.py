"""What the books call an attempt, by what is known of its usage."""

from datetime import UTC, datetime

from gateway.books import input_guessed, moment, nothing_billed
from pricing.usage import Usage
from routers.facts import RequestFacts


def test_a_moment_is_in_utc_to_the_millisecond() -> None:
    assert moment(1_764_547_200_125) == datetime(2025, 12, 1, 0, 0, 0, 125_000, tzinfo=UTC)


def test_nothing_billed_is_a_known_nothing() -> None:
    reading = nothing_billed("http_error")
    assert (reading.usage, reading.source, reading.flags) == (Usage(), "none", {"http_error"})
    assert nothing_billed().flags == frozenset()


def test_what_a_provider_may_have_begun_is_its_input_and_marked_as_a_guess() -> None:
    facts = RequestFacts(model="standard", input_tokens=12)
    reading = input_guessed(facts, "upstream_cut")
    assert (reading.usage, reading.source) == (Usage(input_uncached=12), "estimated")
    assert reading.flags == {"upstream_cut", "estimated_input"}

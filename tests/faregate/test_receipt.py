"""The line that a person at a terminal reads for each request."""

from typing import Any

import pytest

from faregate.receipt import dollars, receipt, sentence
from ledger.entry import Admitted, Attempt, Closed


def admitted(**changes: Any) -> Admitted:
    given: dict[str, Any] = {
        "id": "r1",
        "admitted_at_ms": 0,
        "key_id": "key_1",
        "team": "search",
        "model_asked": "auto",
        "tier": "fast",
        "rule": "interactive chat",
    }
    return Admitted(**{**given, **changes})


def attempt(**changes: Any) -> Attempt:
    given: dict[str, Any] = {
        "n": 1,
        "deployment": "luna",
        "provider": "openai",
        "model_called": "gpt-5.6-luna",
        "started_at_ms": 0,
        "status": 200,
        "state": "settled",
        "input_uncached": 12,
        "output_text": 58,
        "usage_source": "reported",
        "cost_pico_usd": 119_000_000,
    }
    return Attempt(**{**given, **changes})


def closed(*attempts: Attempt, **changes: Any) -> Closed:
    given: dict[str, Any] = {
        "id": "r1",
        "closed_at_ms": 5,
        "state": "answered",
        "status": 200,
        "attempts": attempts,
        "cost_pico_usd": 119_000_000,
    }
    return Closed(**{**given, **changes})


def test_an_answer_shows_where_it_came_from_what_it_used_and_what_it_cost() -> None:
    line = receipt(
        admitted(), closed(attempt(), baseline_deployment="terra", baseline_pico_usd=1_190_000_000)
    )

    assert line == (
        '200  fast -> luna  12 in + 58 out  $0.000119  rule "interactive chat"  terra would be $0.00119'
    )


@pytest.mark.parametrize(
    ("counts", "tokens"),
    [
        ({"input_cached": 4096}, "12 in + 4,096 cached + 58 out"),
        ({"cache_write_5m": 100, "cache_write_1h": 24}, "12 in + 124 written + 58 out"),
        ({"input_cached": 7, "cache_write_5m": 3}, "12 in + 7 cached + 3 written + 58 out"),
        ({"input_audio": 5, "input_image": 1000}, "1,017 in + 58 out"),
        ({"input_audio_cached": 9, "input_cached": 1}, "12 in + 10 cached + 58 out"),
        ({"output_reasoning": 2, "output_audio": 3, "output_image": 4}, "12 in + 67 out"),
    ],
)
def test_each_class_of_tokens_is_shown_where_there_are_any(counts: dict[str, int], tokens: str) -> None:
    assert f"  {tokens}  $" in receipt(admitted(), closed(attempt(**counts)))


def test_an_unpriced_answer_is_not_shown_as_free() -> None:
    line = receipt(admitted(), closed(attempt(cost_pico_usd=None), cost_pico_usd=None))

    assert "  unpriced  " in line
    assert "$" not in line


def test_an_estimated_cost_says_so() -> None:
    line = receipt(admitted(), closed(attempt(state="estimated")))

    assert "about $0.000119 (estimated)" in line


def test_a_fallback_names_who_answered_and_how_many_were_asked() -> None:
    first = attempt(
        deployment="luna", state="unbilled", status=500, input_uncached=0, output_text=0, cost_pico_usd=0
    )
    line = receipt(admitted(), closed(first, attempt(n=2, deployment="groq")))

    assert line.startswith("200  fast -> groq  12 in + 58 out")
    assert line.endswith("2 attempts")


def test_a_client_that_left_is_shown_as_cancelled() -> None:
    line = receipt(admitted(), closed(attempt(state="estimated"), state="cancelled", status=499))

    assert line.startswith("499  fast -> luna")
    assert line.endswith("cancelled")


def test_a_failure_shows_its_code() -> None:
    failed = attempt(state="unbilled", status=503, cost_pico_usd=0, failure="status")
    line = receipt(
        admitted(), closed(failed, state="failed", status=502, error="upstream_error", cost_pico_usd=0)
    )

    assert line.endswith("upstream_error")


def test_a_request_for_a_deployment_by_name_is_shown_as_pinned() -> None:
    assert receipt(admitted(tier="", rule="pinned"), closed(attempt())).startswith("200  pinned -> luna")


def test_a_request_without_an_attempt_shows_why() -> None:
    line = receipt(admitted(), closed(state="failed", status=503, error="overloaded", cost_pico_usd=0))

    assert line == "503  overloaded  fast"


def test_a_request_without_an_attempt_and_a_tier_shows_what_was_asked_for() -> None:
    line = receipt(admitted(tier="", model_asked="luna"), closed(state="cancelled", status=499))

    assert line == "499  cancelled  luna"


@pytest.mark.parametrize(
    ("pico_usd", "text"),
    [
        (0, "$0.0000"),
        (72_000_000, "$0.000072"),
        (10_000, "$0.00000001"),
        (1, "$0.000000000001"),
        (9_999_999_999, "$0.01"),
        (12_345_600_000_000, "$12.3456"),
        (1_234_000_000_000_000, "$1,234.0000"),
    ],
)
def test_an_amount_is_never_rounded_to_nothing(pico_usd: int, text: str) -> None:
    assert dollars(pico_usd) == text


@pytest.mark.parametrize(
    ("event", "facts", "said"),
    [
        ("config_taken", {"digest": "ea5e"}, "the saved file is in force (version ea5e)"),
        (
            "config_needs_restart",
            {"digest": "ea5e", "settings": ("gateway.listen", "gateway.redis")},
            "start again for gateway.listen, gateway.redis: until then the former values hold",
        ),
        (
            "config_refused",
            {"problems": ["faregate.toml:3:1: rules is unknown", "faregate.toml:4:1: x is missing"]},
            "the saved file is not taken; the version in force stays:\n"
            "faregate.toml:3:1: rules is unknown\nfaregate.toml:4:1: x is missing",
        ),
        (
            "budget_warning",
            {"budget": "search, monthly", "share": 0.5},
            'budget "search, monthly": 50% of it is spent',
        ),
        ("ledger_away", {"error": "LedgerAway"}, 'ledger_away: {"error": "LedgerAway"}'),
    ],
)
def test_what_the_gateway_tells_of_itself_is_a_sentence(event: str, facts: dict[str, Any], said: str) -> None:
    assert sentence(event, facts) == said

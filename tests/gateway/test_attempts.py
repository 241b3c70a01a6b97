"""What an attempt's end means, and how many more there may be."""

from random import Random
from typing import get_args

import pytest

from gateway.attempts import RetryBudget, pause_seconds, verdict_on_failure, verdict_on_status
from gateway.upstream import FailureKind

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
MOVES = ("elsewhere", "anywhere")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_was_not_sent_is_billed(kind: FailureKind) -> None:
    assert verdict_on_failure(kind, sent=False).cost == "unbilled"


@pytest.mark.parametrize(
    "kind", ["reset", "first_token_timeout", "idle_timeout", "total_timeout", "invalid_response"]
)
def test_what_was_sent_may_be_billed_and_is_not_sent_there_again(kind: FailureKind) -> None:
    verdict = verdict_on_failure(kind, sent=True)
    assert verdict.cost == "estimated"
    assert verdict.again in ("elsewhere", "no")


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_the_clients_faults_are_never_repeated_and_mark_nobody(status: int) -> None:
    verdict = verdict_on_status(status, code=None, wait_seconds=5.0)
    assert (verdict.again, verdict.health, verdict.cost) == ("no", "ignored", "unbilled")


@pytest.mark.parametrize("status", [500, 502, 503, 529])
def test_a_servers_faults_may_be_repeated_anywhere(status: int) -> None:
    verdict = verdict_on_status(status, code=None, wait_seconds=None)
    assert (verdict.again, verdict.health) == ("anywhere", "failed")


@pytest.mark.parametrize(
    ("status", "code", "again", "rest_seconds"),
    [
        (401, None, "elsewhere", 60.0),
        (403, None, "elsewhere", 60.0),
        (402, None, "elsewhere", 300.0),
        (429, "insufficient_quota", "elsewhere", 300.0),
        (429, "rate_limit_exceeded", "anywhere", 2.0),
    ],
)
def test_some_faults_rest_their_deployment_at_once(
    status: int, code: str | None, again: str, rest_seconds: float
) -> None:
    verdict = verdict_on_status(status, code=code, wait_seconds=2.0)
    assert (verdict.again, verdict.health, verdict.rest_seconds) == (again, "rests", rest_seconds)


def test_pauses_grow_and_differ() -> None:
    random = Random(1)
    pauses = [[pause_seconds(n, random, base_seconds=0.25) for n in (1, 2, 3)] for _ in range(200)]
    for first, second, third in pauses:
        assert 0.125 <= first <= second <= third <= 1.0
    assert len({first for first, _, _ in pauses}) == 200


def test_retries_stay_under_a_fifth_with_a_floor_of_three_a_second() -> None:
    budget = RetryBudget()
    budget.failed("a")
    assert [budget.may_retry("a", 0.5) for _ in range(4)] == [True, True, True, False]
    assert budget.may_retry("a", 1.0)  # another second
    for _ in range(1000):
        budget.request(1.0)
    granted = sum(budget.may_retry("a", 1.0) for _ in range(1000))
    assert granted + 4 == 200


def test_a_move_to_a_deployment_that_works_is_never_refused_and_is_counted() -> None:
    budget = RetryBudget()
    assert all(budget.may_retry("b", 0.0) for _ in range(100))
    budget.failed("b")
    assert not budget.may_retry("b", 0.0)
    budget.answered("b")
    assert budget.may_retry("b", 0.0)


def test_what_is_older_than_ten_seconds_does_not_count() -> None:
    budget = RetryBudget()
    budget.failed("a")
    for _ in range(100):
        budget.request(0.0)
    assert sum(budget.may_retry("a", 0.0) for _ in range(50)) == 20
    assert sum(budget.may_retry("a", 11.0) for _ in range(50)) == 3

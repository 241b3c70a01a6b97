"""The circuit breaker: when a deployment rests, who may try it, and that it always comes back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routers.health import Health, Outcome, wait_seconds


def tripped(now: float = 100.0) -> Health:
    health = Health()
    for _ in range(5):
        health.note("a", "failed", now)
    return health


def test_an_unknown_deployment_is_in_use() -> None:
    health = Health()
    assert not health.is_open("a", 0.0)
    assert health.may_try("a", 0.0)
    assert health.rests_for("a", 0.0) == 0.0


def test_four_failures_of_four_requests_change_nothing() -> None:
    health = Health()
    for _ in range(4):
        health.note("a", "failed", 100.0)
    assert not health.is_open("a", 100.0)


def test_half_of_the_requests_failing_is_enough_and_less_is_not() -> None:
    health = Health()
    for outcome in ("ok", "ok", "ok", "failed", "failed"):
        health.note("a", outcome, 100.0)
    assert not health.is_open("a", 100.0)
    health.note("a", "failed", 100.0)
    assert health.is_open("a", 100.0)
    assert not health.is_open("b", 100.0)


def test_failures_older_than_ten_seconds_are_forgotten() -> None:
    health = Health()
    for _ in range(4):
        health.note("a", "failed", 100.0)
    health.note("a", "failed", 110.0)
    assert not health.is_open("a", 110.0)


def test_the_clients_own_faults_never_count() -> None:
    health = Health()
    for _ in range(50):
        health.note("a", "ignored", 100.0)
    assert not health.is_open("a", 100.0)


def test_all_are_in_use_while_none_of_them_rests_or_waits_for_its_probe() -> None:
    health = tripped()
    assert not health.all_in_use(frozenset({"a", "b"}))
    assert health.all_in_use(frozenset({"b"}))
    assert not health.all_in_use(frozenset({"a"}))
    health.keep_only(frozenset({"b"}))
    assert health.all_in_use(frozenset({"a", "b"}))


def test_a_rest_ends_with_one_probe_at_a_time() -> None:
    health = tripped()
    assert not health.may_try("a", 100.9)
    assert not health.is_open("a", 101.0)
    assert health.may_try("a", 101.0)
    assert health.is_open("a", 101.0)
    assert not health.may_try("a", 101.5)
    health.note("a", "ok", 102.0)
    assert health.may_try("a", 102.0)
    assert health.may_try("a", 102.0)


def test_after_a_probe_that_works_the_slate_is_clean() -> None:
    health = tripped()
    assert health.may_try("a", 101.0)
    health.note("a", "ok", 101.0)
    health.note("a", "failed", 101.0)
    assert not health.is_open("a", 101.0)


def test_rests_grow_to_ten_seconds_and_no_further() -> None:
    health = tripped(0.0)
    now, rests = 0.0, [health.rests_for("a", 0.0)]
    for _ in range(6):
        now += health.rests_for("a", now)
        assert health.may_try("a", now)
        health.note("a", "failed", now)
        rests.append(health.rests_for("a", now))
    assert rests == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_a_probe_that_says_nothing_lets_the_next_one_try() -> None:
    health = tripped()
    assert health.may_try("a", 101.0)
    health.note("a", "ignored", 101.1)
    assert health.may_try("a", 101.1)


def test_a_probe_that_never_reports_is_forgotten() -> None:
    health = tripped()
    assert health.may_try("a", 101.0)
    assert not health.may_try("a", 110.9)
    assert health.may_try("a", 111.0)


def test_late_news_of_requests_sent_before_the_rest_changes_nothing() -> None:
    health = tripped()
    health.note("a", "ok", 100.5)
    health.note("a", "failed", 100.5)
    assert health.is_open("a", 100.9)
    assert health.rests_for("a", 100.0) == 1.0


@pytest.mark.parametrize("seconds", [0.25, 2.0, 60.0, 300.0])
def test_a_deployment_rests_for_as_long_as_it_is_told(seconds: float) -> None:
    health = Health()
    health.note("a", "rests", 100.0, seconds)
    assert health.is_open("a", 100.0 + seconds - 0.01)
    assert health.may_try("a", 100.0 + seconds)


def test_a_failure_that_says_how_long_to_wait_rests_at_once() -> None:
    health = Health()
    health.note("a", "failed", 100.0, 3.0)
    assert health.rests_for("a", 100.0) == 3.0


def test_of_two_rests_the_later_end_counts() -> None:
    health = Health()
    health.note("a", "rests", 100.0, 30.0)
    health.note("a", "rests", 101.0, 2.0)
    assert health.rests_for("a", 101.0) == 29.0
    health.note("a", "rests", 101.0, 50.0)
    assert health.rests_for("a", 101.0) == 50.0


def test_a_time_that_is_already_over_is_no_rest() -> None:
    health = Health()
    health.note("a", "rests", 100.0, -5.0)
    assert not health.is_open("a", 100.0)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(2.0, 2.0), (-1.0, 0.0), (1e9, 60.0), (float("inf"), 60.0), (float("nan"), 60.0), (float("-inf"), 0.0)],
)
def test_what_a_provider_asks_for_is_kept_within_reason(asked: float, kept: float) -> None:
    assert wait_seconds(asked) == kept


def test_no_rest_is_longer_than_five_minutes() -> None:
    health = Health()
    health.note("a", "rests", 0.0, 1e12)
    assert health.rests_for("a", 0.0) == 300.0


def test_where_all_rest_one_request_a_second_may_try() -> None:
    health = Health()
    health.note("a", "rests", 100.0, 60.0)
    assert not health.may_try("a", 110.0)
    assert health.may_try("a", 110.0, last_resort=True)
    assert not health.may_try("a", 110.9, last_resort=True)
    assert health.may_try("a", 111.0, last_resort=True)
    health.note("a", "ok", 111.2)
    assert health.may_try("a", 111.2)


def test_deployments_that_left_the_file_are_forgotten() -> None:
    health = tripped()
    health.keep_only(frozenset({"b"}))
    assert not health.is_open("a", 100.0)


STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 3.0),
        st.sampled_from(["ok", "failed", "rests", "ignored"]),
        st.none() | st.floats(allow_nan=True, allow_infinity=True),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_whatever_happened_a_healed_deployment_is_back_once_its_rest_is_over(
    steps: list[tuple[float, Outcome, float | None]],
) -> None:
    health, now = Health(), 1000.0
    for wait, outcome, rest in steps:
        now += wait
        if health.may_try("a", now):
            health.note("a", outcome, now, rest)
        assert not (health.all_in_use(frozenset({"a", "b"})) and health.is_open("a", now))
    assert 0.0 <= health.rests_for("a", now) <= 300.001  # moments are floats
    now += health.rests_for("a", now) + 0.001
    assert health.may_try("a", now)
    health.note("a", "ok", now)
    assert health.may_try("a", now)
    assert not health.is_open("a", now)
    assert health.all_in_use(frozenset({"a", "b"}))


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 0.5), st.integers(1, 90))
def test_a_deployment_that_heals_is_back_within_fifteen_seconds_under_load(every: float, sick: int) -> None:
    health, now = Health(), 0.0
    probes_under_way = 0
    while now < sick + 15.0:
        if health.may_try("a", now):
            probes_under_way += 1
            health.note("a", "failed" if now < sick else "ok", now)
        now += every
    assert not health.is_open("a", now)
    assert health.may_try("a", now)
    assert probes_under_way > 0

"""Limits in memory: exact, all or nothing, bounded."""

import asyncio
import random
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shared_state import Admission, Demand, Refusal
from gateway.shared_state.limits import BudgetSpec, TeamLimits, window_of
from gateway.shared_state.memory import MemoryState
from pricing.money import PicoUsd

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC).timestamp()


class Clock:
    """A monotonic clock you can set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def budget(name: str = "b", limit: int = 100, **fields: str) -> BudgetSpec:
    return BudgetSpec(name=name, limit=PicoUsd(limit), **fields)  # type: ignore[arg-type]


def demand(
    worst_case: int | None = 10,
    *,
    tokens: int = 1,
    team: str = "search",
    application: str | None = None,
    key: str = "k1",
    rpm: int | None = None,
    tpm: int | None = None,
    counts: bool = True,
) -> Demand:
    return Demand(
        request_id="r",
        key_id=key,
        team=team,
        application=application,
        worst_case=None if worst_case is None else PicoUsd(worst_case),
        tokens=tokens,
        requests_per_minute=rpm,
        tokens_per_minute=tpm,
        counts_as_request=counts,
    )


def admitted(state: MemoryState, asks: Demand, now: float = NOW) -> Admission:
    got = state.admit(asks, now)
    assert isinstance(got, Admission), got
    return got


def refused(state: MemoryState, asks: Demand, now: float = NOW) -> Refusal:
    got = state.admit(asks, now)
    assert isinstance(got, Refusal), got
    return got


def money(state: MemoryState, now: float = NOW) -> list[tuple[int, int]]:
    return [(standing.spent, standing.held) for standing in state.standings(now)]


# ── money ──


def test_the_worst_case_is_held_and_then_replaced_by_the_cost() -> None:
    state = MemoryState([budget()])

    admission = admitted(state, demand(60))
    held = money(state)
    refusal = refused(state, demand(41))
    state.settle(admission, cost=PicoUsd(7), tokens=3)

    assert held == [(0, 60)]
    assert refusal.code == "budget_exceeded"
    assert money(state) == [(7, 0)]
    admitted(state, demand(93))
    assert refused(state, demand(1)).code == "budget_exceeded"


def test_an_admission_is_settled_once() -> None:
    state = MemoryState([budget()])
    admission = admitted(state, demand(60))

    state.settle(admission, cost=PicoUsd(7), tokens=3)
    state.settle(admission, cost=PicoUsd(7), tokens=3)

    assert money(state) == [(7, 0)]
    assert state.open_admissions == 0


def test_a_cost_over_the_worst_case_is_recorded_in_full_and_refuses_the_next() -> None:
    state = MemoryState([budget()])

    state.settle(admitted(state, demand(10)), cost=PicoUsd(150), tokens=3)

    assert money(state) == [(150, 0)]
    assert refused(state, demand(0)).code == "budget_exceeded"


def test_all_budgets_admit_together_or_none_holds_anything() -> None:
    state = MemoryState(
        [budget("key", 100, key="k1"), budget("team", 100, team="search"), budget("company", 15)],
        [TeamLimits(team="search", requests_per_minute=100, tokens_per_minute=100)],
    )
    admitted(state, demand(10))

    refusal = refused(state, demand(10))

    assert '(budget "company")' in refusal.message
    assert money(state) == [(0, 10), (0, 10), (0, 10)]


def test_a_rate_limit_that_refuses_leaves_no_hold_in_a_budget() -> None:
    state = MemoryState([budget()], [TeamLimits(team="search", requests_per_minute=1)])
    admitted(state, demand(10, rpm=5))

    assert refused(state, demand(10, rpm=5)).code == "rate_limit_exceeded"

    assert money(state) == [(0, 10)]
    assert state.open_admissions == 1


def test_a_request_nobody_can_price_is_refused_only_under_a_budget() -> None:
    state = MemoryState([budget(team="search")])

    assert refused(state, demand(None)).code == "unpriced"
    assert admitted(state, demand(None, team="ads")).budgets == ()


def test_a_spent_budget_may_leave_a_tier_open() -> None:
    state = MemoryState([budget(when_spent="small"), budget("wide", 1000)])
    first = admitted(state, demand(100))
    second = admitted(state, demand(10))
    state.settle(second, cost=PicoUsd(10), tokens=1)

    assert (first.over, first.allowed_tiers) == ((), None)
    assert (second.budgets, second.over, second.allowed_tiers) == (
        ("b", "wide"),
        ("b",),
        frozenset({"small"}),
    )
    assert money(state) == [(10, 100), (10, 100)]


def test_spent_budgets_that_leave_different_tiers_leave_none() -> None:
    state = MemoryState([budget("a", 1, when_spent="small"), budget("b", 1, when_spent="fast")])

    assert refused(state, demand(10)).code == "budget_exceeded"


def test_money_lands_in_the_window_its_request_was_admitted_in() -> None:
    state = MemoryState([budget()])
    november = admitted(state, demand(60), DECEMBER - 0.001)
    december = admitted(state, demand(60), DECEMBER)

    state.settle(november, cost=PicoUsd(60), tokens=1)
    state.settle(december, cost=PicoUsd(5), tokens=1)

    assert money(state, DECEMBER) == [(5, 0)]


def test_a_clock_that_goes_back_opens_no_window_twice() -> None:
    state = MemoryState([budget()])
    state.settle(admitted(state, demand(60), DECEMBER), cost=PicoUsd(60), tokens=1)

    admission = admitted(state, demand(10), DECEMBER - 3600)
    state.settle(admission, cost=PicoUsd(10), tokens=1)

    assert money(state, DECEMBER) == [(70, 0)]


def test_a_start_goes_on_from_the_ledger() -> None:
    state = MemoryState([budget()])
    state.load_spent("b", window_of("month", NOW), PicoUsd(95))
    state.load_spent("gone", window_of("month", NOW), PicoUsd(95))

    assert refused(state, demand(6)).code == "budget_exceeded"
    admitted(state, demand(5))


def test_new_terms_keep_what_was_spent_and_name_what_begins_anew() -> None:
    state = MemoryState([budget(limit=100), budget("gone")])
    open_one = admitted(state, demand(60))

    fresh = state.configure([budget(limit=70), budget("new"), budget("gone", team="ads")], [])

    assert fresh == ["new", "gone"]
    assert refused(state, demand(11)).code == "budget_exceeded"
    state.settle(open_one, cost=PicoUsd(20), tokens=1)
    assert money(state) == [(20, 0), (0, 0), (0, 0)]


def test_each_warning_is_given_once_a_window() -> None:
    told: list[tuple[str, float]] = []
    spec = BudgetSpec(name="b", limit=PicoUsd(100), warn_at=(0.8, 0.5))
    state = MemoryState([spec], warned=lambda name, share: told.append((name, share)))

    for cost in (49, 1, 1, 40):
        state.settle(admitted(state, demand(0)), cost=PicoUsd(cost), tokens=1)
    state.settle(admitted(state, demand(0), DECEMBER), cost=PicoUsd(90), tokens=1)

    assert told == [("b", 0.5), ("b", 0.8), ("b", 0.5), ("b", 0.8)]


def test_the_smallest_share_left_is_told() -> None:
    state = MemoryState([budget("a", 100), budget("b", 100, team="search"), budget("c", 1, key="k1")])
    state.settle(admitted(state, demand(1)), cost=PicoUsd(25), tokens=1)
    state.configure([budget("a", 100), budget("b", 50, team="search"), budget("d", 100, team="ads")], [])

    assert state.budget_left_share("search", None) == 0.5
    assert state.budget_left_share("other", "chat") == 0.75
    assert MemoryState().budget_left_share("search", None) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["search", "ads", "nobody"]),
        st.sampled_from([None, "chat", "invented"]),
        st.sampled_from([0, 10, 60]),  # worst case
        st.sampled_from([-1800.0, 0.0, 0.0, 40_000.0]),  # the clock moves by
        st.none() | st.tuples(st.integers(0, 5), st.sampled_from([0, 5, 70])),  # one of the open ones costs
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans())
def test_whatever_comes_each_window_has_what_was_admitted_in_it(
    steps: list[tuple[str, str | None, int, float, tuple[int, int] | None]],
    by_application: bool,
) -> None:
    specs = [
        BudgetSpec(name="all", limit=PicoUsd(150), per="day"),
        BudgetSpec(name="search", team="search", limit=PicoUsd(100), per="day", warn_at=(0.5, 0.8)),
        BudgetSpec(
            name="chat", application="chat" if by_application else None, limit=PicoUsd(80), per="week"
        ),
    ]
    told: list[tuple[str, float]] = []
    state = MemoryState(specs, warned=lambda name, share: told.append((name, share)))
    windows = dict.fromkeys(["all", "search", "chat"], 0.0)  # the end of each one's present window
    spent: dict[tuple[str, float], int] = {}
    held: dict[tuple[str, float], int] = {}
    warned: list[tuple[str, float]] = []
    open_ones: list[tuple[Admission, int, list[tuple[str, float]]]] = []
    now = NOW
    for team, application, worst, moves, costs in steps:
        now += moves
        touched = [
            s for s in specs if (s.team or team) == team and (s.application or application) == application
        ]
        fits = True
        for spec in touched:
            if fits and now >= windows[spec.name]:  # after a refusal nobody else looks at the clock
                windows[spec.name] = window_of(spec.per, now).end
            place = (spec.name, windows[spec.name])
            fits = fits and spent.get(place, 0) + held.get(place, 0) + worst <= spec.limit
        places = [(spec.name, windows[spec.name]) for spec in touched]
        got = state.admit(demand(worst, team=team, application=application), now)
        assert isinstance(got, Admission) == fits
        if isinstance(got, Admission):
            open_ones.append((got, worst, places))
            for place in places:
                held[place] = held.get(place, 0) + worst
        if costs is not None and costs[0] < len(open_ones):
            admission, most, where = open_ones.pop(costs[0])
            state.settle(admission, cost=PicoUsd(costs[1]), tokens=1)
            state.settle(admission, cost=PicoUsd(costs[1]), tokens=1)
            for place in where:
                before = spent.get(place, 0)
                held[place] -= most
                spent[place] = before + costs[1]
                if place == ("search", windows["search"]):
                    warned += [("search", at) for at in (0.5, 0.8) if before < at * 100 <= spent[place]]
        least = [
            max(0.0, 1.0 - (spent.get(place, 0) + held.get(place, 0)) / spec.limit)
            for spec, place in zip(touched, places, strict=True)
        ]
        assert state.budget_left_share(team, application) == min(least)
    assert told == warned
    for standing in state.standings(now):
        place = (standing.spec.name, standing.window.end)
        assert (standing.spent, standing.held) == (spent.get(place, 0), held.get(place, 0))


def test_200_at_once_never_pass_a_budget() -> None:
    limit, cost = 1000, 10
    state = MemoryState([budget(limit=limit)])
    chance = random.Random(5)
    seen: list[int] = []
    outcomes = {"admitted": 0, "refused": 0}

    async def client() -> None:
        for _ in range(5):
            got = state.admit(demand(cost), NOW)
            for standing in state.standings(NOW):
                seen.append(standing.spent + standing.held)
            await asyncio.sleep(0)
            if isinstance(got, Admission):
                outcomes["admitted"] += 1
                state.settle(got, cost=PicoUsd(chance.choice([cost, cost, 0])), tokens=1)
            else:
                outcomes["refused"] += 1

    async def work() -> None:
        await asyncio.gather(*[client() for _ in range(200)])

    asyncio.run(work())

    assert sum(outcomes.values()) == 1000
    assert outcomes["refused"] > 0
    assert max(seen) <= limit
    [(spent, held)] = money(state)
    assert held == 0
    assert spent <= limit
    assert refused(state, demand(limit - spent + 1)).code == "budget_exceeded"
    assert spent + 2 * cost > limit  # no room was lost


def test_invented_names_take_no_memory() -> None:
    state = MemoryState([budget(application="chat")])
    of_teams = MemoryState([budget(team="search")])

    for n in range(1000):
        admitted(of_teams, demand(0, application=f"invented {n}", key=f"k{n}"))
        admitted(of_teams, demand(0, team=f"t{n}"))
        got = admitted(state, demand(0, application=f"invented {n}", key=f"k{n}", team=f"t{n}"))
        state.settle(got, cost=PicoUsd(0), tokens=1)

    assert state.remembered == 1
    assert of_teams.remembered == 2 + 1  # the team, everybody else; the team once more
    assert state.open_admissions == 0


# ── requests and tokens a minute ──


def test_any_60_seconds_let_through_at_most_the_limit_and_almost_that() -> None:
    clock, chance = Clock(), random.Random(3)
    state = MemoryState(monotonic=clock)
    let_through: list[float] = []
    while clock.now < 1000 + 600:
        clock.now += chance.expovariate(20)
        got = state.admit(demand(tokens=1, rpm=600), NOW)
        if isinstance(got, Admission):
            let_through.append(clock.now)
            state.settle(got, cost=PicoUsd(0), tokens=1)

    first = 0
    for last, moment in enumerate(let_through):
        while let_through[first] < moment - 60:
            first += 1
        assert last - first + 1 <= 600
    assert len(let_through) >= 600 * 10 * 0.98


@pytest.mark.parametrize("of", ["key", "team"])
def test_a_refusal_says_when_there_is_room_again(of: str) -> None:
    clock = Clock()
    teams = [TeamLimits(team="search", requests_per_minute=2)] if of == "team" else []
    state = MemoryState(teams=teams, monotonic=clock)
    asks = demand(rpm=2 if of == "key" else None)
    admitted(state, asks)
    clock.now += 10
    admitted(state, asks)
    clock.now += 10

    wait = refused(state, asks).retry_after_seconds

    assert wait == pytest.approx(40.5)  # pyright: ignore[reportUnknownMemberType] - a duration, not money
    clock.now += wait or 0
    admitted(state, asks)
    assert refused(state, asks).code == "rate_limit_exceeded"


def test_tokens_are_reserved_and_corrected_by_what_was_used() -> None:
    clock = Clock()
    state = MemoryState(monotonic=clock)
    asks = demand(tokens=6_000, tpm=10_000)
    first = admitted(state, asks)
    assert refused(state, asks).code == "rate_limit_exceeded"

    state.settle(first, cost=PicoUsd(0), tokens=1_000)
    second = admitted(state, asks)
    state.settle(second, cost=PicoUsd(0), tokens=9_500)

    assert refused(state, demand(tokens=1, tpm=10_000)).code == "rate_limit_exceeded"
    clock.now += 60.5
    admitted(state, demand(tokens=10_000, tpm=10_000))


def test_a_correction_after_its_minute_changes_nothing() -> None:
    clock = Clock()
    state = MemoryState(monotonic=clock)
    old = admitted(state, demand(tokens=6_000, tpm=10_000))
    clock.now += 120
    admitted(state, demand(tokens=6_000, tpm=10_000))

    state.settle(old, cost=PicoUsd(0), tokens=0)

    assert refused(state, demand(tokens=4_001, tpm=10_000)).code == "rate_limit_exceeded"
    admitted(state, demand(tokens=4_000, tpm=10_000))


def test_a_request_larger_than_the_limit_is_not_told_to_wait() -> None:
    state = MemoryState(monotonic=Clock())

    refusal = refused(state, demand(tokens=10_001, tpm=10_000))

    assert refusal.retry_after_seconds is None


def test_a_fallback_is_not_counted_as_another_request_but_its_tokens_are() -> None:
    state = MemoryState(monotonic=Clock())
    admitted(state, demand(tokens=10, rpm=1, tpm=25))

    admitted(state, demand(tokens=10, rpm=1, tpm=25, counts=False))

    assert refused(state, demand(tokens=10, rpm=1, tpm=25, counts=False)).code == "rate_limit_exceeded"


def test_request_and_token_windows_reset_on_their_own() -> None:
    clock = Clock()
    state = MemoryState(monotonic=clock)
    admitted(state, demand(tokens=10, rpm=2, tpm=10))
    clock.now += 30
    admitted(state, demand(tokens=0, rpm=2, tpm=10))
    clock.now += 31

    admitted(state, demand(tokens=10, rpm=2, tpm=10))

    assert "requests" in refused(state, demand(tokens=0, rpm=2, tpm=10)).message


def test_keys_that_are_quiet_for_a_minute_are_forgotten() -> None:
    clock = Clock()
    state = MemoryState(monotonic=clock)
    for n in range(10_050):
        state.settle(admitted(state, demand(key=f"k{n}", rpm=5)), cost=PicoUsd(0), tokens=1)
        if n == 9_999:
            clock.now += 61

    assert state.remembered <= 52

"""What is held before an attempt is sent, and the words of a refusal."""

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from gateway.auth import Caller
from gateway.config import parse
from gateway.errors import GatewayError
from gateway.holding import hold, hold_again
from gateway.live import Live, Services
from gateway.shared_state import Admission, Demand, Refusal
from gateway.shared_state.limits import BudgetSpec, TeamLimits
from gateway.shared_state.memory import MemoryState
from gateway.upstream import Upstream
from pricing.money import PicoUsd
from routers.facts import RequestFacts
from tests.end_to_end.harness import SECRETS, toml

CALLER = Caller(key_id="key_1", team="search", requests_per_minute=None, tokens_per_minute=None)
NOW_MS = time.time_ns() // 1_000_000
OUTPUT = 64
BODY = 200  # bytes
WORST_CASE = BODY * 3_125_000 + OUTPUT * 10_000_000


def live() -> Live:
    """One version of a file with the tiers `standard`, `dear` (both of a and b) and `cheap` (of a)."""
    text = toml(
        {"a": "http://127.0.0.1:9/v1", "b": "http://127.0.0.1:9/v1"},
        tiers={"standard": ["a", "b"], "dear": ["b"], "cheap": ["a"]},
    )
    config = parse("faregate.toml", text.encode(), {**SECRETS, "PROVIDER_KEY": "k"})
    return Live(config, {name: cast("Upstream", None) for name in config.providers})


FILE = live()


class StateServices:
    """As much of the services as holding needs."""

    def __init__(self, state: Any) -> None:
        self.state = state


def services(*budgets: BudgetSpec, teams: tuple[TeamLimits, ...] = ()) -> tuple[Services, MemoryState]:
    """Services that share this state, and the state."""
    state = MemoryState(list(budgets), list(teams))
    return cast("Services", StateServices(state)), state


def budget(limit: int, **more: Any) -> BudgetSpec:
    """A budget of everybody's."""
    return BudgetSpec(name="all", limit=PicoUsd(limit), **more)


def facts() -> RequestFacts:
    """A request of 200 bytes."""
    return RequestFacts(
        endpoint="chat",
        model="standard",
        key_id="key_1",
        team="search",
        input_bytes=BODY,
        input_tokens=BODY // 4,
        max_output_tokens=OUTPUT,
    )


def ask(shared: Services, *, target: str = "a", caller: Caller = CALLER) -> Admission:
    """The first attempt's hold."""
    return asyncio.run(hold(shared, FILE.targets[target], facts(), caller, "r", NOW_MS, OUTPUT))


def ask_again(shared: Services, *, tier: str, target: str = "b", caller: Caller = CALLER) -> Admission:
    """A further attempt's hold."""
    return asyncio.run(
        hold_again(shared, FILE, FILE.targets[target], tier, facts(), caller, "r", NOW_MS, OUTPUT)
    )


def test_the_worst_case_is_held() -> None:
    shared, state = services(budget(10**12))
    ask(shared)
    (standing,) = state.standings(NOW_MS / 1000)
    assert (standing.spent, standing.held) == (0, WORST_CASE)


@pytest.mark.parametrize(("limit", "fits"), [(WORST_CASE, True), (WORST_CASE - 1, False)])
def test_a_budget_admits_to_the_last_pico_dollar(limit: int, fits: bool) -> None:
    shared, state = services(budget(limit))
    if fits:
        ask(shared)
        return
    with pytest.raises(GatewayError) as wrong:
        ask(shared)
    assert (wrong.value.status, wrong.value.type, wrong.value.code) == (
        429,
        "insufficient_quota",
        "budget_exceeded",
    )
    assert wrong.value.should_retry is False
    assert wrong.value.retry_after_seconds is None
    assert state.open_admissions == 0


def test_a_limit_a_minute_says_when_to_come_back() -> None:
    shared, _ = services()
    caller = replace(CALLER, requests_per_minute=1)
    ask(shared, caller=caller)
    with pytest.raises(GatewayError) as wrong:
        ask(shared, caller=caller)
    assert (wrong.value.status, wrong.value.code) == (429, "rate_limit_exceeded")
    assert wrong.value.retry_after_seconds is not None
    assert 59 < wrong.value.retry_after_seconds <= 61
    assert wrong.value.should_retry is None


def test_one_more_attempt_is_no_further_request() -> None:
    shared, state = services()
    caller = replace(CALLER, requests_per_minute=1)
    ask(shared, caller=caller)
    ask_again(shared, tier="standard", caller=caller)
    assert state.open_admissions == 2


@pytest.mark.parametrize(
    ("tier", "target", "goes"),
    [
        ("standard", "b", False),
        ("dear", "b", False),
        ("cheap", "a", True),
        ("", "a", True),  # pinned, and in the tier that is left
        ("", "b", False),
    ],
)
def test_a_spent_budget_lets_only_its_tier_go_on(tier: str, target: str, goes: bool) -> None:
    shared, state = services(budget(WORST_CASE - 1, when_spent="cheap"))
    if goes:
        assert ask_again(shared, tier=tier, target=target).over == ("all",)
        return
    with pytest.raises(
        GatewayError, match=r'at [ab], does not fit into the budget "all"; it leaves only cheap'
    ):
        ask_again(shared, tier=tier, target=target)
    assert state.open_admissions == 0
    (standing,) = state.standings(NOW_MS / 1000)
    assert (standing.spent, standing.held) == (0, 0)


class ElsewhereState:
    """A state that must be waited for, as Redis is."""

    def __init__(self, answer: Admission | Refusal) -> None:
        self.answer = answer
        self.asked: list[Demand] = []

    async def admit(self, demand: Demand, now: float) -> Admission | Refusal:
        self.asked.append(demand)
        return self.answer


def test_a_state_elsewhere_is_waited_for() -> None:
    refusal = Refusal(code="unpriced", message="no price", retry_after_seconds=None)
    with pytest.raises(GatewayError, match="no price") as wrong:
        ask(cast("Services", StateServices(ElsewhereState(refusal))))
    assert wrong.value.code == "unpriced"

"""Every question on SQLite, with filled rows: sums to the last pico-dollar."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from ledger.answers import Extent, Maker, Names, RequestFilter
from ledger.entry import Admitted, Attempt, Closed
from ledger.queries import (
    baselines_seen,
    extent,
    find_requests,
    maker_of,
    mark_of,
    names_in,
    newest_config,
    request_by_id,
    spend_by_application,
    spend_by_day,
    spend_by_deployment,
    spend_by_team,
    spend_by_tier,
)
from ledger.rows import Books
from ledger.store import Ledger, StoredPrice, open_ledger

MONDAY, TUESDAY, WEDNESDAY = date(2026, 11, 23), date(2026, 11, 24), date(2026, 11, 25)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    yield opened
    opened.close()


def at_ms(day: date, hour: int = 12) -> int:
    return int(datetime(day.year, day.month, day.day, hour, tzinfo=UTC).timestamp() * 1000)


def attempt(
    n: int = 1,
    *,
    deployment: str = "luna",
    cost: int | None = 15,
    state: str = "settled",
    day: date = MONDAY,
    price_id: str | None = None,
) -> Attempt:
    return Attempt(
        n=n,
        deployment=deployment,
        provider="openai",
        model_called=f"model-of-{deployment}",
        started_at_ms=at_ms(day),
        status=200,
        state=state,  # pyright: ignore[reportArgumentType] - a parameter of the builder
        input_uncached=100,
        input_cached=40,
        output_text=7,
        usage_source="provider",
        price_id=price_id,
        cost_pico_usd=cost,
        cost_input_uncached_pico_usd=(cost or 0) - 2 * ((cost or 0) // 5),
        cost_input_cached_pico_usd=(cost or 0) // 5,
        cost_output_pico_usd=(cost or 0) // 5,
        flags=("unpriced",) if cost is None else (),
    )


def request(
    id: str,
    *attempts: Attempt,
    day: date = MONDAY,
    hour: int = 12,
    team: str = "search",
    application: str | None = "answers",
    tier: str = "fast",
    state: str = "answered",
    baseline: int | None = None,
) -> Books:
    costs = [one.cost_pico_usd for one in attempts]
    total = None if None in costs else sum(cost for cost in costs if cost is not None)
    return Books(
        Admitted(
            id=id,
            admitted_at_ms=at_ms(day, hour),
            key_id="k-1",
            team=team,
            application=application,
            tier=tier,
            rule="interactive chat",
            decided_because=('rule "interactive chat"',),
            deployments=("luna", "terra"),
        ),
        Closed(
            id=id,
            closed_at_ms=at_ms(day, hour) + 1_000,
            state=state,  # pyright: ignore[reportArgumentType] - a parameter of the builder
            status=200,
            attempts=attempts,
            cost_pico_usd=total,
            baseline_deployment=None if baseline is None else "terra",
            baseline_pico_usd=baseline,
            duration_ms=1_000,
        ),
    )


def test_an_empty_ledger_answers_every_question(ledger: Ledger) -> None:
    with ledger.reading() as at:
        assert spend_by_day(at, MONDAY, WEDNESDAY) == []
        for ask in (spend_by_team, spend_by_application, spend_by_tier, spend_by_deployment):
            assert ask(at, MONDAY, WEDNESDAY) == []
        assert names_in(at, MONDAY, WEDNESDAY) == Names()
        assert extent(at) == Extent()
        assert mark_of(at) is None
        assert newest_config(at) is None
        assert baselines_seen(at, MONDAY, WEDNESDAY) == ()
        assert find_requests(at, MONDAY, WEDNESDAY, RequestFilter()) == []
        assert request_by_id(at, "r-1") is None


def test_a_day_has_what_was_admitted_in_it_and_nothing_of_its_neighbours(ledger: Ledger) -> None:
    ledger.append(
        [
            request("before", attempt(cost=1), day=date(2026, 11, 22), hour=23),
            request("first", attempt(cost=15), hour=0),
            request("second", attempt(cost=20), day=TUESDAY, hour=23),
            request("after", attempt(cost=7), day=WEDNESDAY, hour=0),
        ]
    )
    with ledger.reading() as at:
        days = spend_by_day(at, MONDAY, WEDNESDAY)
    assert [(one.day, one.sums.cost.total, one.sums.requests) for one in days] == [
        (MONDAY, 15, 1),
        (TUESDAY, 20, 1),
    ]
    assert (days[0].sums.cost.input_uncached, days[0].sums.cost.input_cached) == (9, 3)
    assert (days[0].sums.usage.input_uncached, days[0].sums.usage.output_text) == (100, 7)


def test_sums_are_exact_past_two_to_the_sixty_third_pico_dollars(ledger: Ledger) -> None:
    most = 2**63 - 1
    ledger.append([request(f"r-{n}", attempt(cost=most), baseline=most) for n in range(5)])
    with ledger.reading() as at:
        (day,) = spend_by_day(at, MONDAY, TUESDAY)
        (team,) = spend_by_team(at, MONDAY, TUESDAY)
    assert day.sums.cost.total == team.sums.cost.total == 5 * most
    cost = day.sums.cost
    assert cost.input_uncached + cost.input_cached + cost.cache_write + cost.output + cost.fees == 5 * most
    assert (day.sums.baseline, day.sums.compared_cost) == (5 * most, 5 * most)


def test_a_fallback_counts_the_request_once_and_each_call_where_it_was_made(ledger: Ledger) -> None:
    ledger.append([request("r-1", attempt(cost=5), attempt(2, deployment="terra", cost=90), baseline=60)])
    with ledger.reading() as at:
        shares = spend_by_deployment(at, MONDAY, TUESDAY)
    seen = [(one.name, one.sums.cost.total, one.sums.requests, one.sums.attempts) for one in shares]
    assert seen == [("terra", 90, 1, 1), ("luna", 5, 0, 1)]
    assert (shares[0].sums.compared_cost, shares[0].sums.baseline) == (95, 60)


def test_the_most_expensive_stands_first_and_what_has_no_name_has_none(ledger: Ledger) -> None:
    ledger.append(
        [
            request("r-1", attempt(cost=5), team="a", application=None, tier=""),
            request("r-2", attempt(cost=50), team="b"),
        ]
    )
    with ledger.reading() as at:
        assert [one.name for one in spend_by_team(at, MONDAY, TUESDAY)] == ["b", "a"]
        assert [one.name for one in spend_by_application(at, MONDAY, TUESDAY)] == ["answers", ""]
        assert [one.name for one in spend_by_tier(at, MONDAY, TUESDAY)] == ["fast", ""]
        assert names_in(at, MONDAY, TUESDAY) == Names(
            teams=("a", "b"), applications=("answers",), tiers=("fast",), deployments=("luna",)
        )


def test_estimated_is_a_part_of_the_spend_and_unpriced_is_in_no_sum(ledger: Ledger) -> None:
    ledger.append(
        [
            request("r-1", attempt(cost=15)),
            request("r-2", attempt(cost=4, state="estimated")),
            request("r-3", attempt(cost=None)),
        ]
    )
    with ledger.reading() as at:
        (day,) = spend_by_day(at, MONDAY, TUESDAY)
        lines = {line.id: line for line in find_requests(at, MONDAY, TUESDAY, RequestFilter())}
    assert (day.sums.cost.total, day.sums.cost_estimated) == (19, 4)
    assert (day.sums.attempts, day.sums.estimated, day.sums.unpriced) == (3, 1, 1)
    assert [lines[id].cost for id in ("r-1", "r-2", "r-3")] == [15, 4, None]
    assert [lines[id].is_estimated for id in ("r-1", "r-2", "r-3")] == [False, True, False]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (RequestFilter(), ["r-4", "r-3", "r-2", "r-1"]),
        (RequestFilter(team="support"), ["r-2"]),
        (RequestFilter(application="answers", tier="small"), ["r-3"]),
        (RequestFilter(deployment="terra"), ["r-3"]),
        (RequestFilter(state="failed"), ["r-4"]),
        (RequestFilter(quality="estimated"), ["r-1"]),
        (RequestFilter(quality="unpriced"), ["r-2"]),
        (RequestFilter(team="' OR 1=1 --"), []),
    ],
)
def test_a_filter_finds_what_fits_the_newest_first(
    ledger: Ledger, wanted: RequestFilter, ids: list[str]
) -> None:
    ledger.append(
        [
            request("r-1", attempt(state="estimated"), hour=1),
            request("r-2", attempt(cost=None), hour=2, team="support"),
            request("r-3", attempt(), attempt(2, deployment="terra"), hour=3, tier="small"),
            request("r-4", hour=4, state="failed"),
            request("other day", attempt(), day=TUESDAY),
        ]
    )
    with ledger.reading() as at:
        assert [line.id for line in find_requests(at, MONDAY, TUESDAY, wanted)] == ids
        assert [line.id for line in find_requests(at, MONDAY, TUESDAY, wanted, limit=1)] == ids[:1]


def test_one_request_is_given_with_its_reason_its_calls_and_their_prices(ledger: Ledger) -> None:
    ledger.append(
        [
            request(
                "r-1", attempt(cost=5, price_id="p-1"), attempt(2, deployment="terra", cost=90), baseline=60
            )
        ]
    )
    ledger.save_price_rows(
        [
            StoredPrice(id="p-1", from_date="2026-06-01", sheet="{}"),
            StoredPrice(id="p-2", from_date="x", sheet="{}"),
        ]
    )
    with ledger.reading() as at:
        seen = request_by_id(at, "r-1")
    assert seen is not None
    assert (seen.rule, seen.decided_because) == ("interactive chat", ('rule "interactive chat"',))
    assert seen.planned == ("luna", "terra")
    assert (seen.line.cost, seen.baseline, seen.baseline_deployment) == (95, 60, "terra")
    assert [(one.n, one.deployment, one.usage.input_cached) for one in seen.attempts] == [
        (1, "luna", 40),
        (2, "terra", 40),
    ]
    assert [one.cost.total for one in seen.attempts if one.cost] == [5, 90]
    assert [price.id for price in seen.prices] == ["p-1"]
    assert seen.line.admitted_at == datetime(2026, 11, 23, 12, tzinfo=UTC)


def test_the_ledger_says_its_extent_its_mark_its_file_and_its_baseline(ledger: Ledger) -> None:
    ledger.append([request("r-1", attempt(), baseline=3), request("r-2", attempt(), day=TUESDAY, hour=9)])
    ledger.set_fact("marked", "made-up")
    ledger.save_config_version("a", path="faregate.toml", text="old", taken_at_ms=1)
    ledger.save_config_version("b", path="faregate.toml", text="new", taken_at_ms=2)
    with ledger.reading() as at:
        assert extent(at) == Extent(first_day=MONDAY, newest_at=datetime(2026, 11, 24, 9, tzinfo=UTC))
        assert mark_of(at) == "made-up"
        assert newest_config(at) == "new"
        assert baselines_seen(at, MONDAY, WEDNESDAY) == ("terra",)
        assert baselines_seen(at, TUESDAY, WEDNESDAY) == ()


def test_who_made_an_answer_is_found_by_its_id(ledger: Ledger) -> None:
    made = replace(attempt(), answer_id="resp_1")
    ledger.append([request("req_1", made, team="search")])
    with ledger.reading() as at:
        assert maker_of(at, "resp_1") == Maker(deployment="luna", team="search")
        assert maker_of(at, "resp_2") is None

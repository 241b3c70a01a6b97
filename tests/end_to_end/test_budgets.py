"""Budgets, limits and keys through a running gateway: what is refused, what it costs, and that nothing stays held."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.keys import create_key
from pricing.money import PICO_PER_USD, usd_text
from tests.end_to_end.faulty import assert_books_agree, run
from tests.end_to_end.harness import PRICES, SECRETS, Running, gateway, toml
from tests.end_to_end.raw import CHAT, raw_client
from tests.fakes.answers import Counts
from tests.fakes.provider import Charge, FakeProvider, Prices
from tests.patience import in_time

DEARER = 100  # times what the other costs
OUTPUT = 64
CHEAP = Prices(
    input=PRICES["input"],
    input_cached=PRICES["input_cached"],
    cache_write=PRICES["cache_write_5m"],
    output=PRICES["output"],
)
DEAR = Prices(
    input=PRICES["input"],
    input_cached=PRICES["input_cached"],
    cache_write=PRICES["cache_write_5m"],
    output=f"{DEARER * 10}.00",
)


@dataclass(kw_only=True)
class Shop:
    """A gateway whose deployment b is dearer than a, with the providers behind it."""

    running: Running
    http: httpx.AsyncClient
    a: FakeProvider
    b: FakeProvider

    async def ask(
        self, *, key: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """One chat request."""
        sent = dict(headers or {})
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        return await self.http.post(CHAT, content=chat(**more), headers=sent)

    async def ask_raw(self, *, key: str | None = None) -> httpx.Response:
        """The same on a connection of its own, by a client that costs little: for many at once."""
        running = self.running if key is None else replace(self.running, key=key)
        async with raw_client(running) as client:
            client.chat(chat())
            answer = await client.answer()
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    def key(self, **options: Any) -> str:
        """Another key, known at once."""
        team: str = options.pop("team", "search")
        made = create_key(self.running.ledger, SECRETS["FAREGATE_KEY_SECRET"], team=team, **options)
        self.running.process.key_watch.look()
        return made.key

    def money(self, budget: str) -> tuple[int, int]:
        """What a budget has spent and holds, in pico-dollars."""
        (standing,) = [s for s in self.running.process.state.standings(time.time()) if s.spec.name == budget]
        return standing.spent, standing.held

    async def spent_in_rows(self) -> int:
        """The sum of all rows."""
        return sum(row["cost_pico_usd"] for row in await self.running.rows("attempt"))


def chat(**more: Any) -> bytes:
    """A request's body."""
    body = {
        "model": "standard",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": OUTPUT,
        **more,
    }
    return json.dumps(body).encode()


@asynccontextmanager
async def shop(
    folder: Path,
    *,
    tiers: Mapping[str, list[str]] | None = None,
    more: str = "",
    unpriced: bool = False,
    deployment_lines: Mapping[str, str] | None = None,
    key_options: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Shop]:
    """Tier `standard` is a alone, tier `cheap` too, tier `dear` is b alone, unless told.

    At the end nothing may be held, and the books must agree with the providers' bills.
    """
    async with (
        FakeProvider(name="a", default_prices=CHEAP) as a,
        FakeProvider(name="b", default_prices=DEAR) as b,
    ):
        text = toml(
            {"a": a.base_url, "b": b.base_url},
            tiers=tiers or {"standard": ["a"], "cheap": ["a"], "dear": ["b"]},
            deployment_lines=deployment_lines,
            more=more,
        )
        before, row, rest = text.partition('[[prices]]\ndeployment = "b"')
        if unpriced:
            rest = rest[rest.index("[tiers.") :]
            text = before + rest
        else:
            text = before + row + rest.replace('output = "10.00"', f'output = "{DEAR.output}"', 1)
        async with gateway(folder, text, key_options=key_options) as running:
            limits = httpx.Limits(max_connections=300)
            async with httpx.AsyncClient(
                base_url=running.base_url, headers=running.headers, timeout=20, trust_env=False, limits=limits
            ) as http:
                yield Shop(running=running, http=http, a=a, b=b)
            assert running.recorder.stats().open == 0
            assert running.process.state.open_admissions == 0
            assert all(standing.held == 0 for standing in running.process.state.standings(time.time()))
            if not unpriced:
                await assert_books_agree(running, a, b)


def budget(limit_pico_usd: int, *, name: str = "all", **more: str) -> str:
    """One budget's lines."""
    lines = "\n".join(f'{key} = "{value}"' for key, value in more.items())
    return f'[[budgets]]\nname = "{name}"\nlimit_usd = {usd_text(limit_pico_usd)}\nper = "month"\n{lines}\n'


def worst_case(body: bytes, *, output_usd_per_mtok: int = 10) -> int:
    """What is held for a body at most: every byte a token of the dearest input, and the whole output."""
    return len(body) * 3_125_000 + OUTPUT * output_usd_per_mtok * 1_000_000


def assert_spent(answer: httpx.Response) -> None:
    """Refused for want of money, in a way that no client library repeats."""
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (
        429,
        "insufficient_quota",
        "budget_exceeded",
    )
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    assert answer.headers["x-faregate-attempts"] == "0"


# ── one budget, many at once ──


def test_of_200_at_once_as_many_are_admitted_as_the_budget_is_worth(tmp_path: Path) -> None:  # K1, limit 2
    worth, clients = 10, 200
    held = worst_case(chat())

    async def work() -> None:
        async with shop(tmp_path, more=budget(worth * held + held // 2)) as made:
            made.a.always("late_head")
            tasks = [asyncio.create_task(made.ask_raw()) for _ in range(clients)]
            for refused, task in enumerate(asyncio.as_completed(tasks), start=1):
                assert_spent(await task)
                if refused == clients - worth:
                    break
            assert made.money("all") == (0, worth * held)
            while len(made.a.seen) < worth:
                await asyncio.sleep(0)
            made.a.release()
            answers = await asyncio.gather(*tasks)
            assert sorted(answer.status_code for answer in answers) == [200] * worth + [429] * (
                clients - worth
            )
            assert len(made.a.seen) == worth
            spent, still_held = made.money("all")
            assert still_held == 0
            assert spent == await made.spent_in_rows() == sum(made.a.bill().values())
            assert len(await made.running.rows("request")) == worth

    run(work())


def test_a_budget_is_used_up_and_never_overspent(tmp_path: Path) -> None:  # K1, K3
    limit = 12 * worst_case(chat())

    async def work() -> None:
        async with shop(tmp_path, more=budget(limit)) as made:

            async def until_refused() -> int:
                for answered in range(100):
                    answer = await made.ask()
                    if answer.status_code != 200:
                        assert_spent(answer)
                        return answered
                return 100

            answered = sum(await asyncio.gather(*(until_refused() for _ in range(4))))
            spent, _ = made.money("all")
            assert spent <= limit
            assert limit - spent < 4 * worst_case(chat())
            assert (
                answered == len(made.a.seen) > 30
            )  # an answer costs less than its worst case: room came back
            assert spent == await made.spent_in_rows()

    run(work())


@pytest.mark.parametrize(
    "way", ["success", "failure", "stream", "broken stream", "cancel", "timeout", "rests"]
)
def test_what_is_held_is_given_back_in_every_way_out(tmp_path: Path, way: str) -> None:  # K5
    async def work() -> None:
        async with shop(tmp_path, more=budget(PICO_PER_USD)) as made:
            faults = {"failure": "status:400", "broken stream": "reset_in_stream", "cancel": "late_head"}
            if way in faults:
                made.a.next(faults[way])
            if way == "cancel":
                task = asyncio.create_task(made.ask())
                while not made.a.seen:
                    await asyncio.sleep(0)
                assert made.money("all") == (0, worst_case(chat()))
                task.cancel()
                await asyncio.wait([task])
                await in_time(made.a.no_open_requests(), 1)
            elif way == "rests":  # the second one is never sent: the one deployment rests, and is being tried
                made.a.next("rate_limited:30")
                assert (await made.ask()).status_code == 429
                made.a.next("late_head")
                trying = asyncio.create_task(made.ask())
                while len(made.a.seen) < 2:
                    await asyncio.sleep(0)
                refused = await made.ask()
                assert (refused.status_code, refused.headers["x-faregate-attempts"]) == (429, "0")
                assert made.money("all") == (0, worst_case(chat()))
                made.a.release()
                assert (await trying).status_code == 200
            elif way == "timeout":
                made.a.next("late_head")
                with pytest.raises(httpx.ReadTimeout):
                    await made.http.post(CHAT, content=chat(), timeout=httpx.Timeout(20, read=0.2))
                await in_time(made.a.no_open_requests(), 1)
            else:
                try:
                    await made.ask(stream="stream" in way)
                except httpx.RemoteProtocolError:
                    assert way == "broken stream"
            spent = await made.spent_in_rows()
            assert made.money("all") == (spent, 0)

    run(work())


def test_a_restart_knows_what_was_spent(tmp_path: Path) -> None:
    limit = 2 * worst_case(chat())

    async def work() -> None:
        spent = 0
        for starts in range(2):
            async with shop(tmp_path, more=budget(limit)) as made:
                assert made.money("all") == (spent, 0)
                while (answer := await made.ask()).status_code == 200:
                    assert starts == 0
                assert_spent(answer)
                spent, _ = made.money("all")
                assert limit - worst_case(chat()) < spent <= limit
                made.a.charges |= {
                    f"{row['request_id']}.{row['n']}": Charge(
                        attempt="", model="", counts=Counts(), pico_usd=row["cost_pico_usd"]
                    )
                    for row in await made.running.rows("attempt")
                }

    run(work())


def test_nested_budgets_admit_together_or_not_at_all(tmp_path: Path) -> None:  # K2
    held = worst_case(chat())
    more = (
        budget(100 * held, name="company")
        + budget(5 * held, name="team", team="search")
        + budget(100 * held, name="application", application="web")
        + "[teams.search]\n"
    )

    async def work() -> None:
        async with shop(tmp_path, more=more) as made:
            web = made.key(application="web")
            other = made.key(team="other")
            made.a.always("late_head")
            tasks = [asyncio.create_task(made.ask_raw(key=web)) for _ in range(9)]
            for refused, task in enumerate(asyncio.as_completed(tasks), start=1):
                assert_spent(await task)
                if refused == 4:
                    break
            assert [made.money(name) for name in ("company", "team", "application")] == [(0, 5 * held)] * 3
            while len(made.a.seen) < 5:
                await asyncio.sleep(0)
            made.a.always(None)
            assert (await made.ask(key=other)).status_code == 200
            made.a.release()
            await asyncio.gather(*tasks)
            total = await made.spent_in_rows()
            assert made.money("company") == (total, 0)
            assert made.money("team") == made.money("application") < (total, 0)

    run(work())


def test_an_answer_that_costs_more_than_was_held_is_recorded_in_full(tmp_path: Path) -> None:  # K4
    async def work() -> None:
        async with shop(tmp_path, more=budget(2 * worst_case(chat()))) as made:
            made.a.next("reasoning:5000")
            assert (await made.ask()).status_code == 200
            spent, _ = made.money("all")
            assert spent > 2 * worst_case(chat())
            assert spent == sum(made.a.bill().values())
            assert_spent(await made.ask())
            assert len(made.a.seen) == 1

    run(work())


# ── when it is spent ──


def test_a_spent_budget_leaves_the_tier_it_names(tmp_path: Path) -> None:
    more = budget(worst_case(chat(model="dear"), output_usd_per_mtok=1_000) + 1, when_spent="cheap")

    async def work() -> None:
        async with shop(tmp_path, more=more + '[names]\n"gpt-4o" = "auto"\n') as made:
            assert (await made.ask(model="dear")).headers["x-faregate-tier"] == "dear"
            spent = await made.ask(model="dear")
            assert spent.status_code == 200
            assert spent.headers["x-faregate-tier"] == "cheap"
            assert (await made.ask(model="auto")).status_code == 200
            assert_spent(await made.ask(model="b"))  # pinned, and in no tier that is left
            assert [one.json()["model"] for one in made.a.seen] == ["model-a", "model-a"]
            assert len(made.b.seen) == 1

    run(work())


@pytest.mark.parametrize("when_spent", ["refuse", "cheap"])
def test_a_fallback_to_a_dearer_deployment_is_admitted_again(tmp_path: Path, when_spent: str) -> None:  # K16
    limit = 2 * worst_case(chat(model="both"))

    async def work() -> None:
        tiers = {"standard": ["a"], "cheap": ["a"], "both": ["a", "b"]}
        async with shop(tmp_path, tiers=tiers, more=budget(limit, when_spent=when_spent)) as made:
            made.a.next("status:500")
            answer = await made.ask(model="both")
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (429, "budget_exceeded")
            assert answer.headers["x-should-retry"] == "false"
            assert answer.headers["x-faregate-attempts"] == "1"
            assert made.b.seen == []
            assert made.money("all") == (0, 0)
            (row,) = await made.running.rows("request")
            assert (row["state"], row["error"], row["cost_pico_usd"]) == ("failed", "budget_exceeded", 0)
            assert (await made.ask(model="both")).status_code == 200

    run(work())


def test_a_fallback_that_fits_is_paid_from_the_same_budget(tmp_path: Path) -> None:  # K16
    async def work() -> None:
        tiers = {"standard": ["a", "b"]}
        async with shop(tmp_path, tiers=tiers, more=budget(PICO_PER_USD)) as made:
            made.a.next("status:500")
            answer = await made.ask()
            assert (answer.status_code, answer.headers["x-faregate-deployment"]) == (200, "b")
            assert made.money("all") == (sum(made.b.bill().values()), 0)

    run(work())


# ── without a price ──


def test_a_deployment_without_a_price_is_refused_under_a_budget(tmp_path: Path) -> None:
    async def work() -> None:
        async with shop(tmp_path, unpriced=True, more=budget(PICO_PER_USD)) as made:
            answer = await made.ask(model="dear")
            error = answer.json()["error"]
            assert (answer.status_code, error["type"], error["code"]) == (
                429,
                "insufficient_quota",
                "unpriced",
            )
            assert answer.headers["x-should-retry"] == "false"
            assert made.b.seen == []
            assert await made.running.rows("request") == []

    run(work())


def test_a_deployment_with_a_ceiling_is_charged_by_it(tmp_path: Path) -> None:
    async def work() -> None:
        lines = {"b": "ceiling_usd_per_mtok = 20"}
        async with shop(tmp_path, unpriced=True, more=budget(PICO_PER_USD), deployment_lines=lines) as made:
            assert (await made.ask(model="dear")).status_code == 200
            (row,) = await made.running.rows("attempt")
            tokens = row["input_uncached"] + row["output_text"]
            assert row["cost_pico_usd"] is None
            assert made.money("all") == (tokens * 20_000_000, 0)

    run(work())


def test_without_a_budget_it_answers_and_its_cost_is_unknown_not_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with shop(tmp_path, unpriced=True) as made:
            answer = await made.ask(model="dear")
            assert answer.status_code == 200
            assert "x-faregate-cost-usd" not in answer.headers
            (attempt,) = await made.running.rows("attempt")
            (row,) = await made.running.rows("request")
            assert (attempt["cost_pico_usd"], row["cost_pico_usd"]) == (None, None)
            assert "unpriced" in attempt["flags"]
            assert attempt["output_text"] == 8

    run(work())


# ── limits a minute ──


@pytest.mark.parametrize("of", ["key", "team"])
@pytest.mark.parametrize("what", ["requests", "tokens"])
def test_no_more_a_minute_than_the_limit(tmp_path: Path, of: str, what: str) -> None:  # L13, L14, scaled
    a_request = -(-len(chat()) // 4) + OUTPUT
    limit = 5 if what == "requests" else 5 * a_request
    options = {f"{what}_per_minute": limit}
    more = f"[teams.search]\n{what}_per_minute = {limit}\n" if of == "team" else ""

    async def work() -> None:
        async with shop(tmp_path, more=more, key_options=options if of == "key" else None) as made:
            made.a.always("late_head")
            tasks = [asyncio.create_task(made.ask_raw()) for _ in range(20)]
            for refused, task in enumerate(asyncio.as_completed(tasks), start=1):
                answer = await task
                error = answer.json()["error"]
                found = (answer.status_code, error["type"], error["code"])
                assert found == (429, "rate_limit_error", "rate_limit_exceeded")
                assert 1 <= int(answer.headers["retry-after"]) <= 61
                assert "x-should-retry" not in answer.headers
                if refused == 15:
                    break
            while len(made.a.seen) < 5:
                await asyncio.sleep(0)
            made.a.always(None)
            made.a.release()
            await asyncio.gather(*tasks)
            assert len(made.a.seen) == 5
            after = (
                await made.ask()
            )  # real usage is lower than what was held: tokens come back, requests do not
            assert after.status_code == (429 if what == "requests" else 200)
            other = await made.ask(key=made.key(team="search" if of == "key" else "other"))
            assert other.status_code == 200

    run(work())


# ── keys ──


def test_a_key_reaches_its_tiers_and_regions_and_no_others(tmp_path: Path) -> None:
    regions = {"a": 'region = "eu"', "b": 'region = "us"'}
    more = '[teams.narrow]\ntiers = ["cheap"]\n[names]\n"gpt-4o" = "dear"\n'
    cases: list[tuple[dict[str, Any], str, int, str | None]] = [
        ({"tiers": ["cheap"]}, "cheap", 200, None),
        ({"tiers": ["cheap"]}, "dear", 403, "tier_not_allowed"),
        ({"tiers": ["cheap"]}, "gpt-4o", 403, "tier_not_allowed"),
        ({"tiers": ["cheap"]}, "a", 200, None),
        ({"tiers": ["cheap"]}, "b", 403, "model_not_allowed"),
        ({"tiers": ["cheap"]}, "model-b", 403, "model_not_allowed"),
        ({"team": "narrow"}, "dear", 403, "tier_not_allowed"),
        ({"team": "narrow", "tiers": ["dear", "cheap"]}, "dear", 403, "tier_not_allowed"),
        ({"team": "narrow", "tiers": ["dear", "cheap"]}, "cheap", 200, None),
        ({"regions": ["eu"]}, "a", 200, None),
        ({"regions": ["eu"]}, "b", 403, "model_not_allowed"),
        ({}, "nothing", 404, "model_not_found"),
    ]

    async def work() -> None:
        async with shop(tmp_path, more=more, deployment_lines=regions) as made:
            for options, model, status, code in cases:
                answer = await made.ask(key=made.key(**options), model=model)
                assert answer.status_code == status, (options, model, answer.text)
                if code is not None:
                    assert answer.json()["error"]["code"] == code, (options, model)
                    assert answer.headers["x-should-retry"] == "false"
            assert made.b.seen == []
            assert len(made.a.seen) == sum(status == 200 for _, _, status, _ in cases)

    run(work())


def test_a_name_may_be_a_tier_auto_a_deployment_a_model_or_mapped(tmp_path: Path) -> None:
    more = """
[names]
"gpt-4o" = "auto"
"gpt-4o-mini" = "cheap"
[[rules]]
name = "with tools"
when = { has_tools = true }
tier = "dear"
"""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    cases: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
        ({"model": "dear"}, ("dear", "b", "asked for by name")),
        ({"model": "auto"}, ("standard", "a", "default")),
        ({"model": "auto", "tools": tools}, ("dear", "b", "with tools")),
        ({"model": "gpt-4o", "tools": tools}, ("dear", "b", "with tools")),
        ({"model": "gpt-4o-mini", "tools": tools}, ("cheap", "a", "asked for by name")),
        ({"model": "b"}, ("-", "b", "pinned")),
        ({"model": "model-b"}, ("-", "b", "pinned")),
    ]

    async def work() -> None:
        async with shop(tmp_path, more=more) as made:
            for body, (tier, deployment, rule) in cases:
                answer = await made.ask(**body)
                headers = answer.headers
                found = tuple(headers[f"x-faregate-{name}"] for name in ("tier", "deployment", "rule"))
                assert found == (tier, deployment, rule), body
                assert answer.json()["model"] == f"model-{deployment}"
            rows = await made.running.rows("request")
            assert [row["model_asked"] for row in rows] == [body["model"] for body, _ in cases]
            assert [row["tier"] for row in rows] == [tier.strip("-") for _, (tier, _, _) in cases]
            assert [row["rule"] for row in rows] == [rule for _, (_, _, rule) in cases]

    run(work())


def test_what_a_client_says_about_a_request_stands_in_its_row(tmp_path: Path) -> None:
    said = {"application": "web", "session": "s-1", "task": "t-1", "feature": "search box", "customer": "c-1"}

    async def work() -> None:
        async with shop(tmp_path) as made:
            await made.ask(headers={f"x-faregate-{name}": value for name, value in said.items()})
            (row,) = await made.running.rows("request")
            assert {name: row[name] for name in said} == said
            assert not [name for name in made.a.seen[0].headers if name in {f"x-faregate-{n}" for n in said}]

    run(work())


def test_a_revoked_key_is_refused_from_the_next_look_on(tmp_path: Path) -> None:  # S5
    async def work() -> None:
        async with shop(tmp_path) as made:
            made_key = create_key(made.running.ledger, SECRETS["FAREGATE_KEY_SECRET"], team="search")
            unknown = await made.ask(key=made_key.key)
            made.running.process.key_watch.look()
            assert (await made.ask(key=made_key.key)).status_code == 200
            made.running.ledger.revoke_key(made_key.key_id, at_ms=time.time_ns() // 1_000_000)
            made.running.process.key_watch.look()
            revoked = await made.ask(key=made_key.key)
            assert (unknown.status_code, revoked.status_code) == (401, 401)
            assert unknown.content == revoked.content
            assert len(made.a.seen) == 1

    run(work())

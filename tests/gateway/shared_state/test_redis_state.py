"""Limits in a real Redis: exact between processes, and bounded by a share when Redis is away."""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from gateway.shared_state import Admission, Demand, Refusal
from gateway.shared_state.limits import BudgetSpec, TeamLimits, Window
from gateway.shared_state.redis_state import RedisSettings, RedisState
from pricing.money import PicoUsd
from tests.gateway.shared_state.redis_server import Server, start, stop
from tests.patience import in_time

T = TypeVar("T")
DOLLAR = 10**12


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    given = os.environ.get("TEST_REDIS_URL")
    server = Server(given, None) if given else start(tmp_path_factory.mktemp("r"))
    yield server
    stop(server)


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """One that a test may stop, freeze or flush."""
    server = start(tmp_path)
    yield server
    stop(server)


@dataclass
class Books:
    """The ledger, in memory."""

    spent: dict[str, int] = field(default_factory=dict[str, int])
    asked: int = 0

    async def __call__(self, spec: BudgetSpec, window: Window) -> PicoUsd | None:
        self.asked += 1
        return PicoUsd(self.spent.get(spec.name, 0))


def budget(name: str = "b", limit: int = 100, **fields: Any) -> BudgetSpec:
    return BudgetSpec(name=name, limit=PicoUsd(limit), **fields)


def demand(
    worst_case: int | None = 10, *, tokens: int = 1, rpm: int | None = None, tpm: int | None = None
) -> Demand:
    return Demand(
        request_id="r",
        key_id="k1",
        team="search",
        application=None,
        worst_case=None if worst_case is None else PicoUsd(worst_case),
        tokens=tokens,
        requests_per_minute=rpm,
        tokens_per_minute=tpm,
    )


QUICK = RedisSettings(url="", warm_seconds=0.0, beat_seconds=0.02, ledger_seconds=0.05, alive_seconds=2.0)


@asynccontextmanager
async def state(
    server: Server,
    budgets: list[BudgetSpec],
    *,
    teams: list[TeamLimits] | None = None,
    books: Books | None = None,
    settings: RedisSettings = QUICK,
    space: str | None = None,
) -> AsyncGenerator[RedisState]:
    named = replace(settings, url=server.url, namespace=space or f"test-{secrets.token_hex(4)}")
    made = RedisState(named, budgets, teams or [], spent_from_ledger=books or Books())
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(limited())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # it is Redis that is waited for
        await asyncio.sleep(0.005)


async def ask(of: RedisState, what: Demand) -> Admission | Refusal:
    return await of.admit(what, time.time())


async def granted(of: RedisState, what: Demand) -> Admission:
    got = await ask(of, what)
    assert isinstance(got, Admission), got
    return got


async def refused(of: RedisState, what: Demand) -> Refusal:
    got = await ask(of, what)
    assert isinstance(got, Refusal), got
    return got


def counters(server: Server, name: str = "b", space: str = "*") -> dict[str, int]:
    client = server.client
    try:
        [key] = [k for k in client.scan_iter(f"{space}:*:{name}") if not k.endswith(b":held")]
        return {n: int(client.hget(key, n)) for n in ("spent", "held", "used")}
    finally:
        client.close()


# ── with Redis ──


def test_a_worst_case_is_held_settled_and_given_back(redis: Server) -> None:
    async def work() -> None:
        space = secrets.token_hex(4)
        async with state(redis, [budget()], space=space) as one:
            admission = await granted(one, demand(60))
            assert counters(redis, space=space) == {"spent": 0, "held": 60, "used": 60}
            refusal = await refused(one, demand(41))
            one.settle(admission, cost=PicoUsd(7), tokens=1)
            one.settle(admission, cost=PicoUsd(7), tokens=1)
            await until(lambda: counters(redis, space=space)["held"] == 0)
            assert counters(redis, space=space) == {"spent": 7, "held": 0, "used": 7}
            assert (refusal.code, refusal.budget) == ("budget_exceeded", "b")
            assert await granted(one, demand(93))
            assert one.open_admissions == 1

    run(work())


def test_nested_budgets_admit_together_or_leave_nothing(redis: Server) -> None:
    async def work() -> None:
        space = secrets.token_hex(4)
        budgets = [budget("wide", 1000), budget("team", 100, team="search"), budget("tight", 15)]
        async with state(redis, budgets, space=space) as one:
            await granted(one, demand(10))
            assert (await refused(one, demand(10))).budget == "tight"
            for name in ("wide", "team", "tight"):
                assert counters(redis, name, space) == {"spent": 0, "held": 10, "used": 10}

    run(work())


def test_amounts_beyond_what_lua_can_count_are_exact(redis: Server) -> None:
    async def work() -> None:
        limit = 1_000_000 * DOLLAR + 1  # 10^18: far over 2^53
        async with state(redis, [budget(limit=limit)], books=Books({"b": limit - 3})) as one:
            await granted(one, demand(2))
            await refused(one, demand(2))
            await granted(one, demand(1))
            await refused(one, demand(1))

    run(work())


def test_a_request_nobody_can_price_is_refused_under_a_budget(redis: Server) -> None:
    async def work() -> None:
        async with state(redis, [budget()]) as one:
            assert (await refused(one, demand(None))).code == "unpriced"
        async with state(redis, []) as other:
            assert (await granted(other, demand(None))).budgets == ()

    run(work())


def test_a_spent_budget_may_leave_a_tier_open(redis: Server) -> None:
    async def work() -> None:
        async with state(redis, [budget(when_spent="small")]) as one:
            await granted(one, demand(100))
            got = await granted(one, demand(1))
            assert (got.over, got.allowed_tiers) == (("b",), frozenset({"small"}))

    run(work())


def test_limits_per_minute_are_shared_and_corrected(redis: Server) -> None:
    async def work() -> None:
        space = secrets.token_hex(4)
        teams = [TeamLimits(team="search", requests_per_minute=3, tokens_per_minute=100)]
        async with (
            state(redis, [], teams=teams, space=space) as one,
            state(redis, [], teams=teams, space=space) as two,
        ):
            first = await granted(one, demand(0, tokens=90))
            assert "tokens" in (await refused(two, demand(0, tokens=20))).message
            one.settle(first, cost=PicoUsd(0), tokens=10)
            second: Admission | Refusal = await ask(two, demand(0, tokens=20))
            while isinstance(second, Refusal):  # the correction travels in the background
                second = await ask(two, demand(0, tokens=20))
            never = await refused(two, demand(0, tokens=5, tpm=4))
            assert never.retry_after_seconds is None
            await granted(one, demand(0, tokens=0))
            last = await refused(two, demand(0, tokens=0))
            assert "3 requests" in last.message
            assert last.retry_after_seconds is not None
            assert 59 < last.retry_after_seconds <= 60.5

    run(work())


def test_four_processes_never_pass_a_budget_at_any_moment(redis: Server) -> None:
    limit, cost = 1000, 10

    async def work() -> tuple[int, list[int], dict[str, int]]:
        space = secrets.token_hex(4)
        chance = Random(5)
        settled = 0
        seen: list[int] = []
        patient = replace(QUICK, wait_seconds=10.0)  # exactness is the subject here, not a busy machine
        async with contextlib.AsyncExitStack() as stack:
            states = [
                await stack.enter_async_context(
                    state(redis, [budget(limit=limit)], space=space, settings=patient)
                )
                for _ in range(4)
            ]

            async def client(n: int) -> None:
                nonlocal settled
                for _ in range(3):
                    got = await ask(states[n % 4], demand(cost))
                    if isinstance(got, Admission):
                        await asyncio.sleep(0)
                        real = chance.choice([cost, cost, 3])
                        settled += real
                        states[n % 4].settle(got, cost=PicoUsd(real), tokens=1)
                    seen.append(counters(redis, space=space)["used"])

            await asyncio.gather(*[client(n) for n in range(100)])
            await until(lambda: counters(redis, space=space)["spent"] == settled)
            await refused(states[0], demand(limit - settled + 1))
            states[1].settle(await granted(states[1], demand(limit - settled)), cost=PicoUsd(0), tokens=0)
            await until(lambda: counters(redis, space=space)["held"] == 0)  # no room was lost
            return settled, seen, counters(redis, space=space)

    settled, seen, last = run(work())
    assert last == {"spent": settled, "held": 0, "used": settled}
    assert max(seen) <= limit
    assert settled <= limit


def test_what_a_dead_process_holds_expires(redis: Server) -> None:
    async def work() -> None:
        space = secrets.token_hex(4)
        settings = replace(QUICK, hold_seconds=0.2)
        async with state(redis, [budget()], space=space, settings=settings) as dead:
            await granted(dead, demand(100))
            assert await refused(dead, demand(100))
        async with state(redis, [budget()], space=space, settings=settings) as alive:
            got = await ask(alive, demand(100))
            while isinstance(got, Refusal):
                await asyncio.sleep(0.01)
                got = await ask(alive, demand(100))
            assert counters(redis, space=space) == {"spent": 0, "held": 100, "used": 100}

    run(work())


def test_a_counter_below_the_ledger_is_raised_to_it(redis: Server) -> None:
    async def work() -> None:
        space, books = secrets.token_hex(4), Books({"b": 5})
        async with state(redis, [budget()], books=books, space=space) as one:
            await granted(one, demand(10))
            books.spent["b"] = 80
            await until(lambda: counters(redis, space=space)["spent"] == 80)
            assert counters(redis, space=space) == {"spent": 80, "held": 10, "used": 90}
            books.spent["b"] = 1
            await asyncio.sleep(0.1)
            assert counters(redis, space=space)["spent"] == 80

    run(work())


def test_a_cancelled_admission_never_leaves_its_reply_to_another(redis: Server) -> None:
    async def work() -> None:
        chance = Random(7)
        limit = 10**9
        settings, space = replace(QUICK, wait_seconds=10.0), secrets.token_hex(4)
        async with state(redis, [budget(limit=limit)], settings=settings, space=space) as one:
            for _ in range(300):
                task = asyncio.ensure_future(ask(one, demand(1)))
                other = asyncio.ensure_future(ask(one, demand(limit + 1)))
                await asyncio.sleep(chance.choice([0, 0, 0.0002, 0.0005]))
                task.cancel()
                done = await asyncio.gather(task, return_exceptions=True)
                assert (await other).__class__ is Refusal
                if isinstance(done[0], Admission):
                    one.settle(done[0], cost=PicoUsd(0), tokens=0)
            await until(lambda: counters(redis, space=space)["held"] == 0)
            assert not one.degraded

    run(work())


# ── without it ──


def test_counters_that_were_flushed_are_made_again_with_what_is_held(own_redis: Server) -> None:
    async def work() -> None:
        books, space = Books(), secrets.token_hex(4)
        async with (
            state(own_redis, [budget()], books=books, space=space) as one,
            state(own_redis, [budget()], books=books, space=space) as two,
        ):
            mine, theirs = await granted(one, demand(30)), await granted(two, demand(20))
            paid = await granted(one, demand(10))
            one.settle(paid, cost=PicoUsd(10), tokens=1)
            await until(lambda: counters(own_redis, space=space)["spent"] == 10)
            books.spent["b"] = 10
            client = own_redis.client
            client.flushall()
            client.close()
            await asyncio.sleep(0.01)
            await until(lambda: counters_or_none(own_redis, space) == {"spent": 10, "held": 50, "used": 60})
            one.settle(mine, cost=PicoUsd(30), tokens=1)
            two.settle(theirs, cost=PicoUsd(20), tokens=1)
            await until(lambda: counters(own_redis, space=space) == {"spent": 60, "held": 0, "used": 60})
            assert isinstance(await refused(two, demand(41)), Refusal)

    run(work())


def counters_or_none(server: Server, space: str) -> dict[str, int] | None:
    with contextlib.suppress(ValueError):  # no such key yet
        return counters(server, space=space)
    return None


def test_new_counters_are_not_trusted_before_everybody_put_back_what_they_hold(own_redis: Server) -> None:
    async def work() -> None:
        settings = replace(QUICK, warm_seconds=60.0, share=0.5)
        async with state(own_redis, [budget()], settings=settings) as one:
            await granted(one, demand(50))
            refusal = await refused(one, demand(1))
            assert "share" in refusal.message

    run(work())


def freeze(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)


def thaw(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGCONT)


def kill(server: Server) -> None:
    assert server.process is not None
    server.process.kill()
    server.process.wait()


@pytest.mark.parametrize("away", [freeze, kill])
def test_without_redis_a_process_keeps_to_its_share(
    own_redis: Server, away: Callable[[Server], None]
) -> None:
    async def work() -> tuple[int, float]:
        settings = replace(QUICK, share=0.25)
        async with state(own_redis, [budget(limit=1000)], settings=settings) as one:
            one.settle(await granted(one, demand(200)), cost=PicoUsd(200), tokens=1)
            await until(lambda: counters(own_redis)["spent"] == 200)
            away(own_redis)
            admitted = 0
            waits: list[float] = []
            for _ in range(60):
                begun = time.monotonic()
                got = await in_time(ask(one, demand(10)), 0.5)  # it waits 0.1 for Redis
                waits.append(time.monotonic() - begun)
                if isinstance(got, Admission):
                    admitted += 10
                    one.settle(got, cost=PicoUsd(10), tokens=1)
            assert one.degraded
            refusal = await refused(one, demand(10))
            assert refusal.code == "budget_exceeded"
            return admitted, sorted(waits)[50]

    admitted, usual = run(work())
    assert admitted == 200  # a quarter of the 800 that were left
    assert usual < 0.05


def test_what_was_spent_without_redis_is_told_when_it_is_back(own_redis: Server) -> None:
    async def work() -> None:
        async with state(own_redis, [budget(limit=1000)], settings=replace(QUICK, share=0.5)) as one:
            held = await granted(one, demand(100))
            freeze(own_redis)
            paid = await granted(one, demand(30))
            one.settle(paid, cost=PicoUsd(25), tokens=1)
            assert one.budget_left_share("search", None) == 0.875  # 100 held there, 25 not told yet
            still_held = await granted(one, demand(40))
            while not one.degraded:
                await ask(one, demand(0))
            thaw(own_redis)
            await until(lambda: not one.degraded)
            await until(lambda: counters(own_redis) == {"spent": 25, "held": 140, "used": 165})
            one.settle(held, cost=PicoUsd(100), tokens=1)
            one.settle(still_held, cost=PicoUsd(40), tokens=1)
            await until(lambda: counters(own_redis) == {"spent": 165, "held": 0, "used": 165})

    run(work())


def test_it_starts_without_redis_from_the_ledger_alone(tmp_path: Path) -> None:
    async def work() -> None:
        nowhere = Server(f"unix://{tmp_path}/nothing.sock", None)
        async with state(nowhere, [budget(limit=1000)], books=Books({"b": 200})) as one:
            assert one.degraded
            await granted(one, demand(100))  # an eighth of 800
            await refused(one, demand(1))
            assert one.budget_left_share("search", None) == 0.8

    run(work())


def test_processes_that_are_alive_divide_what_is_left(own_redis: Server) -> None:
    async def work() -> None:
        space = secrets.token_hex(4)
        async with (
            state(own_redis, [budget(limit=100)], space=space) as one,
            state(own_redis, [budget(limit=100)], space=space) as two,
        ):
            await until(lambda: one._processes == 2 and two._processes == 2)  # pyright: ignore[reportPrivateUsage]
            freeze(own_redis)
            await granted(one, demand(50))
            await granted(two, demand(50))
            await refused(one, demand(1))
            await refused(two, demand(1))

    run(work())


def test_new_terms_are_taken_with_their_counters_from_the_ledger(redis: Server) -> None:
    async def work() -> None:
        space = secrets.token_hex(4)
        async with state(redis, [], books=Books({"new": 95}), space=space) as one:
            await granted(one, demand(1000))
            assert one.configure([budget("new", 100)], []) == []
            await until(lambda: bool(redis.client.keys(f"{space}:*:new")))
            await refused(one, demand(6))
            await granted(one, demand(5))

    run(work())

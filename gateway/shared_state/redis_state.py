"""Limits that any number of processes share, in Redis: one script call an admission, and a plan for when it is away.

The rules, for a person:

- A request waits for Redis at most `wait_seconds` (0.1). What Redis does not answer by then is answered from this
  process's own share, as below. After 5 failures in a row, or 1 second of them, nobody asks Redis any more (the
  breaker is open) until it has answered the background task again.
- The share: of every budget what was left when Redis was last heard, divided by the number of processes alive
  then (1/8 if that was never known), or the share the configuration gives. Limits per minute are divided the
  same way. The sum of all shares is at most what was left, so processes that are cut off together spend no more.
- Back again, counters are compared with the ledger first and raised to it; missing ones are made from it. They
  are trusted `warm_seconds` later, when every process has put back what it holds; until then the share counts.
- Every two seconds a counter below what the ledger had at the comparison before is raised to that.
- A hold expires by itself after `hold_seconds`, so a process that died holds nothing for long.
- What was spent is told to Redis in the background, in order, again after a failure, and counted once.
- A call that is too late loses its connection, and a request that is cancelled does not cancel its call: nobody
  can ever read another's reply, and what was held for the cancelled one is given back.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as with_fields
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from gateway.shared_state import Admission, Demand, Refusal, scripts
from gateway.shared_state.limits import (
    BudgetSpec,
    Standing,
    TeamLimits,
    Window,
    left_share,
    no_price,
    no_tier_left,
    spent,
    too_fast,
    touches,
    window_of,
)
from gateway.shared_state.memory import MemoryState
from pricing.money import PicoUsd

log = logging.getLogger("faregate.shared_state")

SpentFromLedger = Callable[[BudgetSpec, Window], Awaitable[PicoUsd | None]]
"""What the ledger says was spent in a window, including what is recorded and not yet written; None: not known."""

_FAILURES = (RedisError, OSError, TimeoutError)
_UNKNOWN_SHARE = 1 / 8
_pool_from_url: Callable[..., Any] = BlockingConnectionPool.from_url  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped there


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """How Redis is used. Durations in seconds."""

    url: str
    namespace: str = "faregate"
    share: float | None = None  # of this process when Redis is away; None: 1 / number of processes
    wait_seconds: float = 0.1
    failures: int = 5  # in a row, or for as long as the next one: then the breaker opens
    failing_seconds: float = 1.0
    beat_seconds: float = 0.25
    alive_seconds: float = 5.0
    ledger_seconds: float = 2.0  # between two comparisons with the ledger
    warm_seconds: float = 1.0
    hold_seconds: float = 605.0  # the longest request and 5 seconds
    connections: int = 64
    queue: int = 100_000  # settlements that wait for Redis


@dataclass(slots=True, eq=False)
class _Hold:
    """One admission that was not settled."""

    id: str
    admission: Admission
    worst_case: int
    specs: tuple[BudgetSpec, ...]
    starts: tuple[float, ...]
    keys: list[str]  # hash and set of each budget
    rate_keys: list[str]  # of the token limits that counted it
    expires_at: float  # by this process's monotonic clock
    epochs: list[str] = field(default_factory=list[str])
    slice: int = 0
    registered: bool = False  # Redis knows it
    local: tuple[MemoryState, Admission] | None = None  # admitted from the share


@dataclass(slots=True, eq=False)
class _Question:
    """An admission on its way."""

    id: str
    demand: Demand
    specs: tuple[BudgetSpec, ...]
    windows: tuple[Window, ...]
    keys: list[str]
    arguments: list[Any]
    answer: "asyncio.Future[Any]"
    sent: bool = False  # and answered, or not to be answered any more
    abandoned: bool = False


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True)
class _Settlement:
    hold: _Hold
    cost: int
    tokens: int
    at_ms: int


@dataclass(slots=True)
class _Known:
    """A budget's present window as last heard."""

    window: Window
    used: int = 0
    pending: int = 0  # settled, and not yet told to Redis


class RedisState:
    """Shared state in Redis. `start` before the first admission, `close` at the end."""

    def __init__(
        self,
        settings: RedisSettings,
        budgets: Sequence[BudgetSpec] = (),
        teams: Sequence[TeamLimits] = (),
        *,
        spent_from_ledger: SpentFromLedger,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._spent_from_ledger = spent_from_ledger
        self._wall = wall
        self._process = secrets.token_hex(6)
        self._count = 0
        self._prefix = f"{settings.namespace}:{{limits}}:"  # one slot of a cluster
        self._budgets: dict[str, BudgetSpec] = {}
        self._teams: dict[str, TeamLimits] = {}
        self._known: dict[str, _Known] = {}
        self._touching: dict[tuple[str | None, ...], list[BudgetSpec]] = {}
        self._named: tuple[frozenset[str | None], ...] = ()
        self._holds: dict[int, _Hold] = {}  # by id() of the admission, which the hold keeps alive
        self._queue: deque[_Settlement] = deque()
        self._questions: list[_Question] = []  # of this turn of the loop
        self._asking: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._processes: int | None = None
        self._local: MemoryState | None = None
        self._failed = 0
        self._failing_since = 0.0
        self._open = False  # the breaker
        self._ledger_at = 0.0
        self._ledger_said: dict[str, tuple[Window, int]] = {}  # by budget, at the last comparison
        self.dropped = 0  # settlements that found the queue full; the ledger's figure makes up for them
        self._redis: Any = Redis(
            connection_pool=_pool_from_url(
                settings.url,
                max_connections=settings.connections,
                timeout=settings.wait_seconds,
                socket_timeout=None,  # every call has a limit of its own
                socket_connect_timeout=settings.wait_seconds,
                retry=Retry(NoBackoff(), 0),
            )
        )
        self._shas: dict[str, str] = {}
        self.configure(budgets, teams)

    async def start(self) -> None:
        """Make the counters, as far as Redis is there, and keep them from now on. Never raises for its absence."""
        try:
            await self._beat(1.0)
        except _FAILURES as problem:
            self._fail(problem)
            self._open = True
            await self._learn_from_ledger()
        self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Tell Redis what it was not told yet, as far as it is there."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
        await asyncio.gather(*self._asking, return_exceptions=True)
        with suppress(*_FAILURES):
            await self._flush()
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    @property
    def degraded(self) -> bool:
        """Redis is away: the process's share counts."""
        return self._open

    @property
    def open_admissions(self) -> int:
        """Admissions that were not settled yet."""
        return len(self._holds)

    def configure(self, budgets: Sequence[BudgetSpec], teams: Sequence[TeamLimits]) -> list[str]:
        """Take new terms; their counters are made from the ledger. Nothing is left to load: the list is empty."""
        self._budgets = {spec.name: spec for spec in budgets}
        self._teams = {limits.team: limits for limits in teams}
        self._known = {name: known for name, known in self._known.items() if name in self._budgets}
        self._touching = {}
        self._named = (
            frozenset(spec.team for spec in budgets),
            frozenset(spec.application for spec in budgets),
            frozenset(spec.key for spec in budgets),
        )
        self._local = None
        self._ledger_at = 0.0
        self._wake.set()
        return []

    def load_spent(self, budget: str, window: Window, amount: PicoUsd) -> None:
        """What the ledger says was spent in a window: known also before Redis was ever heard."""
        if budget in self._budgets:
            self._known[budget] = _Known(window, int(amount))

    # ── admission ──

    async def admit(self, demand: Demand, now: float) -> Admission | Refusal:
        """See SharedState."""
        specs = self._budgets_of(demand.team, demand.application, demand.key_id)
        if specs and demand.worst_case is None:
            return no_price(specs[0])
        windows = [self._window(spec, now).window for spec in specs]
        rates = self._rates(demand)
        self._count += 1
        hold_id = f"{self._process}-{self._count}"
        budget_keys = self._keys(specs, windows)
        if not specs and not rates:
            return self._keep(self._granted(demand, specs, ()), hold_id, demand, [], [], [], [], None)
        if self._open:
            return self._from_share(demand, now, hold_id, specs, windows, budget_keys)
        arguments: list[Any] = [
            hold_id,
            int(self._settings.hold_seconds * 1000),
            int(demand.worst_case or 0),
            len(specs),
        ]
        for spec in specs:
            arguments += [int(spec.limit), 0 if spec.when_spent == "refuse" else 1]
        for rate in rates:
            arguments += [rate.limit, rate.amount]
        try:
            reply = await self._ask(
                hold_id, demand, specs, windows, [*budget_keys, *(rate.key for rate in rates)], arguments
            )
        except _FAILURES as problem:
            self._fail(problem)
            return self._from_share(demand, now, hold_id, specs, windows, budget_keys)
        self._heard()
        status = reply[0].decode()
        if status == "ok":
            over: list[BudgetSpec] = []
            for spec, used, is_over in zip(specs, reply[2], reply[4], strict=True):
                self._known[spec.name].used = int(used)
                if is_over:
                    over.append(spec)
            tiers = {spec.when_spent for spec in over}
            token_keys = [rate.key for rate in rates if rate.what == "token"]
            admission = self._granted(demand, specs, over)
            kept = self._keep(admission, hold_id, demand, specs, windows, budget_keys, token_keys, None)
            hold = self._holds[id(kept)]
            hold.epochs, hold.slice, hold.registered = [e.decode() for e in reply[3]], int(reply[1]), True
            if len(tiers) > 1:
                self.settle(kept, cost=PicoUsd(0), tokens=0)
                return no_tier_left([spec.name for spec in over])
            return kept
        index = int(reply[1]) - 1
        if status == "rate":
            rate = rates[index]
            wait = None if int(reply[2]) < 0 else int(reply[2]) / 1000
            return too_fast(demand, of=rate.of, what=rate.what, limit=rate.limit, wait=wait)
        if status == "spent":
            spec, was_spent, held = specs[index], int(reply[2]), int(reply[3])
            self._known[spec.name].used = was_spent + held
            return spent(
                spec, windows[index], spent=was_spent, held=held, worst_case=int(demand.worst_case or 0)
            )
        if status == "missing":
            self._ledger_at = 0.0
            self._wake.set()
        return self._from_share(demand, now, hold_id, specs, windows, budget_keys)

    async def _ask(
        self,
        hold_id: str,
        demand: Demand,
        specs: list[BudgetSpec],
        windows: list[Window],
        keys: list[str],
        arguments: list[Any],
    ) -> Any:
        """One script call; those of one turn of the loop travel together, which costs a fraction."""
        question = _Question(hold_id, demand, tuple(specs), tuple(windows), keys, arguments, _future())
        self._questions.append(question)
        if len(self._questions) == 1:
            asyncio.get_running_loop().call_soon(self._send_questions)
        try:
            return await question.answer
        except asyncio.CancelledError:
            question.abandoned = True
            if question.sent:
                self._abandon(question)
            raise

    def _send_questions(self) -> None:
        questions, self._questions = self._questions, []
        task = asyncio.create_task(self._put_questions(questions))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _put_questions(self, questions: list["_Question"]) -> None:
        failure: BaseException = TimeoutError("too late")
        replies: list[Any] = []
        try:
            async with asyncio.timeout(self._settings.wait_seconds):
                replies = await self._put_once(questions)
                if all(isinstance(reply, Exception) for reply in replies):
                    # A script cache that was emptied, a fail-over, LOADING: once more on a fresh connection.
                    self._shas.clear()
                    await self._redis.connection_pool.disconnect(inuse_connections=False)
                    replies = await self._put_once(questions)
        except _FAILURES as problem:
            failure = problem
        for n, question in enumerate(questions):
            reply = replies[n] if replies else failure
            question.sent = True
            if question.abandoned:
                self._abandon(question)
            elif not question.answer.done():
                if isinstance(reply, BaseException):
                    question.answer.set_exception(reply)
                else:
                    question.answer.set_result(reply)

    async def _put_once(self, questions: list["_Question"]) -> list[Any]:
        """The replies; or exceptions for all, when the connection broke."""
        try:
            sha = await self._sha(scripts.ADMIT)
            async with self._redis.pipeline(transaction=False) as pipe:
                for question in questions:
                    pipe.evalsha(sha, len(question.keys), *question.keys, *question.arguments)
                return await pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as problem:
            return [problem] * len(questions)

    def _abandon(self, question: "_Question") -> None:
        """Whoever asked was cancelled: give back what Redis may hold for it."""
        nothing = self._granted(question.demand, question.specs, ())
        budget_keys = question.keys[: 2 * len(question.specs)]
        kept = self._keep(
            nothing, question.id, question.demand, question.specs, question.windows, budget_keys, [], None
        )
        self.settle(kept, cost=PicoUsd(0), tokens=0)

    def settle(self, admission: Admission, *, cost: PicoUsd, tokens: int) -> None:
        """See SharedState."""
        hold = self._holds.pop(id(admission), None)
        if hold is None:
            return
        if hold.local is not None:
            state, granted = hold.local
            state.settle(granted, cost=cost, tokens=tokens)
        if not hold.specs and not hold.rate_keys:
            return
        for spec, start in zip(hold.specs, hold.starts, strict=True):
            known = self._known.get(spec.name)
            if known is not None and known.window.start == start:
                known.pending += cost
        if len(self._queue) >= self._settings.queue:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(_Settlement(hold, int(cost), tokens, int(self._wall() * 1000)))
        self._wake.set()

    def budget_left_share(self, team: str, application: str | None) -> float | None:
        """See SharedState. Budgets of one key are left out."""
        shares = [
            left_share(int(spec.limit), self._used(spec), 0)
            for spec in self._budgets_of(team, application, None)
        ]
        return min(shares) if shares else None

    def standings(self, now: float) -> list[Standing]:
        """Every budget as last heard; what is held counts as spent here."""
        return [
            Standing(
                spec=spec,
                window=self._window(spec, now).window,
                spent=PicoUsd(self._used(spec)),
                held=PicoUsd(0),
            )
            for spec in self._budgets.values()
        ]

    # ── the process's share ──

    def _from_share(
        self,
        demand: Demand,
        now: float,
        hold_id: str,
        specs: list[BudgetSpec],
        windows: list[Window],
        keys: list[str],
    ) -> Admission | Refusal:
        state = self._local
        share = self._share()
        if state is None:
            state = self._local = self._make_share(now, share)
        rpm, tpm = demand.requests_per_minute, demand.tokens_per_minute
        scaled = with_fields(
            demand,
            requests_per_minute=None if rpm is None else _scaled(rpm, share),
            tokens_per_minute=None if tpm is None else _scaled(tpm, share),
        )
        got = state.admit(scaled, now)
        if isinstance(got, Refusal):
            return replace(
                got,
                message=f"{got.message} (shared limits are away: this process has a share of {share:.3g})",
            )
        admission = with_fields(got, demand=demand)
        return self._keep(admission, hold_id, demand, specs, windows, keys, [], (state, got))

    def _make_share(self, now: float, share: float) -> MemoryState:
        unheard: dict[tuple[str, float], int] = {}
        for hold in self._holds.values():
            if not hold.registered:
                for spec, start in zip(hold.specs, hold.starts, strict=True):
                    unheard[spec.name, start] = unheard.get((spec.name, start), 0) + hold.worst_case
        budgets: list[BudgetSpec] = []
        for spec in self._budgets.values():
            start = self._window(spec, now).window.start
            left = max(0, int(spec.limit) - self._used(spec) - unheard.get((spec.name, start), 0))
            budgets.append(replace(spec, limit=PicoUsd(int(left * share) if share < 1 else left), warn_at=()))
        teams = [
            replace(
                team,
                requests_per_minute=_scaled(team.requests_per_minute, share),
                tokens_per_minute=_scaled(team.tokens_per_minute, share),
            )
            for team in self._teams.values()
        ]
        return MemoryState(budgets, teams)

    def _share(self) -> float:
        if self._settings.share is not None:
            return self._settings.share
        return 1 / self._processes if self._processes else _UNKNOWN_SHARE

    # ── the background ──

    async def _work(self) -> None:
        """Beat, tell Redis what was spent, compare with the ledger. Ends only when it is cancelled."""
        beat_at = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.beat_seconds):
                    await self._wake.wait()
            self._wake.clear()
            try:
                moment = time.monotonic()
                if moment >= beat_at or self._ledger_at == 0.0:
                    beat_at = moment + self._settings.beat_seconds
                    await self._beat(moment)
                if not self._open:
                    await self._flush()
            except _FAILURES as problem:
                self._fail(problem)
                await asyncio.sleep(self._settings.beat_seconds)
            except Exception as problem:
                # Its text may hold the address with its password.
                log.error("the background task of the shared limits failed: %s", type(problem).__name__)
                await asyncio.sleep(self._settings.beat_seconds)

    async def _beat(self, moment: float) -> None:
        settings = self._settings
        processes = await self._call(
            scripts.BEAT,
            [f"{self._prefix}processes"],
            [self._process, int(settings.alive_seconds * 1000)],
        )
        if self._open or moment - self._ledger_at >= settings.ledger_seconds or self._ledger_at == 0.0:
            await self._raise_to_ledger()
            self._ledger_at = moment
        self._processes = int(processes)
        await self._put_back_holds()
        if self._open:
            await self._flush()
            self._open = False
            log.warning("shared limits are back")
        if self._failed == 0:
            self._local = None  # a share is dealt out anew only after a while without a failure
        self._heard()

    async def _raise_to_ledger(self) -> None:
        now = self._wall()
        if self._open:
            self._ledger_said.clear()  # what was settled while Redis was away is still to be told
        for spec in list(self._budgets.values()):
            window = window_of(spec.per, now)
            amount = await self._spent_from_ledger(spec, window)
            if amount is None:
                continue
            keys = self._keys([spec], [window])
            forget_ms = int((window.end + 7 * 86_400) * 1000)
            # What the ledger has by now, some process may not have told Redis yet, and would tell it twice. What
            # it had at the comparison before has been told since.
            before = self._ledger_said.get(spec.name)
            known_to_all = before[1] if before is not None and before[0] == window else 0
            self._ledger_said[spec.name] = (window, int(amount))
            used, _ = await self._call(
                scripts.RAISE,
                keys[:1],
                [
                    int(amount),
                    secrets.token_hex(6),
                    int(self._settings.warm_seconds * 1000),
                    forget_ms,
                    known_to_all,
                ],
            )
            known = self._window(spec, now)
            if known.window == window:
                known.used = int(used)

    async def _learn_from_ledger(self) -> None:
        """Redis was never heard: what is left is known from the ledger alone."""
        now = self._wall()
        for spec in list(self._budgets.values()):
            window = window_of(spec.per, now)
            amount = await self._spent_from_ledger(spec, window)
            if amount is not None and spec.name not in self._known:
                self._known[spec.name] = _Known(window, int(amount))

    async def _put_back_holds(self) -> None:
        """Counters that are new do not know what we hold, nor does Redis what it was away for."""
        moment = time.monotonic()
        epochs_now: dict[str, str] = {}
        for hold in list(self._holds.values()):
            if not hold.specs or (hold.registered and not await self._is_new(hold, epochs_now)):
                continue
            if id(hold.admission) not in self._holds:
                continue  # settled while we waited
            left_ms = int((hold.expires_at - moment) * 1000)
            if left_ms > 0:
                epochs = await self._call(scripts.HOLD, hold.keys, [hold.id, left_ms, hold.worst_case])
                hold.epochs = [epoch.decode() for epoch in epochs]
                hold.registered = all(hold.epochs)
                for spec, start in zip(hold.specs, hold.starts, strict=True):
                    known = self._known.get(spec.name)
                    if known is not None and known.window.start == start:
                        known.used += hold.worst_case

    async def _is_new(self, hold: _Hold, known: dict[str, str]) -> bool:
        """The counters it is held in were made anew since; `known` collects their epochs of now."""
        now: list[str] = []
        for key in hold.keys[::2]:
            if key not in known:
                async with asyncio.timeout(self._settings.wait_seconds):
                    found = await self._redis.hget(key, "epoch")
                known[key] = (found or b"").decode()
            now.append(known[key])
        return now != hold.epochs

    async def _flush(self) -> None:
        """Tell Redis what was settled, in order."""
        while self._queue:
            batch = [self._queue[n] for n in range(min(200, len(self._queue)))]
            await self._settle_batch(batch)
            for settlement in batch:
                if self._queue and self._queue[0] is settlement:  # not dropped meanwhile
                    self._queue.popleft()
                hold = settlement.hold
                for spec, start in zip(hold.specs, hold.starts, strict=True):
                    known = self._known.get(spec.name)
                    if known is not None and known.window.start == start:
                        known.pending = max(0, known.pending - settlement.cost)

    async def _settle_batch(self, batch: list[_Settlement]) -> None:
        async with asyncio.timeout(self._settings.wait_seconds):
            sha = await self._sha(scripts.SETTLE)
        async with self._redis.pipeline(transaction=False) as pipe:
            for settlement in batch:
                hold = settlement.hold
                keys = [*hold.keys, *hold.rate_keys, f"{self._prefix}done:{hold.id}"]
                pipe.evalsha(
                    sha,
                    len(keys),
                    *keys,
                    hold.id,
                    hold.worst_case,
                    settlement.cost,
                    len(hold.specs),
                    hold.slice,
                    settlement.tokens - hold.admission.demand.tokens,
                    settlement.at_ms,
                    int(hold.registered),
                    *(hold.epochs or [""] * len(hold.specs)),
                )
            try:
                async with asyncio.timeout(max(0.5, self._settings.wait_seconds)):
                    await pipe.execute()
            except NoScriptError:
                self._shas.clear()
                raise

    # ── Redis ──

    async def _call(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        """Run a script within the time limit; a broken connection is tried once more on a fresh one."""
        async with asyncio.timeout(self._settings.wait_seconds):
            try:
                return await self._redis.evalsha(await self._sha(script), len(keys), *keys, *arguments)
            except NoScriptError:
                self._shas.clear()
            except (RedisError, OSError):
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            return await self._redis.evalsha(await self._sha(script), len(keys), *keys, *arguments)

    async def _sha(self, script: str) -> str:
        sha = self._shas.get(script)
        if sha is None:
            loaded = await self._redis.script_load(script)
            sha = self._shas[script] = loaded.decode() if isinstance(loaded, bytes) else str(loaded)
        return sha

    def _fail(self, problem: BaseException) -> None:
        moment = time.monotonic()
        if self._failed == 0:
            self._failing_since = moment
        self._failed += 1
        settings = self._settings
        lasts = moment - self._failing_since >= settings.failing_seconds
        if not self._open and (self._failed >= settings.failures or lasts):
            self._open = True
            log.warning(
                "shared limits are away (%s): this process keeps to its share", type(problem).__name__
            )

    def _heard(self) -> None:
        self._failed = 0

    # ── small things ──

    def _budgets_of(self, team: str, application: str | None, key: str | None) -> list[BudgetSpec]:
        teams, applications, keys = self._named
        # Names that no budget names are one to us, or a client could fill the memory with invented ones.
        who = (
            team if team in teams else None,
            application if application in applications else None,
            key if key in keys else None,
        )
        found = self._touching.get(who)
        if found is None:
            found = self._touching[who] = [
                spec
                for spec in self._budgets.values()
                if touches(spec, team=team, application=application, key=key)
            ]
        return found

    def _window(self, spec: BudgetSpec, now: float) -> _Known:
        known = self._known.get(spec.name)
        if known is None or now >= known.window.end:
            known = self._known[spec.name] = _Known(window_of(spec.per, now))
        return known

    def _used(self, spec: BudgetSpec) -> int:
        known = self._known.get(spec.name)
        return 0 if known is None else known.used + known.pending

    def _keys(self, specs: Sequence[BudgetSpec], windows: Sequence[Window]) -> list[str]:
        keys: list[str] = []
        for spec, window in zip(specs, windows, strict=True):
            name = f"{self._prefix}budget:{spec.per}:{int(window.start)}:{spec.name}"
            keys += [name, f"{name}:held"]
        return keys

    def _rates(self, demand: Demand) -> list["_Rate"]:
        found: list[_Rate] = []
        team = self._teams.get(demand.team)
        if demand.counts_as_request:
            if demand.requests_per_minute is not None:
                found.append(self._rate("key", demand.key_id, "request", demand.requests_per_minute, 1))
            if team is not None and team.requests_per_minute is not None:
                found.append(self._rate("team", demand.team, "request", team.requests_per_minute, 1))
        if demand.tokens_per_minute is not None:
            found.append(self._rate("key", demand.key_id, "token", demand.tokens_per_minute, demand.tokens))
        if team is not None and team.tokens_per_minute is not None:
            found.append(self._rate("team", demand.team, "token", team.tokens_per_minute, demand.tokens))
        return found

    def _rate(self, of: Any, name: str, what: Any, limit: int, amount: int) -> "_Rate":
        return _Rate(of, what, limit, amount, f"{self._prefix}minute:{of}:{what}:{name}")

    def _granted(self, demand: Demand, specs: Sequence[BudgetSpec], over: Sequence[BudgetSpec]) -> Admission:
        return Admission(
            demand=demand,
            budgets=tuple(spec.name for spec in specs),
            over=tuple(spec.name for spec in over),
            allowed_tiers=frozenset(spec.when_spent for spec in over) if over else None,
        )

    def _keep(
        self,
        admission: Admission,
        hold_id: str,
        demand: Demand,
        specs: Sequence[BudgetSpec],
        windows: Sequence[Window],
        keys: list[str],
        rate_keys: list[str],
        local: tuple[MemoryState, Admission] | None,
    ) -> Admission:
        self._holds[id(admission)] = _Hold(
            id=hold_id,
            admission=admission,
            worst_case=int(demand.worst_case or 0),
            specs=tuple(specs),
            starts=tuple(window.start for window in windows),
            keys=keys,
            rate_keys=rate_keys,
            expires_at=time.monotonic() + self._settings.hold_seconds,
            local=local,
        )
        return admission


@dataclass(frozen=True, slots=True)
class _Rate:
    of: Any  # "key" or "team"
    what: Any  # "request" or "token"
    limit: int
    amount: int
    key: str


def _scaled(limit: int | None, share: float) -> int | None:
    return None if limit is None else int(limit * share)

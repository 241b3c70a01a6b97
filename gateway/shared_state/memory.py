"""Limits of one process, in memory, exact: nothing in here waits, so a request is admitted in one step.

The rules, for a person:

- A request is admitted by all limits that touch it, or it leaves no trace in any of them.
- spent + held of a budget that refuses never passes its limit. It may pass it later only by an answer that
  cost more than its worst case; then the next request is refused.
- Money lands in the window that its request was admitted in. A window ends once, at its instant; a wall clock
  that goes back opens no window a second time.
- In any 60 seconds a key or a team is let have at most its limit. Time is counted in half seconds, so up to
  half a second (0.8 %) too little is let through, never too much. This uses a monotonic clock.
- Memory grows with what is in flight and with the keys that asked within the last minute, not with history.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from gateway.shared_state import Admission, Demand, Refusal
from gateway.shared_state.limits import (
    MINUTE_SECONDS,
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
from pricing.money import PicoUsd

_SLICES = 2  # a second
_KEPT = int(MINUTE_SECONDS * _SLICES)
_MOST_CALLERS = (
    10_000  # remembered at once; far more than are active in a minute, or they are swept more often
)


class Minute:
    """How much was let through in each half second of the last 60: at most 121 numbers."""

    __slots__ = ("_slices", "total")

    def __init__(self) -> None:
        self._slices: deque[list[int]] = deque()  # [number of the half second, amount]
        self.total = 0

    def used(self, now_slice: int) -> int:
        """What was let through in the last 60 seconds and what is left of the half second before."""
        slices = self._slices
        while slices and slices[0][0] < now_slice - _KEPT:
            gone = slices.popleft()
            self.total -= gone[1]
            gone[0] = -1
        return self.total

    def add(self, amount: int, now_slice: int) -> list[int]:
        """Count it; the result may be given to `correct`."""
        slices = self._slices
        if not slices or slices[-1][0] < now_slice:
            slices.append([now_slice, 0])
        last = slices[-1]
        last[1] += amount
        self.total += amount
        return last

    def correct(self, counted: list[int], by: int) -> None:
        """It was less (negative) or more than was counted; after its minute that does not matter any more."""
        if counted[0] >= 0:
            counted[1] += by
            self.total += by

    def wait_seconds(self, amount: int, limit: int, now: float) -> float | None:
        """Until `amount` fits under `limit`, if nothing else is let through; None: it never does."""
        if amount > limit:
            return None
        excess = self.total + amount - limit
        for number, counted in self._slices:
            excess -= counted
            if excess <= 0:
                return max(0.0, (number + _KEPT + 1) / _SLICES - now)
        return 0.0


class _Budget:
    """A budget in one window. A new window is a new one of these: what is held by the old one stays with it."""

    __slots__ = (
        "end",
        "held",
        "limit",
        "next_warning",
        "spec",
        "spent",
        "start",
        "tier",
        "warn_from",
        "warnings",
    )

    def __init__(self, spec: BudgetSpec, start: float = 0.0, end: float = 0.0) -> None:
        self.start = start
        self.end = end
        self.spent = 0
        self.held = 0
        self.take(spec)

    def take(self, spec: BudgetSpec) -> None:
        """Go on under these terms."""
        self.spec = spec
        self.limit = int(spec.limit)
        self.tier = None if spec.when_spent == "refuse" else spec.when_spent
        self.warnings = [(share, round(share * self.limit)) for share in sorted(spec.warn_at)]
        self.warned(sum(amount <= self.spent for _, amount in self.warnings))

    def warned(self, warnings: int) -> None:
        """So many of its warnings are over."""
        self.next_warning = warnings
        over = warnings == len(self.warnings)
        self.warn_from = inf if over else self.warnings[warnings][1]  # spent: then the next warning is due


class _Caller:
    """The limits per minute of one key or one team."""

    __slots__ = ("requests", "tokens")

    def __init__(self) -> None:
        self.requests = Minute()
        self.tokens = Minute()


class _Touched:
    """The budgets that one kind of caller touches."""

    __slots__ = ("budgets", "names")

    def __init__(self, budgets: tuple[_Budget, ...]) -> None:
        self.budgets = budgets
        self.names = tuple(budget.spec.name for budget in budgets)


class _Held(Admission, frozen=True, kw_only=True, eq=False):
    """An admission with what it holds, and where."""

    at_most: int
    held_by: tuple[_Budget, ...]
    key_tokens: tuple[Minute, list[int]] | None
    team_tokens: tuple[Minute, list[int]] | None


def _no_warning(budget: str, share: float) -> None:
    """The hook that nobody set."""


class MemoryState:
    """Shared state that only this process shares."""

    def __init__(
        self,
        budgets: Sequence[BudgetSpec] = (),
        teams: Sequence[TeamLimits] = (),
        *,
        warned: Callable[[str, float], None] = _no_warning,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`warned` is told a budget's name and the share of `warn_at` that was passed, once a window."""
        self._warned = warned
        self._monotonic = monotonic
        self._budgets: dict[str, _Budget] = {}
        self._teams: dict[str, TeamLimits] = {}
        self._touching: dict[tuple[str | None, str | None, str | None], _Touched] = {}
        self._by_team: dict[
            str, _Touched
        ] = {}  # the same, while the teams that budgets name are all that matters
        self._only_teams = True  # no budget names an application or a key
        # Of each kind the names that budgets name: name -> itself, and None for all others.
        self._known: tuple[Callable[[str | None], str | None], ...] = ()
        self._callers: dict[tuple[str, str], _Caller] = {}
        self._swept_at = 0.0
        self._open: dict[int, _Held] = {}  # by id()
        self.configure(budgets, teams)

    def configure(self, budgets: Sequence[BudgetSpec], teams: Sequence[TeamLimits]) -> list[str]:
        """Take new terms. A budget of the same name and subject goes on; names that begin anew are returned.

        Those want `load_spent` from the ledger.
        """
        before, self._budgets = self._budgets, {}
        fresh: list[str] = []
        for spec in budgets:
            known = before.get(spec.name)
            if known is not None and _same_subject(known.spec, spec):
                known.take(spec)
                self._budgets[spec.name] = known
            else:
                self._budgets[spec.name] = _Budget(spec)
                fresh.append(spec.name)
        self._teams = {
            limits.team: limits
            for limits in teams
            if limits.requests_per_minute is not None or limits.tokens_per_minute is not None
        }
        self._touching = {}
        self._by_team = {}
        self._only_teams = all(spec.application is None and spec.key is None for spec in budgets)
        self._known = (
            {spec.team: spec.team for spec in budgets}.get,
            {spec.application: spec.application for spec in budgets}.get,
            {spec.key: spec.key for spec in budgets}.get,
        )
        return fresh

    def load_spent(self, budget: str, window: Window, amount: PicoUsd) -> None:
        """What the ledger says was spent in a window, before its first request. Unknown names are ignored."""
        known = self._budgets.get(budget)
        if known is not None and window.end > known.start:
            if known.start != window.start:
                known = self._in_window(known, window)
            known.end = window.end
            known.spent = int(amount)
            known.take(known.spec)

    def admit(self, demand: Demand, now: float) -> Admission | Refusal:
        """See SharedState."""
        team, application, key, worst_case = demand.team, demand.application, demand.key_id, demand.worst_case
        touched = self._by_team.get(team) or self._touched_by(team, application, key)
        budgets = touched.budgets
        over: list[_Budget] | None = None
        if budgets:
            if worst_case is None:
                return no_price(budgets[0].spec)
            for budget in budgets:
                if now >= budget.end:
                    self._in_window(budget, window_of(budget.spec.per, now))
                    return self.admit(demand, now)
                if budget.spent + budget.held + worst_case > budget.limit:
                    if budget.tier is None:
                        return self._spent(budget, worst_case)
                    over = [*over, budget] if over else [budget]
        allowed: frozenset[str] | None = None
        over_names: tuple[str, ...] = ()
        if over:
            tiers = {budget.tier for budget in over}
            over_names = tuple(budget.spec.name for budget in over)
            if len(tiers) > 1:
                return no_tier_left(list(over_names))
            allowed = frozenset(tier for tier in tiers if tier is not None)

        key_tokens = team_tokens = None
        team_limits = self._teams.get(team)
        if (
            team_limits is not None
            or demand.requests_per_minute is not None
            or demand.tokens_per_minute is not None
        ):
            moment = self._monotonic()
            refusal = self._too_fast(demand, team_limits, moment)
            if refusal is not None:
                return refusal
            key_tokens, team_tokens = self._count(demand, team_limits, int(moment * _SLICES))

        # Nothing refuses any more.
        most = worst_case or 0
        for budget in budgets:
            budget.held += most
        held = _Held(
            demand=demand,
            budgets=touched.names,
            over=over_names,
            allowed_tiers=allowed,
            at_most=most,
            held_by=budgets,
            key_tokens=key_tokens,
            team_tokens=team_tokens,
        )
        self._open[id(held)] = held
        return held

    def settle(self, admission: Admission, *, cost: PicoUsd, tokens: int) -> None:
        """See SharedState."""
        held = self._open.pop(id(admission), None)
        if held is None:
            return
        most = held.at_most
        for budget in held.held_by:
            budget.held -= most
            budget.spent += cost
            if budget.spent >= budget.warn_from:
                self._warn(budget)
        counted = held.key_tokens
        if counted is not None:
            counted[0].correct(counted[1], tokens - held.demand.tokens)
        counted = held.team_tokens
        if counted is not None:
            counted[0].correct(counted[1], tokens - held.demand.tokens)

    def budget_left_share(self, team: str, application: str | None) -> float | None:
        """See SharedState. Budgets of one key are left out."""
        touched = self._by_team.get(team) or self._touched_by(team, application, None)
        least: float | None = None
        for budget in touched.budgets:
            share = left_share(budget.limit, budget.spent, budget.held)
            if least is None or share < least:
                least = share
        return least

    def standings(self, now: float) -> list[Standing]:
        """Every budget in the window that `now` is in."""
        found: list[Standing] = []
        for budget in list(self._budgets.values()):
            if now >= budget.end:
                budget = self._in_window(budget, window_of(budget.spec.per, now))
            found.append(
                Standing(
                    spec=budget.spec,
                    window=Window(start=budget.start, end=budget.end),
                    spent=PicoUsd(budget.spent),
                    held=PicoUsd(budget.held),
                )
            )
        return found

    @property
    def open_admissions(self) -> int:
        """Admissions that were not settled yet."""
        return len(self._open)

    @property
    def remembered(self) -> int:
        """Kinds of callers it has looked up budgets for, and callers with limits that were active lately."""
        return len(self._touching) + len(self._by_team) + len(self._callers)

    # ── behind them ──

    def _touched_by(self, team: str, application: str | None, key: str | None) -> _Touched:
        teams, applications, keys = self._known
        # Names that no budget names are one to us, or a client could fill the memory with invented ones.
        who = (teams(team), applications(application), keys(key))
        found = self._touching.get(who)
        if found is None:
            found = self._touching[who] = _Touched(
                tuple(
                    budget
                    for budget in self._budgets.values()
                    if touches(budget.spec, team=who[0], application=who[1], key=who[2])
                )
            )
        if who[0] is not None and self._only_teams:
            self._by_team[team] = found
        return found

    def _in_window(self, before: _Budget, window: Window) -> _Budget:
        """The budget in a new window, in the place of the old one. Money of the old one warns nobody any more."""
        before.warned(len(before.warnings))
        fresh = self._budgets[before.spec.name] = _Budget(before.spec, window.start, window.end)
        self._touching = {}
        self._by_team = {}
        return fresh

    def _warn(self, budget: _Budget) -> None:
        while budget.spent >= budget.warn_from:
            share = budget.warnings[budget.next_warning][0]
            budget.warned(budget.next_warning + 1)
            self._warned(budget.spec.name, share)

    def _spent(self, budget: _Budget, worst_case: int) -> Refusal:
        window = Window(start=budget.start, end=budget.end)
        return spent(budget.spec, window, spent=budget.spent, held=budget.held, worst_case=worst_case)

    def _too_fast(self, demand: Demand, team: TeamLimits | None, moment: float) -> Refusal | None:
        now_slice = int(moment * _SLICES)
        counts = demand.counts_as_request
        if demand.requests_per_minute is not None or demand.tokens_per_minute is not None:
            caller = self._caller("key", demand.key_id, moment)
            limit = demand.requests_per_minute
            if counts and limit is not None and caller.requests.used(now_slice) + 1 > limit:
                wait = caller.requests.wait_seconds(1, limit, moment)
                return too_fast(demand, of="key", what="request", limit=limit, wait=wait)
            limit = demand.tokens_per_minute
            if limit is not None and caller.tokens.used(now_slice) + demand.tokens > limit:
                wait = caller.tokens.wait_seconds(demand.tokens, limit, moment)
                return too_fast(demand, of="key", what="token", limit=limit, wait=wait)
        if team is not None:
            caller = self._caller("team", demand.team, moment)
            limit = team.requests_per_minute
            if counts and limit is not None and caller.requests.used(now_slice) + 1 > limit:
                wait = caller.requests.wait_seconds(1, limit, moment)
                return too_fast(demand, of="team", what="request", limit=limit, wait=wait)
            limit = team.tokens_per_minute
            if limit is not None and caller.tokens.used(now_slice) + demand.tokens > limit:
                wait = caller.tokens.wait_seconds(demand.tokens, limit, moment)
                return too_fast(demand, of="team", what="token", limit=limit, wait=wait)
        return None

    def _count(
        self, demand: Demand, team: TeamLimits | None, now_slice: int
    ) -> tuple[tuple[Minute, list[int]] | None, tuple[Minute, list[int]] | None]:
        """Count the request; returned is where the tokens of its key and of its team are to be corrected."""
        key_tokens = team_tokens = None
        if demand.requests_per_minute is not None or demand.tokens_per_minute is not None:
            caller = self._callers["key", demand.key_id]
            if demand.counts_as_request and demand.requests_per_minute is not None:
                caller.requests.add(1, now_slice)
            if demand.tokens_per_minute is not None:
                key_tokens = (caller.tokens, caller.tokens.add(demand.tokens, now_slice))
        if team is not None:
            caller = self._callers["team", demand.team]
            if demand.counts_as_request and team.requests_per_minute is not None:
                caller.requests.add(1, now_slice)
            if team.tokens_per_minute is not None:
                team_tokens = (caller.tokens, caller.tokens.add(demand.tokens, now_slice))
        return key_tokens, team_tokens

    def _caller(self, kind: str, name: str, moment: float) -> _Caller:
        found = self._callers.get((kind, name))
        if found is None:
            if len(self._callers) >= _MOST_CALLERS and moment - self._swept_at > 1.0:
                self._sweep(moment)
            found = self._callers[kind, name] = _Caller()
        return found

    def _sweep(self, moment: float) -> None:
        """Forget who asked for nothing in the last minute."""
        self._swept_at = moment
        now_slice = int(moment * _SLICES)
        for who, caller in list(self._callers.items()):
            if not caller.requests.used(now_slice) and not caller.tokens.used(now_slice):
                del self._callers[who]


def _same_subject(one: BudgetSpec, other: BudgetSpec) -> bool:
    return (one.per, one.team, one.application, one.key) == (
        other.per,
        other.team,
        other.application,
        other.key,
    )

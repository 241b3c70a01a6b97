"""The file's budgets and limits as the shared state takes them, and what of them the ledger says is spent."""

from collections.abc import Iterable
from datetime import UTC, datetime

from gateway.config import Config
from gateway.shared_state.limits import BudgetSpec, TeamLimits, Window, window_of
from gateway.shared_state.memory import MemoryState
from ledger.store import Ledger
from pricing.money import PicoUsd


def budget_specs(config: Config) -> list[BudgetSpec]:
    """The budgets of the file."""
    return [
        BudgetSpec(
            name=budget.name,
            team=budget.team,
            application=budget.application,
            key=budget.key,
            limit=budget.limit,
            per=budget.per,
            warn_at=budget.warn_at,
            when_spent=budget.when_spent,
        )
        for budget in config.budgets
    ]


def team_limits(config: Config) -> list[TeamLimits]:
    """The limits a minute of the file's teams."""
    return [
        TeamLimits(
            team=team.name,
            requests_per_minute=team.requests_per_minute,
            tokens_per_minute=team.tokens_per_minute,
        )
        for team in config.teams.values()
    ]


def spent_in(ledger: Ledger, spec: BudgetSpec, window: Window) -> PicoUsd:
    """What the ledger has for a budget's window. Raises LedgerAway."""
    return ledger.spent_in_window(
        since=datetime.fromtimestamp(window.start, UTC),
        team=spec.team,
        application=spec.application,
        key_id=spec.key,
    )


def load_spent(state: MemoryState, ledger: Ledger, specs: Iterable[BudgetSpec], now: float) -> None:
    """Tell the state what the ledger has for each budget's present window. Raises LedgerAway."""
    for spec in specs:
        window = window_of(spec.per, now)
        state.load_spent(spec.name, window, spent_in(ledger, spec, window))

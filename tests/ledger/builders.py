"""Entries for tests, by keywords with defaults."""

from typing import Any

from ledger.entry import Admitted, Attempt, Closed
from ledger.rows import Books

NOON_MS = 1_796_040_000_000  # 2026-11-30 12:00 UTC


def admitted(id: str = "req_1", **more: Any) -> Admitted:
    """A request of team search, to be answered by luna."""
    values: dict[str, Any] = {
        "admitted_at_ms": NOON_MS,
        "key_id": "key_1",
        "team": "search",
        "application": "site",
        "model_asked": "auto",
        "input_tokens_estimate": 250,
        "max_output_tokens": 100,
        "task_kind": "chat",
        "classified_because": ("short",),
        "rule": "interactive chat",
        "tier": "fast",
        "deployments": ("luna", "terra"),
        "config_digest": "abc",
        "interrupted_deployment": "luna",
        "interrupted_provider": "openai",
        "interrupted_model": "gpt-5.6-luna",
        "interrupted_price_id": "book:gpt-5.6-luna@2026-06-01",
        "interrupted_pico_usd": 62_500_000,
    }
    return Admitted(id=id, **{**values, **more})


def attempt(n: int = 1, **more: Any) -> Attempt:
    """A settled attempt at luna: 100 tokens in at 250,000 and 10 out at 2,000,000 pico-dollars each."""
    values: dict[str, Any] = {
        "deployment": "luna",
        "provider": "openai",
        "model_called": "gpt-5.6-luna",
        "started_at_ms": NOON_MS + 5,
        "status": 200,
        "state": "settled",
        "input_uncached": 100,
        "output_text": 10,
        "usage_source": "provider",
        "price_id": "book:gpt-5.6-luna@2026-06-01",
        "cost_pico_usd": 45_000_000,
        "cost_input_uncached_pico_usd": 25_000_000,
        "cost_output_pico_usd": 20_000_000,
        "duration_ms": 400,
    }
    return Attempt(n=n, **{**values, **more})


def unbilled(n: int = 1, **more: Any) -> Attempt:
    """An attempt that cost nothing: the connection was refused."""
    values: dict[str, Any] = {
        "state": "unbilled",
        "status": None,
        "failure": "connect_refused",
        "input_uncached": 0,
        "output_text": 0,
        "usage_source": "none",
        "cost_pico_usd": 0,
        "cost_input_uncached_pico_usd": 0,
        "cost_output_pico_usd": 0,
    }
    return attempt(n, **{**values, **more})


def unpriced(n: int = 1, **more: Any) -> Attempt:
    """An attempt whose price nobody knows."""
    values: dict[str, Any] = {
        "price_id": None,
        "cost_pico_usd": None,
        "cost_input_uncached_pico_usd": 0,
        "cost_output_pico_usd": 0,
        "flags": ("unpriced",),
    }
    return attempt(n, **{**values, **more})


def closed(id: str = "req_1", *attempts: Attempt, **more: Any) -> Closed:
    """The end of a request that was answered; by one settled attempt, if none is given."""
    made = attempts or (attempt(),)
    costs = [one.cost_pico_usd for one in made]
    known = [cost for cost in costs if cost is not None]
    values: dict[str, Any] = {
        "closed_at_ms": NOON_MS + 500,
        "state": "answered",
        "status": 200,
        "attempts": made,
        "cost_pico_usd": sum(known) if len(known) == len(costs) else None,
        "duration_ms": 500,
    }
    return Closed(id=id, **{**values, **more})


def books(id: str = "req_1", *attempts: Attempt, **more: Any) -> Books:
    """A whole request; keywords go to where they belong."""
    of_end = {name: value for name, value in more.items() if name in Closed.__struct_fields__}
    of_start = {name: value for name, value in more.items() if name not in of_end}
    return Books(admitted(id, **of_start), closed(id, *attempts, **of_end))

"""One version of the file, ready to serve: deployments with their connections and prices; and what all requests share.

`Live` is made whole from a `Config` and swapped whole between requests: a request takes `services.live` once and
keeps it. Connections to a provider whose settings did not change are kept over a swap.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Protocol

from gateway.affinity import Makers
from gateway.attempts import RetryBudget
from gateway.auth import KeyRing
from gateway.config import Config
from gateway.config.model import Parameters, Provider
from gateway.errors import GatewayError
from gateway.ids import RequestIds
from gateway.metrics import Metrics, Names
from gateway.shared_state import SharedState
from gateway.upstream import Upstream
from ledger.entry import Admitted, Closed
from pricing.budget import worst_case_at_ms
from pricing.money import PicoUsd
from pricing.sheet import PriceBook
from routers.facts import RequestFacts
from routers.health import Health
from routers.policy import Policy, TierSpec

ASSUMED_OUTPUT_TOKENS = 16_384
"""What an answer is held for where neither the client, the tier nor the deployment sets a limit."""

FREE = frozenset({"count_tokens"})
"""Endpoints that no provider bills for."""

IMAGE_TOKENS = 16_000  # held for a request with images: what they cost is not in its bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A deployment ready to be called."""

    name: str
    model: str
    provider: str
    dialect: str
    drains: bool  # a client that leaves: read on to the usage
    connect_seconds: float
    idle_seconds: float
    api_key: str | None  # to be kept out of what the provider says
    upstream: Upstream
    parameters: Parameters | None
    book: PriceBook
    ceiling: PicoUsd | None  # pico-dollars a token where no price is known
    context_tokens: int | None
    max_output_tokens: int | None

    def most_output(self, facts: RequestFacts, tier: TierSpec | None) -> int:
        """The most output tokens one choice of this request may have here."""
        most = facts.max_output_tokens
        if tier is not None and tier.max_output_tokens is not None:
            most = tier.max_output_tokens if most is None else min(most, tier.max_output_tokens)
        if self.max_output_tokens is not None:
            most = self.max_output_tokens if most is None else min(most, self.max_output_tokens)
        return ASSUMED_OUTPUT_TOKENS if most is None else most

    def worst_case(self, facts: RequestFacts, most_output: int, at_ms: int) -> PicoUsd | None:
        """The most this request may cost here, at a moment in milliseconds since 1970.

        None: neither a price nor a ceiling is known.

        A token of text is at least one byte of the body, so the body's length bounds the input.
        """
        if facts.endpoint in FREE:
            return PicoUsd(0)
        if facts.endpoint == "other":  # what it is billed by is not known, so no price of a token is
            return None if self.ceiling is None else PicoUsd(facts.input_bytes * self.ceiling)
        input_tokens = facts.input_bytes + (IMAGE_TOKENS if facts.has_images else 0)
        price = worst_case_at_ms(
            self.book,
            self.model,
            input_tokens,
            most_output,
            facts.choices,
            at_ms=at_ms,
            service_tier=facts.service_tier,
            has_audio=facts.has_audio,
        )
        if price is not None:
            return price
        if self.ceiling is None:
            return None
        return PicoUsd((input_tokens + most_output * facts.choices) * self.ceiling)


def metric_names(config: Config, version: str) -> Names:
    """The closed sets that metric labels come from."""
    policy = config.policy
    return Names(
        rules=frozenset(rule.name for rule in policy.rules),
        tiers=frozenset(policy.tiers),
        teams=frozenset(config.teams),
        deployments=frozenset(policy.deployments),
        providers=frozenset(config.providers),
        models=frozenset(deployment.model for deployment in policy.deployments.values())
        | frozenset(policy.fates),
        budgets=frozenset(budget.name for budget in config.budgets),
        version=version,
        config_digest=config.digest,
    )


class Recording(Protocol):
    """Where entries go: `gateway.recorder`."""

    def admitted(self, entry: Admitted) -> None:
        """A request was let in."""
        ...

    def closed(self, entry: Closed) -> None:
        """Its books are closed."""
        ...

    def can_accept(self) -> bool:
        """False: an entry could not be kept, so nothing may be spent."""
        ...


class Live:
    """One version of the file, ready to serve."""

    def __init__(self, config: Config, upstreams: Mapping[str, Upstream]) -> None:
        """`upstreams`: one for every provider that is live."""
        self.config = config
        self.policy: Policy = config.policy
        self.upstreams = upstreams
        self.team_limits = {name: team.limits for name, team in config.teams.items()}
        self.targets: dict[str, Target] = {}
        for deployment in config.policy.deployments.values():
            provider = config.providers[deployment.provider]
            if deployment.off_because is None and provider.live:
                self.targets[deployment.name] = Target(
                    name=deployment.name,
                    model=deployment.model,
                    provider=provider.name,
                    dialect=provider.dialect,
                    drains=provider.on_disconnect == "drain",
                    connect_seconds=provider.connect_seconds,
                    idle_seconds=provider.idle_seconds,
                    api_key=provider.api_key,
                    upstream=upstreams[provider.name],
                    parameters=config.parameters.get(deployment.name),
                    book=config.books[deployment.name],
                    ceiling=config.ceilings.get(deployment.name),
                    context_tokens=deployment.context_tokens,
                    max_output_tokens=deployment.max_output_tokens,
                )
        self._baselines = [
            (
                int(
                    datetime(line.from_.year, line.from_.month, line.from_.day, tzinfo=UTC).timestamp() * 1000
                ),
                line.deployment,
                config.policy.deployments[line.deployment].model,
                config.books[line.deployment],
            )
            for line in reversed(config.baselines)
        ]

    def baseline_at(self, at_ms: int) -> tuple[str, str, PriceBook] | None:
        """Deployment, model and prices that savings are measured against at a moment (ms since 1970)."""
        for from_ms, name, model, book in self._baselines:
            if from_ms <= at_ms:
                return name, model, book
        return None


def open_upstreams(
    config: Config,
    old: Live | None,
    make: Callable[[Provider], Upstream],
) -> dict[str, Upstream]:
    """Connections for every live provider, kept from `old` where nothing about the provider changed."""
    kept: dict[str, Upstream] = {}
    for name, provider in config.providers.items():
        if not provider.live:
            continue
        if old is not None and old.config.providers.get(name) == provider:
            kept[name] = old.upstreams[name]
        else:
            kept[name] = make(provider)
    return kept


@dataclass(slots=True, kw_only=True)
class Services:
    """What all requests of the process share. `live` is replaced whole; the rest stays."""

    live: Live
    keys: KeyRing
    state: SharedState
    health: Health
    recorder: Recording
    retries: RetryBudget
    ids: RequestIds
    random: Random
    metrics: Metrics
    makers: Makers
    clock: Callable[[], float]  # monotonic seconds
    closed: Callable[[Admitted, Closed], None]  # metrics and the log line; must not raise
    warn: Callable[[str, Mapping[str, object]], None]  # one structured log line
    refusals: dict[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    """Deployment -> why it rests, where its provider said so (a limit, a quota, a key), in the client's words."""
    simulated: bool = False  # answers come from the simulated provider
    names_attempts: bool = False  # send each attempt's id to the provider (tests switch it on)
    retry_base_seconds: float = 0.25
    retry_wait_seconds: float = 10.0  # the longest a request waits for one more try at a resting deployment
    keep_alive_seconds: float = 15.0  # between comments to a client that waits for a slow first token
    max_answer_bytes: int = 64 * 1024 * 1024

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

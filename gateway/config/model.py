"""What a good file becomes: values that never change, everything in them checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from gateway.config.problems import Problem
from pricing.money import PicoUsd
from pricing.sheet import PriceBook
from routers.decide import CallerLimits
from routers.facts import EndpointName
from routers.policy import Policy

Per = Literal["day", "week", "month"]
Client = Literal["own", "httpx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The process itself."""

    listen: str  # host:port
    admin_listen: str
    key_secret: str = field(repr=False)  # empty: not set here (only where `needs_secrets` is off)
    admin_secret: str = field(repr=False)
    ledger_url: str | None = field(default=None, repr=False)  # None: SQLite in data_dir
    redis_url: str | None = field(default=None, repr=False)  # None: shared state stays in this process
    default: str
    data_dir: str = ".faregate"
    max_body_bytes: int = 32 * 1024 * 1024
    max_connections: int = 10_000  # of clients
    drain_seconds: float = 30.0
    key_cache_seconds: float = 900.0
    price_file: str | None = None  # published prices of your own, beside the program's


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Whom we call."""

    name: str
    dialect: str
    base_url: str  # without a slash at its end
    endpoints: frozenset[EndpointName] = frozenset()  # what of the API it serves
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str | None = None  # the variable its key comes from; None: it needs none
    client: Client = "own"
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    connect_seconds: float = 2.0
    idle_seconds: float = 60.0
    max_connections: int = 8_192
    proxy: str | None = field(default=None, repr=False)
    http2: bool = False
    ca_file: str | None = None
    live: bool = True
    off_because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What is changed in a request for one deployment, beside the model's name."""

    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who pays."""

    name: str
    cost_center: str | None = None
    tiers: frozenset[str] | None = None  # None: any
    regions: frozenset[str] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def limits(self) -> CallerLimits:
        """What its keys may reach at most."""
        return CallerLimits(tiers=self.tiers, regions=self.regions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much may be spent in a window, by whom, and what happens then."""

    name: str
    team: str | None = None  # None: any
    application: str | None = None
    key: str | None = None
    limit: PicoUsd
    per: Per
    warn_at: tuple[float, ...] = ()  # shares of the limit, rising
    when_spent: str = "refuse"  # or the tier that may go on spending


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What savings are measured against from a day on."""

    deployment: str
    from_: date
    approved_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One version of faregate.toml, whole."""

    path: str
    gateway: GatewaySettings
    providers: Mapping[str, Provider]
    policy: Policy
    teams: Mapping[str, Team]
    budgets: tuple[Budget, ...]
    baselines: tuple[Baseline, ...]  # oldest first
    parameters: Mapping[str, Parameters]  # by deployment; only those that have some
    books: Mapping[str, PriceBook]  # by deployment
    ceilings: Mapping[str, PicoUsd | None]  # by deployment: the most a token may cost where no price is known
    digest: str  # of the file's bytes, and of those of its `price_file`
    warnings: tuple[Problem, ...] = ()

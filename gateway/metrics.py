"""Every metric of the gateway: the names in one list, and the sums behind them.

Requests are added up as whole numbers in plain Python and become Prometheus samples when somebody asks, which
is cheaper than a client object for every label and keeps money exact until then. All of it happens on the
event loop, so nothing is locked. A label's value is always from a closed set (names of the configuration,
words of our own); whatever a client or a provider made up is counted as `other`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.upstream import FailureKind
from ledger.entry import Admitted, Attempt, Closed
from pricing.money import PICO_PER_USD
from pricing.usage import BUCKETS, UsageSource
from routers.facts import TaskKind

OTHER = "other"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# ── the list ──

_GEN_AI = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model")
_GEN_AI_TOKENS = (*_GEN_AI, "gen_ai_token_modality")
_GEN_AI_TIMES = (*_GEN_AI, "error_type")

COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "gen_ai_client_inference_usage_input_tokens_total": (
        "Input tokens of upstream calls, cached ones included.",
        _GEN_AI_TOKENS,
    ),
    "gen_ai_client_inference_usage_output_tokens_total": (
        "Output tokens of upstream calls, reasoning included.",
        _GEN_AI_TOKENS,
    ),
    "gen_ai_client_inference_usage_cache_read_input_tokens_total": (
        "Input tokens that a provider's cache served.",
        _GEN_AI_TOKENS,
    ),
    "gen_ai_client_inference_usage_cache_write_input_tokens_total": (
        "Input tokens written to a provider's cache.",
        _GEN_AI_TOKENS,
    ),
    "gen_ai_client_inference_usage_reasoning_output_tokens_total": (
        "Output tokens spent on reasoning.",
        _GEN_AI_TOKENS,
    ),
    "faregate_requests_total": (
        "Requests that were let in, when their books closed.",
        ("route", "tier", "task_kind", "status_class", "outcome"),
    ),
    "faregate_refusals_total": ("Requests that were not let in.", ("code",)),
    "faregate_tokens_total": (
        "Tokens by class; the classes do not overlap.",
        ("route", "provider", "model", "token_class"),
    ),
    "faregate_cost_usd_total": (
        "Cost in dollars, for watching; the ledger has the exact figure.",
        ("route", "tier", "provider", "model", "token_class", "team"),
    ),
    "faregate_cost_unpriced_requests_total": ("Upstream calls that have no price.", ("model",)),
    "faregate_usage_source_total": ("Who counted the tokens of upstream calls.", ("model", "source")),
    "faregate_counterfactual_cost_usd_total": (
        "What the same tokens would have cost at the baseline's price: an upper bound.",
        ("baseline", "method"),
    ),
    "faregate_route_decisions_total": ("Decisions.", ("task_kind", "route", "reason")),
    "faregate_fallbacks_total": ("Moves to another deployment after a failure.", ("from", "to", "cause")),
    "faregate_retries_total": ("Repeats at the same deployment after a failure.", ("deployment", "cause")),
    "faregate_budget_rejections_total": ("Requests refused by a budget.", ("budget",)),
    "faregate_alerts_total": ("What an operator should look at.", ("deployment", "cause")),
    "faregate_accounting_failures_total": ("Books that did not close as they should.", ("cause",)),
    "faregate_ledger_write_failures_total": ("Batches that the database did not take at once.", ()),
}
HISTOGRAMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "gen_ai_client_operation_duration_seconds": ("Upstream calls.", _GEN_AI_TIMES),
    "gen_ai_client_operation_time_to_first_chunk_seconds": (
        "Upstream calls until the first byte of their body.",
        _GEN_AI_TIMES,
    ),
    "gen_ai_server_request_duration_seconds": ("Requests, as their client saw them.", _GEN_AI_TIMES),
    "gen_ai_server_time_to_first_token_seconds": ("Requests until their client's first byte.", _GEN_AI_TIMES),
    "gen_ai_server_time_per_output_token_seconds": (
        "Streamed requests: time per output token after the first.",
        _GEN_AI_TIMES,
    ),
    "faregate_route_decision_duration_seconds": ("Deciding.", ()),
    "faregate_gateway_overhead_seconds": ("What the gateway itself added to a request.", ()),
}
GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "faregate_prefix_cache_hit_ratio": ("Cached share of all input tokens since the start.", ()),
    "faregate_budget_remaining_ratio": ("Share of a budget that is neither spent nor held.", ("budget",)),
    "faregate_ledger_lag_seconds": ("Age of the oldest row that the database does not have yet.", ()),
    "faregate_degraded": ("1: a dependency is away and the gateway works without it.", ("dependency",)),
    "faregate_build_info": ("1", ("version", "config_digest", "pricebook_version")),
}

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
SHORT_SECONDS = (1e-05, 2.5e-05, 5e-05, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)
_BOUNDS = {
    "faregate_route_decision_duration_seconds": SHORT_SECONDS,
    "faregate_gateway_overhead_seconds": SHORT_SECONDS,
}

_COST_CLASSES = ("input_uncached", "input_cached", "cache_write", "output", "fees")
_SOURCES = get_args(UsageSource)
_TASK_KINDS = frozenset(get_args(TaskKind))
_CAUSES = frozenset(get_args(FailureKind))
_OUTCOMES = frozenset({"answered", "failed", "cancelled"})
_REASONS = frozenset({"rule", "asked for by name", "default", "pinned"})
_CODES = frozenset(  # of gateway.errors
    {
        "invalid_api_key",
        "invalid_json",
        "duplicate_key",
        "json_too_deep",
        "invalid_utf8",
        "request_too_large",
        "headers_too_large",
        "unsupported_content_encoding",
        "unsupported_media_type",
        "missing_field",
        "invalid_value",
        "unknown_parameter",
        "model_not_found",
        "context_length_exceeded",
        "not_found",
        "method_not_allowed",
        "request_timeout",
        "idempotency_conflict",
        "tier_not_allowed",
        "model_not_allowed",
        "rate_limit_exceeded",
        "upstream_rate_limited",
        "budget_exceeded",
        "unpriced",
        "upstream_unreachable",
        "upstream_timeout",
        "upstream_invalid_response",
        "upstream_error",
        "stream_interrupted",
        "overloaded",
        "draining",
        "dependency_unavailable",
        "internal_error",
        "client_left",
    }
)
_ERRORS = _CODES | _CAUSES
_DEPENDENCIES = frozenset({"redis", "ledger"})
_MOST_SERIES = (
    5000  # of one metric; a configuration with more names than that is counted as `other` from there on
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The closed sets that labels come from: what the configuration names."""

    rules: frozenset[str] = frozenset()
    tiers: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    deployments: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()  # of deployments, and what a price or a name is known for
    budgets: frozenset[str] = frozenset()
    version: str = ""
    config_digest: str = ""
    pricebook_version: str = ""


def _no_shares() -> Mapping[str, float]:
    return {}


def _no_lag() -> float | None:
    return None


def _none_degraded() -> Mapping[str, bool]:
    return {}


def _no_count() -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is asked for only when somebody reads the metrics. None of them may wait."""

    budgets_left: Callable[[], Mapping[str, float]] = _no_shares  # by budget, 0 to 1
    ledger_lag_seconds: Callable[[], float | None] = _no_lag
    ledger_write_failures: Callable[[], int] = _no_count
    degraded: Callable[[], Mapping[str, bool]] = _none_degraded  # by dependency


# ── sums ──


class _Sum:
    """A counter's amount."""

    __slots__ = ("amount",)

    def __init__(self) -> None:
        self.amount = 0


class _Spread:
    """A histogram's counts."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(_bound_text, self.bounds), "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


@dataclass(slots=True)
class _Calls:
    """Sums over the upstream calls of one route, tier, provider, model, answered model and team."""

    tokens: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    cost: list[int] = field(default_factory=lambda: [0] * len(_COST_CLASSES))
    unpriced: int = 0
    sources: dict[str, int] = field(default_factory=dict[str, int])


_Labels = tuple[str, ...]


class _Ends:
    """Where the times of requests are counted that are alike and had the same last call.

    None: there was nothing to count so far, so there is no series yet.
    """

    __slots__ = ("first_token", "labels", "per_token", "request")

    def __init__(self, labels: _Labels) -> None:
        self.labels = labels
        self.request: _Spread | None = None
        self.first_token: _Spread | None = None
        self.per_token: _Spread | None = None


class _Call:
    """Where upstream calls are counted that are alike, in requests that are alike."""

    __slots__ = ("ends", "first_chunk", "labels", "seconds", "source", "sums")

    def __init__(self, sums: _Calls, seconds: _Spread, ends: _Ends, *, source: str, labels: _Labels) -> None:
        self.sums = sums
        self.seconds = seconds
        self.ends = ends
        self.source = source
        self.labels = labels  # of its times
        self.first_chunk: _Spread | None = None  # None: there was none so far


class _Kind:
    """Where requests are counted that are alike, so that their labels are worked out once."""

    __slots__ = ("asked", "baselines", "calls", "error", "requests", "route", "team", "tier", "without_call")

    def __init__(self, requests: _Sum, *, route: str, tier: str, team: str, asked: str, error: str) -> None:
        self.requests = requests
        self.route = route
        self.tier = tier
        self.team = team
        self.asked = asked
        self.error = error
        self.calls: dict[tuple[str | int | None, ...], _Call] = {}
        self.without_call = self.ends(OTHER, OTHER)
        self.baselines: dict[str, _Sum] = {}

    def ends(self, provider: str, response_model: str) -> _Ends:
        return _Ends(("chat", provider, self.asked, response_model, self.error))


class Metrics:
    """The gateway's metrics. `observe` is on the way of every request, `render` is for a scraper."""

    def __init__(self, names: Names, sources: Sources | None = None) -> None:
        self._names = names
        self._sources = sources or Sources()
        self._calls: dict[_Labels, _Calls] = {}
        self._sums: dict[str, dict[_Labels, _Sum]] = {name: {} for name in COUNTERS}
        self._spreads: dict[str, dict[_Labels, _Spread]] = {name: {} for name in HISTOGRAMS}
        # Only shortcuts to the sums above, by what requests say and not by labels: forgotten when they get too many.
        self._kinds: dict[tuple[str | int | None, ...], _Kind] = {}
        self._decisions: dict[tuple[str, str], _Sum] = {}
        self._remembered = 0
        self._overhead: _Spread | None = None  # None: there was none so far
        self._deciding: _Spread | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collected(self._families))

    def configure(self, names: Names) -> None:
        """Another configuration is in force. What was counted stays."""
        self._names = names
        self._forget()

    def observe(self, admitted: Admitted, closed: Closed, *, overhead_seconds: float | None = None) -> None:
        """The books of a request have closed."""
        said = (
            admitted.rule,
            admitted.tier,
            admitted.task_kind,
            admitted.team,
            admitted.model_asked,
            closed.status,
            closed.state,
            closed.error,
        )
        kind = self._kinds.get(said)
        if kind is None:
            self._make_room()
            kind = self._kinds[said] = self._new_kind(admitted, closed)
        kind.requests.amount += 1

        ends = kind.without_call
        previous: Attempt | None = None
        for attempt in closed.attempts:
            ends = self._call(kind, attempt)
            if previous is not None:
                self._moved(previous, attempt)
            previous = attempt

        seconds = closed.duration_ms / 1000
        if ends.request is None:
            ends.request = self._spread("gen_ai_server_request_duration_seconds", ends.labels)
        ends.request.add(seconds)
        if closed.first_byte_ms is not None:
            first = closed.first_byte_ms / 1000
            if ends.first_token is None:
                ends.first_token = self._spread("gen_ai_server_time_to_first_token_seconds", ends.labels)
            ends.first_token.add(first)
            output = previous.output_text + previous.output_reasoning if previous is not None else 0
            if admitted.stream and output > 1:
                if ends.per_token is None:
                    ends.per_token = self._spread("gen_ai_server_time_per_output_token_seconds", ends.labels)
                ends.per_token.add(max(0.0, seconds - first) / (output - 1))
        if closed.baseline_deployment is not None and closed.baseline_pico_usd is not None:
            baseline = kind.baselines.get(closed.baseline_deployment)
            if baseline is None:
                name = _of(closed.baseline_deployment, self._names.deployments)
                baseline = self._sum("faregate_counterfactual_cost_usd_total", (name, "same_tokens"))
                kind.baselines[closed.baseline_deployment] = baseline
            baseline.amount += closed.baseline_pico_usd
        if overhead_seconds is not None:
            if self._overhead is None:
                self._overhead = self._spread("faregate_gateway_overhead_seconds", ())
            self._overhead.add(overhead_seconds)

    def decided(self, *, task_kind: str, rule: str, seconds: float) -> None:
        """A decision was made: `rule` is a rule's name, or how else the choice was made."""
        decisions = self._decisions.get((task_kind, rule))
        if decisions is None:
            self._make_room()
            decisions = self._decisions[task_kind, rule] = self._decisions_of(task_kind, rule)
        decisions.amount += 1
        if self._deciding is None:
            self._deciding = self._spread("faregate_route_decision_duration_seconds", ())
        self._deciding.add(seconds)

    def refused(self, code: str, budget: str | None = None) -> None:
        """A request was answered with this error before it was let in; `budget` refused it, if one did."""
        self._count("faregate_refusals_total", (code if code in _CODES else OTHER,))
        if budget is not None:
            self._count("faregate_budget_rejections_total", (_of(budget, self._names.budgets),))

    def protocol_refused(self, status: int, code: str) -> None:
        """The listener itself answered for a fault in the framing or in the time it took."""
        self.refused(code)

    def alert(self, deployment: str, cause: str) -> None:
        """A deployment needs its operator: its key is refused, its quota is gone."""
        self._count(
            "faregate_alerts_total",
            (
                _of(deployment, self._names.deployments),
                cause if cause in _ERRORS or cause in _ALERTS else OTHER,
            ),
        )

    def accounting_failed(self, cause: str) -> None:
        """Something about a request's books went wrong, and its answer went out all the same."""
        self._count("faregate_accounting_failures_total", (cause if cause in _ACCOUNTING else OTHER,))

    @property
    def remembered(self) -> int:
        """Kinds of requests, calls and decisions whose labels it need not work out again: a bounded number."""
        return self._remembered

    def render(self) -> bytes:
        """All metrics in Prometheus' text form, of `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    # ── behind them ──

    def _count(self, name: str, labels: _Labels) -> None:
        self._sum(name, labels).amount += 1

    def _sum(self, name: str, labels: _Labels) -> _Sum:
        sums = self._sums[name]
        found = sums.get(labels)
        if found is None:
            if len(sums) >= _MOST_SERIES:
                labels = (OTHER,) * len(labels)
            found = sums.setdefault(labels, _Sum())
        return found

    def _spread(self, name: str, labels: _Labels) -> _Spread:
        spreads = self._spreads[name]
        found = spreads.get(labels)
        if found is None:
            if len(spreads) >= _MOST_SERIES:
                labels = (OTHER,) * len(labels)
            found = spreads.setdefault(labels, _Spread(_BOUNDS.get(name, SECONDS)))
        return found

    def _make_room(self) -> None:
        """For one more shortcut."""
        if self._remembered >= _MOST_SERIES:
            self._forget()
        self._remembered += 1

    def _forget(self) -> None:
        self._kinds.clear()
        self._decisions.clear()
        self._remembered = 0

    def _new_kind(self, admitted: Admitted, closed: Closed) -> _Kind:
        names = self._names
        route = admitted.rule if admitted.rule in names.rules else _reason(admitted.rule)
        tier = _of(admitted.tier, names.tiers) if admitted.tier else "pinned"
        task_kind = admitted.task_kind if admitted.task_kind in _TASK_KINDS else OTHER
        status = closed.status
        status_class = f"{status // 100}xx" if 100 <= status < 600 else OTHER
        outcome = closed.state if closed.state in _OUTCOMES else OTHER
        return _Kind(
            self._sum("faregate_requests_total", (route, tier, task_kind, status_class, outcome)),
            route=route,
            tier=tier,
            team=_of(admitted.team, names.teams),
            asked=_of(admitted.model_asked, names.models, names.tiers),
            error="" if closed.error is None else closed.error if closed.error in _ERRORS else OTHER,
        )

    def _decisions_of(self, task_kind: str, rule: str) -> _Sum:
        kind = task_kind if task_kind in _TASK_KINDS else OTHER
        reason = "rule" if rule in self._names.rules else _reason(rule)
        route = rule if reason == "rule" else reason
        return self._sum("faregate_route_decisions_total", (kind, route, reason))

    def _call(self, kind: _Kind, attempt: Attempt) -> _Ends:
        """Count one upstream call. Where the request's times are counted if it was the last one."""
        said = (
            attempt.provider,
            attempt.model_called,
            attempt.model_answered,
            attempt.status,
            attempt.failure,
            attempt.usage_source,
        )
        call = kind.calls.get(said)
        if call is None:
            self._make_room()
            call = kind.calls[said] = self._new_call(kind, attempt)
        sums = call.sums
        tokens, cost = sums.tokens, sums.cost
        tokens[0] += attempt.input_uncached
        tokens[1] += attempt.input_cached
        tokens[2] += attempt.cache_write_5m
        tokens[3] += attempt.cache_write_1h
        tokens[4] += attempt.input_audio
        tokens[5] += attempt.input_audio_cached
        tokens[6] += attempt.input_image
        tokens[7] += attempt.output_text
        tokens[8] += attempt.output_reasoning
        tokens[9] += attempt.output_audio
        tokens[10] += attempt.output_image
        if attempt.cost_pico_usd is None:
            sums.unpriced += 1
        else:
            cost[0] += attempt.cost_input_uncached_pico_usd
            cost[1] += attempt.cost_input_cached_pico_usd
            cost[2] += attempt.cost_cache_write_pico_usd
            cost[3] += attempt.cost_output_pico_usd
            cost[4] += attempt.cost_fees_pico_usd
        sums.sources[call.source] = sums.sources.get(call.source, 0) + 1
        call.seconds.add(attempt.duration_ms / 1000)
        if attempt.first_byte_ms is not None:
            if call.first_chunk is None:
                call.first_chunk = self._spread(
                    "gen_ai_client_operation_time_to_first_chunk_seconds", call.labels
                )
            call.first_chunk.add(attempt.first_byte_ms / 1000)
        return call.ends

    def _new_call(self, kind: _Kind, attempt: Attempt) -> _Call:
        names = self._names
        provider = _of(attempt.provider, names.providers)
        model = _of(attempt.model_called, names.models)
        answered = attempt.model_answered
        response_model = (
            model if answered is None or answered == attempt.model_called else _of(answered, names.models)
        )
        labels = (kind.route, kind.tier, provider, model, response_model, kind.team)
        sums = self._calls.get(labels)
        if sums is None:
            if len(self._calls) >= _MOST_SERIES:
                labels = (OTHER,) * len(labels)
            sums = self._calls.setdefault(labels, _Calls())
        error = _cause(attempt) if attempt.failure is not None or (attempt.status or 200) >= 400 else ""
        times = ("chat", provider, model, response_model, error)
        return _Call(
            sums,
            self._spread("gen_ai_client_operation_duration_seconds", times),
            kind.ends(provider, response_model),
            source=attempt.usage_source if attempt.usage_source in _SOURCES else OTHER,
            labels=times,
        )

    def _moved(self, before: Attempt, after: Attempt) -> None:
        known = self._names.deployments
        cause = _cause(before)
        if before.deployment == after.deployment:
            self._count("faregate_retries_total", (_of(after.deployment, known), cause))
        else:
            self._count(
                "faregate_fallbacks_total",
                (_of(before.deployment, known), _of(after.deployment, known), cause),
            )

    def _families(self) -> Iterator[Metric]:
        sums = {
            name: {labels: found.amount for labels, found in series.items()}
            for name, series in self._sums.items()
        }
        sums |= self._from_calls()
        sums["faregate_ledger_write_failures_total"] = {(): self._sources.ledger_write_failures()}
        for name, (text, labels) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            in_usd = name.endswith("_usd_total")
            for values, amount in sums[name].items():
                counter.add_metric(values, amount / PICO_PER_USD if in_usd else amount)
            yield counter
        for name, (text, labels) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, text, labels=labels)
            for values, spread in self._spreads[name].items():
                histogram.add_metric(values, buckets=spread.buckets(), sum_value=spread.total)
            yield histogram
        gauges = self._gauges()
        for name, (text, labels) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=labels)
            for values, value in gauges[name].items():
                gauge.add_metric(values, value)
            yield gauge

    def _from_calls(self) -> dict[str, dict[_Labels, int]]:
        usage = "gen_ai_client_inference_usage_"
        found: dict[str, dict[_Labels, int]] = {name: {} for name in _FROM_CALLS}

        def add(name: str, labels: _Labels, amount: int) -> None:
            if amount:
                found[name][labels] = found[name].get(labels, 0) + amount

        for (route, tier, provider, model, response_model, team), calls in self._calls.items():
            for bucket, count in zip(BUCKETS, calls.tokens, strict=True):
                add("faregate_tokens_total", (route, provider, model, bucket), count)
                what = ("chat", provider, model, response_model, _modality(bucket))
                for name in _GEN_AI_BUCKETS[bucket]:
                    add(f"{usage}{name}_tokens_total", what, count)
            for token_class, amount in zip(_COST_CLASSES, calls.cost, strict=True):
                add("faregate_cost_usd_total", (route, tier, provider, model, token_class, team), amount)
            add("faregate_cost_unpriced_requests_total", (model,), calls.unpriced)
            for source, count in calls.sources.items():
                add("faregate_usage_source_total", (model, source), count)
        return found

    def _gauges(self) -> dict[str, dict[_Labels, float]]:
        names, sources = self._names, self._sources
        every = [
            sum(column) for column in zip(*(calls.tokens for calls in self._calls.values()), strict=True)
        ]
        read = sum(every[:7])
        lag = sources.ledger_lag_seconds()
        degraded = sources.degraded()
        return {
            "faregate_prefix_cache_hit_ratio": {(): (every[1] + every[5]) / read} if read else {},
            "faregate_budget_remaining_ratio": {
                (budget,): share
                for budget, share in sources.budgets_left().items()
                if budget in names.budgets
            },
            "faregate_ledger_lag_seconds": {} if lag is None else {(): lag},
            "faregate_degraded": {
                (dependency,): float(away)
                for dependency, away in degraded.items()
                if dependency in _DEPENDENCIES
            },
            "faregate_build_info": {(names.version, names.config_digest, names.pricebook_version): 1.0},
        }


_ALERTS = frozenset({"key_refused", "quota_gone", "reload_failed"})
_ACCOUNTING = frozenset({"pricing", "metering", "recording", "settling"})
_FROM_CALLS = (
    *(name for name in COUNTERS if name.startswith("gen_ai_client_inference_usage_")),
    "faregate_tokens_total",
    "faregate_cost_usd_total",
    "faregate_cost_unpriced_requests_total",
    "faregate_usage_source_total",
)
_GEN_AI_BUCKETS: Mapping[str, tuple[str, ...]] = {
    "input_uncached": ("input",),
    "input_cached": ("input", "cache_read_input"),
    "cache_write_5m": ("input", "cache_write_input"),
    "cache_write_1h": ("input", "cache_write_input"),
    "input_audio": ("input",),
    "input_audio_cached": ("input", "cache_read_input"),
    "input_image": ("input",),
    "output_text": ("output",),
    "output_reasoning": ("output", "reasoning_output"),
    "output_audio": ("output",),
    "output_image": ("output",),
}


class _Collected(Collector):
    """What the registry asks."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        return self._families()


def _of(value: str, *known: frozenset[str]) -> str:
    for names in known:
        if value in names:
            return value
    return OTHER


def _reason(rule: str) -> str:
    return rule if rule in _REASONS else OTHER


def _cause(attempt: Attempt) -> str:
    if attempt.failure is not None and attempt.failure in _ERRORS:
        return attempt.failure
    status = attempt.status
    return str(status) if status is not None and 400 <= status < 600 else OTHER


def _modality(bucket: str) -> str:
    return "audio" if "audio" in bucket else "image" if "image" in bucket else "text"


def _bound_text(bound: float) -> str:
    return repr(bound)

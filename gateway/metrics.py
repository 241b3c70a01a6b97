"""Every metric of the gateway: the names in one list, and the sums behind them.

Requests are added up as whole numbers in plain Python and become Prometheus samples when somebody asks, which
is cheaper than a client object for every label and keeps money exact until then. The numbers of requests that
are alike wait side by side and are added up together, column by column: when there are `_TOGETHER` of them,
when somebody asks, and before another configuration changes their labels. All of it happens on the event loop,
so nothing is locked. A label's value is always from a closed set (names of the configuration, words of our
own); whatever a client or a provider made up is counted as `other`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, cast, get_args

from msgspec.structs import replace
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
        "endpoint_not_served",
        "answer_not_found",
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
_TOGETHER = 128  # numbers of requests that are alike are added up when there are so many
_MOST_WAITING = 250  # kinds of requests whose numbers wait; one more, and all that wait are added up


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


class _Scale(NamedTuple):
    """The buckets of a histogram, in the unit that its values are told in."""

    bounds: tuple[float, ...]
    per_second: int  # how many of that unit are a second
    texts: tuple[str, ...]  # of the bounds, in seconds


_MS_SCALE = _Scale(tuple(round(bound * 1000) for bound in SECONDS), 1000, tuple(map(repr, SECONDS)))
_SHORT_SCALE = _Scale(SHORT_SECONDS, 1, tuple(map(repr, SHORT_SECONDS)))
_SCALES = {
    "faregate_route_decision_duration_seconds": _SHORT_SCALE,
    "faregate_gateway_overhead_seconds": _SHORT_SCALE,
}


class _Spread:
    """A histogram's counts."""

    __slots__ = ("counts", "scale", "total")

    def __init__(self, scale: _Scale) -> None:
        self.scale = scale
        self.counts = [0] * (len(scale.bounds) + 1)
        self.total: float = 0

    def add(self, values: Iterable[float]) -> None:
        ordered = sorted(values)
        self.total += sum(ordered)
        bounds = self.scale.bounds
        start = 0
        while start < len(ordered):  # one turn for each bucket that gets some
            place = bisect_left(bounds, ordered[start])
            end = bisect_right(ordered, bounds[place], start) if place < len(bounds) else len(ordered)
            self.counts[place] += end - start
            start = end

    def seconds(self) -> float:
        return self.total / self.scale.per_second

    def buckets(self) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*self.scale.texts, "+Inf"), self.counts, strict=True):
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

    def add(self, amounts: Sequence[Sequence[int]], *, is_unpriced: bool) -> None:
        """Columns of numbers: tokens as in `BUCKETS`, then costs as in `_COST_CLASSES`."""
        tokens, cost = amounts[: len(BUCKETS)], amounts[len(BUCKETS) :]
        self.tokens = [so_far + sum(more) for so_far, more in zip(self.tokens, tokens, strict=True)]
        if is_unpriced:
            self.unpriced += len(tokens[0])
        else:
            self.cost = [so_far + sum(more) for so_far, more in zip(self.cost, cost, strict=True)]


_Labels = tuple[str, ...]


class _Alike(NamedTuple):
    """What requests say that are counted under the same labels, with the one upstream call each of them made."""

    rule: str
    tier: str
    task_kind: str
    team: str
    model_asked: str
    stream: bool
    status: int  # `_GOES_ON`: only the call is counted
    state: str
    error: str | None
    baseline_deployment: str | None
    provider: str
    model_called: str
    model_answered: str | None
    call_status: int | None
    failure: str | None
    usage_source: str
    is_unpriced: bool


_Said = tuple[str | int | None, ...]  # the same fields, in a tuple that is made faster
_Numbers = tuple[int | None, ...]

_GOES_ON = -1  # in place of a request's status: this was not its last call
_NO_CALL = Attempt(
    n=0, deployment="", provider="", model_called="", started_at_ms=0, state="unbilled", status=-1
)


class Metrics:
    """The gateway's metrics. `observe` is on the way of every request, `render` is for a scraper."""

    def __init__(self, names: Names, sources: Sources | None = None) -> None:
        self._names = names
        self._sources = sources or Sources()
        self._calls: dict[_Labels, _Calls] = {}
        self._sums: dict[str, dict[_Labels, _Sum]] = {name: {} for name in COUNTERS}
        self._spreads: dict[str, dict[_Labels, _Spread]] = {name: {} for name in HISTOGRAMS}
        self._waiting: dict[_Said, list[_Numbers]] = {}
        self._decisions: dict[tuple[str, str], list[float]] = {}  # seconds, by kind of task and rule
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collected(self._families))

    def configure(self, names: Names) -> None:
        """Another configuration is in force. What was counted stays."""
        self._add_all()
        self._names = names

    def observe(self, admitted: Admitted, closed: Closed, *, overhead_seconds: float | None = None) -> None:
        """The books of a request have closed."""
        try:
            (attempt,) = closed.attempts
        except ValueError:
            attempt = self._last_of(admitted, closed)
        said = (  # the fields of `_Alike` in their order
            admitted.rule,
            admitted.tier,
            admitted.task_kind,
            admitted.team,
            admitted.model_asked,
            admitted.stream,
            closed.status,
            closed.state,
            closed.error,
            closed.baseline_deployment,
            attempt.provider,
            attempt.model_called,
            attempt.model_answered,
            attempt.status,
            attempt.failure,
            attempt.usage_source,
            attempt.cost_pico_usd is None,
        )
        try:
            waiting = self._waiting[said]
        except KeyError:
            self._make_room()
            waiting = self._waiting[said] = []
        waiting.append(
            (
                closed.duration_ms,
                closed.first_byte_ms,
                closed.baseline_pico_usd,
                attempt.duration_ms,
                attempt.first_byte_ms,
                attempt.input_uncached,  # from here as in `BUCKETS`
                attempt.input_cached,
                attempt.cache_write_5m,
                attempt.cache_write_1h,
                attempt.input_audio,
                attempt.input_audio_cached,
                attempt.input_image,
                attempt.output_text,
                attempt.output_reasoning,
                attempt.output_audio,
                attempt.output_image,
                attempt.cost_input_uncached_pico_usd,  # from here as in `_COST_CLASSES`
                attempt.cost_input_cached_pico_usd,
                attempt.cost_cache_write_pico_usd,
                attempt.cost_output_pico_usd,
                attempt.cost_fees_pico_usd,
            )
        )
        if len(waiting) == _TOGETHER:
            self._add(said, waiting)
            waiting.clear()
        if overhead_seconds is not None:
            self._spread("faregate_gateway_overhead_seconds", ()).add((overhead_seconds,))

    def decided(self, *, task_kind: str, rule: str, seconds: float) -> None:
        """A decision was made: `rule` is a rule's name, or how else the choice was made."""
        try:
            waiting = self._decisions[task_kind, rule]
        except KeyError:
            self._make_room()
            waiting = self._decisions[task_kind, rule] = []
        waiting.append(seconds)
        if len(waiting) == _TOGETHER:
            self._add_decisions(task_kind, rule, waiting)
            waiting.clear()

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
        """Requests and decisions whose numbers still wait to be added up: a bounded number."""
        return sum(map(len, self._waiting.values())) + sum(map(len, self._decisions.values()))

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
            found = spreads.setdefault(labels, _Spread(_SCALES.get(name, _MS_SCALE)))
        return found

    def _make_room(self) -> None:
        """For one more kind of request or decision to wait."""
        if len(self._waiting) + len(self._decisions) >= _MOST_WAITING:
            self._add_all()

    def _last_of(self, admitted: Admitted, closed: Closed) -> Attempt:
        """The call that a request ended with, `_NO_CALL` if it made none; the calls before it are counted."""
        if not closed.attempts:
            return _NO_CALL
        for attempt, following in pairwise(closed.attempts):
            self._moved(attempt, following)
            self.observe(admitted, replace(closed, attempts=(attempt,), status=_GOES_ON))
        return closed.attempts[-1]

    def _add_all(self) -> None:
        """Add up everything that waits."""
        for said, waiting in self._waiting.items():
            if waiting:
                self._add(said, waiting)
        for (task_kind, rule), waiting in self._decisions.items():
            if waiting:
                self._add_decisions(task_kind, rule, waiting)
        self._waiting.clear()
        self._decisions.clear()

    def _add_decisions(self, task_kind: str, rule: str, seconds: Sequence[float]) -> None:
        kind = task_kind if task_kind in _TASK_KINDS else OTHER
        reason = "rule" if rule in self._names.rules else _reason(rule)
        route = rule if reason == "rule" else reason
        self._sum("faregate_route_decisions_total", (kind, route, reason)).amount += len(seconds)
        self._spread("faregate_route_decision_duration_seconds", ()).add(seconds)

    def _add(self, said: _Said, numbers: Sequence[_Numbers]) -> None:
        """Add up requests that are alike."""
        alike = _Alike._make(said)
        names = self._names
        route = alike.rule if alike.rule in names.rules else _reason(alike.rule)
        tier = _of(alike.tier, names.tiers) if alike.tier else "pinned"
        columns = list(zip(*numbers, strict=True))
        if alike.call_status == _NO_CALL.status:
            provider = response_model = OTHER
        else:
            provider = _of(alike.provider, names.providers)
            model = _of(alike.model_called, names.models)
            answered = alike.model_answered
            response_model = (
                model if answered is None or answered == alike.model_called else _of(answered, names.models)
            )
            what = (route, tier, provider, model, response_model, _of(alike.team, names.teams))
            self._add_calls(alike, what, columns)
        if alike.status != _GOES_ON:
            self._add_requests(alike, (route, tier, provider, response_model), columns)

    def _add_calls(self, alike: _Alike, labels: _Labels, columns: Sequence[_Numbers]) -> None:
        _, _, provider, model, response_model, _ = labels
        sums = self._calls.get(labels)
        if sums is None:
            if len(self._calls) >= _MOST_SERIES:
                labels = (OTHER,) * len(labels)
            sums = self._calls.setdefault(labels, _Calls())
        _, _, _, duration_ms, first_byte_ms, *amounts = columns
        sums.add(cast("Sequence[Sequence[int]]", amounts), is_unpriced=alike.is_unpriced)
        source = alike.usage_source if alike.usage_source in _SOURCES else OTHER
        sums.sources[source] = sums.sources.get(source, 0) + len(duration_ms)

        has_failed = alike.failure is not None or (alike.call_status or 200) >= 400
        error = _cause(alike.failure, alike.call_status) if has_failed else ""
        times = ("chat", provider, model, response_model, error)
        self._spread("gen_ai_client_operation_duration_seconds", times).add(_known(duration_ms))
        if told := _known(first_byte_ms):
            self._spread("gen_ai_client_operation_time_to_first_chunk_seconds", times).add(told)

    def _add_requests(self, alike: _Alike, ends: _Labels, columns: Sequence[_Numbers]) -> None:
        names = self._names
        route, tier, provider, response_model = ends
        task_kind = alike.task_kind if alike.task_kind in _TASK_KINDS else OTHER
        status_class = f"{alike.status // 100}xx" if 100 <= alike.status < 600 else OTHER
        outcome = alike.state if alike.state in _OUTCOMES else OTHER
        asked = _of(alike.model_asked, names.models, names.tiers)
        error = "" if alike.error is None else alike.error if alike.error in _ERRORS else OTHER
        times = ("chat", provider, asked, response_model, error)
        duration_ms, first_byte_ms, baseline_pico_usd, _, _, *amounts = columns

        requests = self._sum("faregate_requests_total", (route, tier, task_kind, status_class, outcome))
        requests.amount += len(duration_ms)
        self._spread("gen_ai_server_request_duration_seconds", times).add(_known(duration_ms))
        if told := _known(first_byte_ms):
            self._spread("gen_ai_server_time_to_first_token_seconds", times).add(told)
        if alike.stream:
            text, reasoning = (
                amounts[BUCKETS.index("output_text")],
                amounts[BUCKETS.index("output_reasoning")],
            )
            paces = _paces_ms(zip(duration_ms, first_byte_ms, text, reasoning, strict=True))
            if paces:
                self._spread("gen_ai_server_time_per_output_token_seconds", times).add(paces)
        if alike.baseline_deployment is not None and (costs := _known(baseline_pico_usd)):
            baseline = (_of(alike.baseline_deployment, names.deployments), "same_tokens")
            self._sum("faregate_counterfactual_cost_usd_total", baseline).amount += sum(costs)

    def _moved(self, before: Attempt, after: Attempt) -> None:
        known = self._names.deployments
        cause = _cause(before.failure, before.status)
        if before.deployment == after.deployment:
            self._count("faregate_retries_total", (_of(after.deployment, known), cause))
        else:
            self._count(
                "faregate_fallbacks_total",
                (_of(before.deployment, known), _of(after.deployment, known), cause),
            )

    def _families(self) -> Iterator[Metric]:
        self._add_all()
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
                histogram.add_metric(values, buckets=spread.buckets(), sum_value=spread.seconds())
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


def _cause(failure: str | None, status: int | None) -> str:
    if failure is not None and failure in _ERRORS:
        return failure
    return str(status) if status is not None and 400 <= status < 600 else OTHER


def _known(column: _Numbers) -> Sequence[int]:
    """Without those that were not told."""
    return (
        [number for number in column if number is not None]
        if None in column
        else cast("Sequence[int]", column)
    )


def _paces_ms(requests: Iterable[tuple[int | None, ...]]) -> list[float]:
    """Milliseconds for each output token after the first, from: duration, first byte, text and reasoning tokens."""
    found: list[float] = []
    for duration_ms, first_byte_ms, text, reasoning in requests:
        output = (text or 0) + (reasoning or 0)
        if duration_ms is not None and first_byte_ms is not None and output > 1:
            found.append(max(0, duration_ms - first_byte_ms) / (output - 1))
    return found


def _modality(bucket: str) -> str:
    return "audio" if "audio" in bucket else "image" if "image" in bucket else "text"

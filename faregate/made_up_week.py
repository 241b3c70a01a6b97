"""A made-up week of traffic, for `faregate demo`: so that every page has something to show.

Nothing in it happened. It is the same for the same seed and moment: five teams, eight applications, three
tiers and five deployments, over the seven days before `now`, with working hours and a weekend. There are
sessions whose prompts grow and are read from caches, an hour in which one provider refused, streams that
callers left, usage that nobody reported, and a deployment that had no price at first. Prices are the book's,
but for that one's; every sum is exact.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec

from ledger.entry import Admitted, Attempt, Closed, RequestState
from pricing.money import PicoUsd, rate_from_usd_per_mtok

REQUESTS = 6_000  # about so many, at a scale of 1
BASELINE = "terra"
DIGEST = "made-up"
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
UNPRICED_MS = 36 * 3_600_000  # the first day and a half of the week
REFUSED_FROM_MS = 4 * DAY_MS - 3_600_000  # the hour in which one provider refused
REFUSED_TO_MS = 4 * DAY_MS
MOST_TOKENS = 250_000  # of a prompt: below where the book has other prices
CACHE_LIVES_MS = 10 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A deployment: its prices, in pico-dollars a token, and its pace."""

    deployment: str
    provider: str
    model: str
    price_id: str  # the row of the price book; one deployment's price is made up
    input: PicoUsd
    input_cached: PicoUsd
    cache_write: PicoUsd | None = None  # None: it charges nothing for what it writes to its cache
    output: PicoUsd
    first_token_ms: float
    tokens_per_second: float
    reasons: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Who asks, how often, and what for."""

    team: str
    name: str
    share: float  # of all requests
    rule: str
    tier: str
    task_kind: str
    confidence: float
    because: tuple[str, ...]
    deployments: tuple[str, ...]  # the order planned
    turns: tuple[int, int]  # of a session: fewest, most
    system_tokens: int  # the part every prompt begins with
    turn_tokens: int  # what a turn adds, median
    output_tokens: int  # median
    stream: float = 0.0  # share
    json_output: bool = False
    has_tools: bool = False
    has_images: float = 0.0  # share
    nightly: bool = False  # a batch that runs at two in the morning
    features: tuple[str, ...] = ()


def _per_mtok(usd: str) -> PicoUsd:
    return rate_from_usd_per_mtok(Decimal(usd))


MODELS: Mapping[str, Model] = {
    one.deployment: one
    for one in (
        Model(
            deployment="terra",
            provider="openai",
            model="gpt-6.1-terra",
            price_id="book:openai/gpt-6.1-terra@2026-10-26",
            input=_per_mtok("1.00"),
            input_cached=_per_mtok("0.05"),
            cache_write=_per_mtok("1.25"),
            output=_per_mtok("5.00"),
            first_token_ms=900,
            tokens_per_second=70,
            reasons=True,
        ),
        Model(
            deployment="luna",
            provider="openai",
            model="gpt-6-luna",
            price_id="book:openai/gpt-6-luna@2026-09-22",
            input=_per_mtok("0.10"),
            input_cached=_per_mtok("0.01"),
            cache_write=_per_mtok("0.125"),
            output=_per_mtok("0.50"),
            first_token_ms=420,
            tokens_per_second=120,
        ),
        Model(
            deployment="mistral-medium",
            provider="mistral",
            model="mistral-medium-3.5",
            price_id="book:mistral/mistral-medium-3.5@2026-08-05",
            input=_per_mtok("1.50"),
            input_cached=_per_mtok("0.15"),
            output=_per_mtok("7.50"),
            first_token_ms=700,
            tokens_per_second=60,
        ),
        Model(
            deployment="mistral-small",
            provider="mistral",
            model="mistral-small-2603",
            price_id="book:mistral/mistral-small-2603@2026-08-05",
            input=_per_mtok("0.15"),
            input_cached=_per_mtok("0.015"),
            output=_per_mtok("0.60"),
            first_token_ms=300,
            tokens_per_second=150,
        ),
        Model(
            deployment="house-8b",
            provider="house",
            model="llama-3.1-8b-instruct",
            price_id="made-up:llama-3.1-8b-instruct@2026-01-01",
            input=_per_mtok("0.05"),
            input_cached=_per_mtok("0.01"),
            output=_per_mtok("0.08"),
            first_token_ms=120,
            tokens_per_second=180,
        ),
    )
}

_FAST, _STANDARD, _SMALL = (
    ("luna", "mistral-small"),
    ("terra", "mistral-medium"),
    ("house-8b", "mistral-small"),
)

APPLICATIONS: tuple[Application, ...] = (
    Application(
        team="search",
        name="site-search",
        share=0.20,
        rule="query rewriting",
        tier="small",
        task_kind="extraction",
        confidence=0.85,
        because=("asks for a schema",),
        deployments=_SMALL,
        turns=(1, 1),
        system_tokens=420,
        turn_tokens=60,
        output_tokens=40,
        json_output=True,
        features=("suggest", "rewrite"),
    ),
    Application(
        team="search",
        name="answers",
        share=0.12,
        rule="interactive chat",
        tier="fast",
        task_kind="chat",
        confidence=0.6,
        because=("nothing else fits", "a short prompt"),
        deployments=_FAST,
        turns=(1, 5),
        system_tokens=900,
        turn_tokens=350,
        output_tokens=220,
        stream=0.95,
    ),
    Application(
        team="support",
        name="tickets",
        share=0.18,
        rule="tickets",
        tier="fast",
        task_kind="summary",
        confidence=0.8,
        because=("asks for a summary",),
        deployments=_FAST,
        turns=(1, 3),
        system_tokens=1_100,
        turn_tokens=900,
        output_tokens=180,
        stream=0.3,
        features=("triage", "reply-draft"),
    ),
    Application(
        team="support",
        name="chat-widget",
        share=0.14,
        rule="interactive chat",
        tier="fast",
        task_kind="chat",
        confidence=0.5,
        because=("nothing else fits",),
        deployments=_FAST,
        turns=(2, 9),
        system_tokens=1_600,
        turn_tokens=140,
        output_tokens=130,
        stream=1.0,
        has_images=0.06,
    ),
    Application(
        team="billing",
        name="receipts",
        share=0.12,
        rule="receipts",
        tier="small",
        task_kind="extraction",
        confidence=0.85,
        because=("asks for a schema",),
        deployments=_SMALL,
        turns=(1, 1),
        system_tokens=800,
        turn_tokens=700,
        output_tokens=160,
        json_output=True,
        nightly=True,
    ),
    Application(
        team="engineering",
        name="code-review",
        share=0.08,
        rule="code",
        tier="standard",
        task_kind="code",
        confidence=0.75,
        because=("code between fences",),
        deployments=_STANDARD,
        turns=(1, 3),
        system_tokens=2_000,
        turn_tokens=3_500,
        output_tokens=600,
        stream=0.8,
    ),
    Application(
        team="engineering",
        name="coding-agent",
        share=0.12,
        rule="agents",
        tier="standard",
        task_kind="agent",
        confidence=0.95,
        because=("has tools", "tools have answered"),
        deployments=_STANDARD,
        turns=(6, 24),
        system_tokens=6_000,
        turn_tokens=1_400,
        output_tokens=320,
        stream=1.0,
        has_tools=True,
    ),
    Application(
        team="research",
        name="reports",
        share=0.04,
        rule="default",
        tier="standard",
        task_kind="long_context",
        confidence=0.8,
        because=("a very long prompt",),
        deployments=_STANDARD,
        turns=(1, 4),
        system_tokens=1_200,
        turn_tokens=24_000,
        output_tokens=1_500,
        stream=0.5,
    ),
)


def entries(seed: int, now: datetime, *, scale: float = 1.0) -> Iterator[tuple[Admitted, Closed]]:
    """The week before `now`, oldest first; the same for the same arguments.

    `scale` makes it larger or smaller. Every request was admitted and closed before `now`.
    """
    rng = random.Random(seed)
    start = now.astimezone(UTC) - timedelta(days=7)
    plans = [plan for one in APPLICATIONS for plan in _sessions(rng, one, start, scale)]
    plans.sort(key=lambda plan: plan.at_ms)
    start_ms = int(start.timestamp() * 1000)
    for number, plan in enumerate(plans, 1):
        made = _request(rng, plan, f"made-up-{number:06d}", start_ms)
        if made[1].closed_at_ms <= start_ms + WEEK_MS:
            yield made


# --- when somebody asks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One request of a session, before it is answered."""

    application: Application
    session: str
    user: str
    customer: str | None
    feature: str | None
    turn: int
    at_ms: int  # after the week's beginning
    input_tokens: int
    cacheable_tokens: int  # the prefix that came before, so recently that it may be cached


def busyness(moment: datetime) -> float:
    """How much is going on, 0 to 1: working hours, a dip at noon, quiet nights, a slow weekend."""
    hour = moment.hour + moment.minute / 60
    day = 0.06 + 0.94 * math.exp(-(((hour - 13.5) / 4.2) ** 2))
    noon = 1 - 0.25 * math.exp(-(((hour - 12.5) / 0.7) ** 2))
    return day * noon * (0.28 if moment.weekday() >= 5 else 1.0)


def _sessions(rng: random.Random, one: Application, start: datetime, scale: float) -> Iterator[_Turn]:
    wanted = round(REQUESTS * scale * one.share)
    made = number = 0
    while made < wanted:
        number += 1
        at_ms = _moment(rng, one, start)
        session = f"{one.name}-{number:05d}"
        user = f"user-{rng.randrange(400):03d}"
        customer = f"customer-{rng.randrange(12):02d}" if one.team == "support" else None
        feature = rng.choice(one.features) if one.features else None
        prompt = one.system_tokens
        seen = one.system_tokens if rng.random() < 0.75 else 0  # the system text is warm from somebody else
        for turn in range(1, rng.randint(*one.turns) + 1):
            if made >= wanted or at_ms >= WEEK_MS:
                break
            made += 1
            prompt = min(MOST_TOKENS, prompt + _about(rng, one.turn_tokens))
            yield _Turn(
                application=one,
                session=session,
                user=user,
                customer=customer,
                feature=feature,
                turn=turn,
                at_ms=at_ms,
                input_tokens=prompt,
                cacheable_tokens=seen,
            )
            pause = _about(rng, 8_000 if one.has_tools else 45_000)
            at_ms += pause
            seen = prompt if pause < CACHE_LIVES_MS else 0


def _moment(rng: random.Random, one: Application, start: datetime) -> int:
    """When a session begins, in milliseconds after the week's beginning."""
    while True:
        at_ms = rng.randrange(WEEK_MS)
        moment = start + timedelta(milliseconds=at_ms)
        if one.nightly:
            if moment.hour == 2 or rng.random() < 0.002:
                return at_ms
        elif rng.random() < busyness(moment):
            return at_ms


def _about(rng: random.Random, median: int) -> int:
    """Near the median, with a long tail; at least 1."""
    return max(1, round(median * rng.lognormvariate(0, 0.5)))


# --- what came of it


def _request(rng: random.Random, plan: _Turn, id_: str, start_ms: int) -> tuple[Admitted, Closed]:
    one = plan.application
    stream = rng.random() < one.stream
    limit = rng.choice((256, 512, 1_024, 2_048, None))
    first = MODELS[one.deployments[0]]
    at_ms = start_ms + plan.at_ms
    likely = _priced(first, plan.at_ms)
    worst = plan.input_tokens * first.input + (limit or 4_096) * first.output
    admitted = Admitted(
        id=id_,
        admitted_at_ms=at_ms,
        key_id=f"k-{one.name}",
        team=one.team,
        application=one.name,
        feature=plan.feature,
        customer=plan.customer,
        session=plan.session,
        user=plan.user,
        model_asked="auto",
        stream=stream,
        input_bytes=plan.input_tokens * 4,
        input_tokens_estimate=plan.input_tokens,
        max_output_tokens=limit,
        messages=2 * plan.turn,
        turn=plan.turn,
        has_tools=one.has_tools,
        has_images=rng.random() < one.has_images,
        json_output=one.json_output,
        task_kind=one.task_kind,
        confidence=one.confidence,
        classified_because=one.because,
        rule=one.rule,
        tier=one.tier,
        deployments=one.deployments,
        decided_because=(f'rule "{one.rule}"',) if one.rule != "default" else ("no rule matches",),
        config_digest=DIGEST,
        held_pico_usd=worst if likely else 0,
        interrupted_deployment=first.deployment,
        interrupted_provider=first.provider,
        interrupted_model=first.model,
        interrupted_price_id=first.price_id if likely else None,
        interrupted_pico_usd=plan.input_tokens * first.input if likely else None,
    )
    attempts, state, status, error = _attempts(rng, plan, at_ms, stream=stream, limit=limit)
    last = attempts[-1]
    closed_at_ms = last.started_at_ms + last.duration_ms
    costs = [attempt.cost_pico_usd for attempt in attempts]
    closed = Closed(
        id=id_,
        closed_at_ms=closed_at_ms,
        state=state,
        status=status,
        error=error,
        attempts=attempts,
        cost_pico_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        baseline_deployment=BASELINE,
        baseline_pico_usd=_at_baseline(last) if state != "failed" else 0,
        first_byte_ms=None if last.first_byte_ms is None else last.started_at_ms - at_ms + last.first_byte_ms,
        duration_ms=closed_at_ms - at_ms,
    )
    return admitted, closed


def _attempts(
    rng: random.Random, plan: _Turn, at_ms: int, *, stream: bool, limit: int | None
) -> tuple[tuple[Attempt, ...], RequestState, int, str | None]:
    """The calls made for one request, how it ended, the status the client got, and the code of its error."""
    one = plan.application
    chance = rng.random()
    if chance < 0.004:
        wrong = _refused(rng, MODELS[one.deployments[0]], 1, at_ms, status=400, failure=None)
        return (wrong,), "failed", 400, "invalid_value"
    made: list[Attempt] = []
    for n, name in enumerate(one.deployments, 1):
        model = MODELS[name]
        refusing = model.provider == "openai" and REFUSED_FROM_MS <= plan.at_ms < REFUSED_TO_MS
        if rng.random() < (0.6 if refusing else 0.012):
            status, failure = (
                (429, "upstream_rate_limited")
                if refusing
                else rng.choice(
                    ((429, "upstream_rate_limited"), (503, "upstream_error"), (None, "connect_refused"))
                )
            )
            made.append(_refused(rng, model, n, at_ms, status=status, failure=failure))
        elif stream and rng.random() < 0.003:
            made.append(_silent(plan, model, n, at_ms))
        else:
            left = stream and rng.random() < 0.02
            made.append(_answered(rng, plan, model, n, at_ms, stream=stream, limit=limit, left=left))
            return tuple(made), "cancelled" if left else "answered", 200, None
        at_ms = made[-1].started_at_ms + made[-1].duration_ms
    if made[-1].failure == "upstream_rate_limited":
        return tuple(made), "failed", 429, "upstream_rate_limited"
    return tuple(made), "failed", 502, "upstream_error"


def _refused(
    rng: random.Random,
    model: Model,
    n: int,
    at_ms: int,
    *,
    status: int | None,
    failure: str | None,
) -> Attempt:
    """A call that the provider answered with an error, or not at all: free."""
    duration = _about(rng, 90)
    return Attempt(
        n=n,
        deployment=model.deployment,
        provider=model.provider,
        model_called=model.model,
        started_at_ms=at_ms,
        status=status,
        state="unbilled",
        failure=failure,
        cost_pico_usd=0,
        flags=("http_error",) if status is not None else (),
        duration_ms=duration,
    )


def _silent(plan: _Turn, model: Model, n: int, at_ms: int) -> Attempt:
    """A call whose first token did not come in time: it may be billed for what it read."""
    return _charged(
        Attempt(
            n=n,
            deployment=model.deployment,
            provider=model.provider,
            model_called=model.model,
            started_at_ms=at_ms,
            status=200,
            state="estimated",
            failure="first_token_timeout",
            input_uncached=plan.input_tokens,
            usage_source="estimated",
            output_low=0,
            output_high=0,
            flags=("estimated_input", "upstream_cut"),
            duration_ms=8_000,
        ),
        model,
        plan.at_ms,
    )


def _answered(
    rng: random.Random,
    plan: _Turn,
    model: Model,
    n: int,
    at_ms: int,
    *,
    stream: bool,
    limit: int | None,
    left: bool,
) -> Attempt:
    """A call that was answered, to its end or until the client left."""
    one = plan.application
    cached = written = 0
    if n == 1:  # a fallback meets a cold cache
        cached = plan.cacheable_tokens // 128 * 128 if plan.cacheable_tokens >= 1_024 else 0
        cached = 0 if rng.random() < 0.08 else cached
    if model.cache_write is not None and plan.input_tokens >= 1_024:
        written = (plan.input_tokens - cached) // 2 // 128 * 128
    output = _about(rng, one.output_tokens)
    if limit is not None:
        output = min(output, limit)
    reasoning = round(output * rng.uniform(0.2, 1.2)) if model.reasons else 0
    source, flags = "provider", set[str]()
    if left:
        output = max(1, round(output * rng.random()))
        reasoning = 0
        source, flags = "estimated", {"client_abort", "estimated_input", "estimated_output"}
        cached = written = 0  # nobody told
    elif rng.random() < 0.006:
        source, flags = "estimated", {"estimated_input", "estimated_output"}
        cached = written = reasoning = 0
    speed = rng.lognormvariate(0, 0.25)
    first = model.first_token_ms * speed + plan.input_tokens / 40 + reasoning / model.tokens_per_second * 1e3
    duration = first + output / model.tokens_per_second * 1e3 / speed
    estimated = source == "estimated"
    return _charged(
        Attempt(
            n=n,
            deployment=model.deployment,
            provider=model.provider,
            model_called=model.model,
            model_answered=model.model,
            started_at_ms=at_ms,
            status=200,
            state="estimated" if estimated else "settled",
            input_uncached=plan.input_tokens - cached - written,
            input_cached=cached,
            cache_write_5m=written,
            output_text=output,
            output_reasoning=reasoning,
            usage_source=source,
            output_low=round(output * 0.8) if estimated else None,
            output_high=round(output * 1.25) if estimated else None,
            flags=tuple(sorted(flags)),
            first_byte_ms=round(first if stream else duration),
            duration_ms=round(duration),
        ),
        model,
        plan.at_ms,
    )


# --- what it cost


def _priced(model: Model, at_ms: int) -> bool:
    """Whether it had a price then, in milliseconds after the week's beginning."""
    return model.deployment != "house-8b" or at_ms >= UNPRICED_MS


def _charged(attempt: Attempt, model: Model, at_ms: int) -> Attempt:
    """The same attempt with its cost by class, or the flag that it has none."""
    if not _priced(model, at_ms):
        return msgspec.structs.replace(attempt, flags=tuple(sorted({*attempt.flags, "unpriced"})))
    uncached, cached, written, output = _by_class(attempt, model)
    return msgspec.structs.replace(
        attempt,
        price_id=model.price_id,
        priced_as=model.model,
        rate_set="base",
        cost_pico_usd=uncached + cached + written + output,
        cost_input_uncached_pico_usd=uncached,
        cost_input_cached_pico_usd=cached,
        cost_cache_write_pico_usd=written,
        cost_output_pico_usd=output,
    )


def _at_baseline(attempt: Attempt) -> int:
    """The same tokens at the baseline's price."""
    return sum(_by_class(attempt, MODELS[BASELINE]))


def _by_class(attempt: Attempt, model: Model) -> tuple[int, int, int, int]:
    """Pico-dollars of plain input, cached input, written input and output."""
    return (
        attempt.input_uncached * model.input,
        attempt.input_cached * model.input_cached,
        attempt.cache_write_5m * (model.input if model.cache_write is None else model.cache_write),
        (attempt.output_text + attempt.output_reasoning) * model.output,
    )

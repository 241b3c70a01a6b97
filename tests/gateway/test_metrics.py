"""Metrics: the right sums under the right names, and no more series than the configuration allows."""

import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import COUNTERS, GAUGES, HISTOGRAMS, SECONDS, Metrics, Names, Sources
from ledger.entry import Admitted, Attempt, Closed, RequestState
from pricing.usage import BUCKETS

NAMES = Names(
    rules=frozenset({"interactive chat"}),
    tiers=frozenset({"fast", "standard"}),
    teams=frozenset({"search"}),
    deployments=frozenset({"luna", "terra"}),
    providers=frozenset({"openai"}),
    models=frozenset({"gpt-5.6-luna", "gpt-5.6-terra"}),
    budgets=frozenset({"search, monthly"}),
    version="0.1.0",
    config_digest="abc",
    pricebook_version="2026-11-29",
)


def admitted(
    *,
    model: str = "fast",
    team: str = "search",
    rule: str = "interactive chat",
    tier: str = "fast",
    task_kind: str = "chat",
    stream: bool = False,
) -> Admitted:
    return Admitted(
        id="r",
        admitted_at_ms=0,
        key_id="k",
        team=team,
        model_asked=model,
        rule=rule,
        tier=tier,
        task_kind=task_kind,
        stream=stream,
    )


def attempt(n: int = 1, deployment: str = "luna", **fields: object) -> Attempt:
    defaults: dict[str, object] = {
        "n": n,
        "deployment": deployment,
        "provider": "openai",
        "model_called": f"gpt-5.6-{deployment}",
        "started_at_ms": 0,
        "state": "settled",
        "status": 200,
        "usage_source": "provider",
        "cost_pico_usd": 0,
    }
    return Attempt(**{**defaults, **fields})  # type: ignore[arg-type]


def closed(
    *attempts: Attempt,
    status: int = 200,
    state: RequestState = "answered",
    error: str | None = None,
    first_byte_ms: int | None = None,
    duration_ms: int = 1000,
    baseline: tuple[str, int] | None = None,
) -> Closed:
    return Closed(
        id="r",
        closed_at_ms=1000,
        state=state,
        status=status,
        error=error,
        attempts=attempts,
        first_byte_ms=first_byte_ms,
        duration_ms=duration_ms,
        baseline_deployment=baseline[0] if baseline else None,
        baseline_pico_usd=baseline[1] if baseline else None,
    )


Samples = dict[tuple[str, frozenset[str]], float]


def samples(metrics: Metrics) -> Samples:
    """Value by name and label values; no two labels of one sample here share a value."""
    return {
        (sample.name, frozenset(value for value in sample.labels.values() if value)): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def series(metrics: Metrics) -> dict[str, int]:
    """Number of label sets by metric name."""
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        sets = {
            tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le")) for sample in family.samples
        }
        found[family.name] = len(sets)
    return found


def labels(*values: str) -> frozenset[str]:
    return frozenset(values)


CALL = ("chat", "openai", "gpt-5.6-luna", "text")


def test_tokens_are_counted_by_class_and_by_the_standard_names() -> None:
    metrics = Metrics(NAMES)

    metrics.observe(
        admitted(),
        closed(
            attempt(
                input_uncached=100, input_cached=50, cache_write_5m=7, output_text=20, output_reasoning=30
            )
        ),
    )

    found = samples(metrics)
    where = ("interactive chat", "openai", "gpt-5.6-luna")
    tokens = {
        bucket: found["faregate_tokens_total", labels(*where, bucket)]
        for bucket in ("input_uncached", "input_cached", "cache_write_5m", "output_text", "output_reasoning")
    }
    assert list(tokens.values()) == [100, 50, 7, 20, 30]
    usage = {
        name: found[f"gen_ai_client_inference_usage_{name}_tokens_total", labels(*CALL)]
        for name in ("input", "output", "cache_read_input", "cache_write_input", "reasoning_output")
    }
    assert list(usage.values()) == [157, 50, 50, 7, 30]
    assert found["faregate_prefix_cache_hit_ratio", labels()] == 50 / 157


def test_audio_and_image_tokens_have_their_own_modality() -> None:
    metrics = Metrics(NAMES)

    metrics.observe(admitted(), closed(attempt(input_audio=5, input_audio_cached=2, output_image=9)))

    found, base = samples(metrics), CALL[:3]
    usage = "gen_ai_client_inference_usage_"
    assert found[f"{usage}input_tokens_total", labels(*base, "audio")] == 7
    assert found[f"{usage}cache_read_input_tokens_total", labels(*base, "audio")] == 2
    assert found[f"{usage}output_tokens_total", labels(*base, "image")] == 9


def test_cost_is_added_exactly_and_shown_in_dollars() -> None:
    metrics = Metrics(NAMES)

    for _ in range(1_000):
        metrics.observe(
            admitted(),
            closed(attempt(cost_pico_usd=3, cost_output_pico_usd=1, cost_fees_pico_usd=2)),
        )
    metrics.observe(admitted(), closed(attempt(cost_pico_usd=None)))

    found = samples(metrics)
    where = ("interactive chat", "fast", "openai", "gpt-5.6-luna", "search")
    assert found["faregate_cost_usd_total", labels(*where, "output")] == 1e-9
    assert found["faregate_cost_usd_total", labels(*where, "fees")] == 2e-9
    assert found["faregate_cost_unpriced_requests_total", labels("gpt-5.6-luna")] == 1
    assert found["faregate_usage_source_total", labels("gpt-5.6-luna", "provider")] == 1001


@pytest.mark.parametrize(
    ("status", "state", "status_class"),
    [(200, "answered", "2xx"), (429, "failed", "4xx"), (499, "cancelled", "4xx"), (0, "failed", "other")],
)
def test_requests_are_counted_by_how_they_ended(status: int, state: RequestState, status_class: str) -> None:
    metrics = Metrics(NAMES)

    metrics.observe(admitted(), closed(status=status, state=state))

    where = labels("interactive chat", "fast", "chat", status_class, state)
    assert samples(metrics)["faregate_requests_total", where] == 1


def test_fallbacks_and_retries_say_from_where_to_where_and_why() -> None:
    metrics = Metrics(NAMES)

    metrics.observe(
        admitted(),
        closed(
            attempt(1, failure="connect_refused", status=None, state="unbilled"),
            attempt(2, status=503, state="unbilled"),
            attempt(3, "terra"),
        ),
    )

    found = samples(metrics)
    assert found["faregate_retries_total", labels("luna", "connect_refused")] == 1
    assert found["faregate_fallbacks_total", labels("luna", "terra", "503")] == 1
    times = "gen_ai_client_operation_duration_seconds_count"
    assert found[times, labels("chat", "openai", "gpt-5.6-luna", "connect_refused")] == 1
    assert found[times, labels("chat", "openai", "gpt-5.6-terra")] == 1


def test_times_of_a_stream_are_those_its_client_saw() -> None:
    metrics = Metrics(NAMES)

    metrics.observe(
        admitted(stream=True),
        closed(attempt(output_text=11, first_byte_ms=100), first_byte_ms=250, duration_ms=1250),
        overhead_seconds=0.0002,
    )

    found = samples(metrics)
    where = labels("chat", "openai", "fast", "gpt-5.6-luna")
    assert found["gen_ai_server_request_duration_seconds_sum", where] == 1.25
    assert found["gen_ai_server_time_to_first_token_seconds_sum", where] == 0.25
    assert found["gen_ai_server_time_per_output_token_seconds_sum", where] == 0.1
    assert found["faregate_gateway_overhead_seconds_bucket", labels("0.00025")] == 1
    assert found["faregate_gateway_overhead_seconds_bucket", labels("0.0001")] == 0
    assert found["faregate_gateway_overhead_seconds_bucket", labels("+Inf")] == 1


def test_the_baseline_is_shown_with_its_method() -> None:
    metrics = Metrics(NAMES)

    metrics.observe(admitted(), closed(attempt(), baseline=("terra", 5_000_000_000)))

    found = samples(metrics)
    assert found["faregate_counterfactual_cost_usd_total", labels("terra", "same_tokens")] == 0.005


@pytest.mark.parametrize(
    ("rule", "route", "reason"),
    [
        ("interactive chat", "interactive chat", "rule"),
        ("pinned", "pinned", "pinned"),
        ("asked for by name", "asked for by name", "asked for by name"),
        ("made up", "other", "other"),
    ],
)
def test_decisions_say_how_they_were_made(rule: str, route: str, reason: str) -> None:
    metrics = Metrics(NAMES)

    metrics.decided(task_kind="code", rule=rule, seconds=0.00003)

    assert samples(metrics)["faregate_route_decisions_total", labels("code", route, reason)] == 1


def test_refusals_and_alerts_are_counted() -> None:
    metrics = Metrics(NAMES)

    metrics.refused("budget_exceeded", "search, monthly")
    metrics.alert("luna", "quota_gone")
    metrics.accounting_failed("pricing")

    found = samples(metrics)
    assert found["faregate_refusals_total", labels("budget_exceeded")] == 1
    assert found["faregate_budget_rejections_total", labels("search, monthly")] == 1
    assert found["faregate_alerts_total", labels("luna", "quota_gone")] == 1
    assert found["faregate_accounting_failures_total", labels("pricing")] == 1


def test_what_others_know_is_asked_for_when_it_is_read() -> None:
    metrics = Metrics(
        NAMES,
        Sources(
            budgets_left=lambda: {"search, monthly": 0.25, "gone": 1.0},
            ledger_lag_seconds=lambda: 3.5,
            ledger_write_failures=lambda: 2,
            degraded=lambda: {"redis": True, "invented": True},
        ),
    )

    found = samples(metrics)

    assert found["faregate_budget_remaining_ratio", labels("search, monthly")] == 0.25
    assert found["faregate_ledger_lag_seconds", labels()] == 3.5
    assert found["faregate_ledger_write_failures_total", labels()] == 2
    assert found["faregate_degraded", labels("redis")] == 1
    assert found["faregate_build_info", labels("0.1.0", "abc", "2026-11-29")] == 1
    assert ("faregate_degraded", labels("invented")) not in found


def test_one_build_is_shown_after_a_reload() -> None:
    metrics = Metrics(NAMES)
    metrics.configure(Names(version="0.1.0", config_digest="def"))

    assert [key for key in samples(metrics) if key[0] == "faregate_build_info"] == [
        ("faregate_build_info", labels("0.1.0", "def"))
    ]


def test_a_hundred_thousand_invented_names_add_one_series_to_a_metric() -> None:
    metrics, chance = Metrics(NAMES), random.Random(1)
    everything(metrics, "known")
    before = series(metrics)

    for n in range(20_000):
        everything(metrics, f"{chance.getrandbits(64):x}-{n}")

    after = series(metrics)
    text = metrics.render().decode()
    assert {name: after[name] - before[name] for name in after if after[name] > before[name] + 1} == {}
    assert not any(f"-{n}" in text for n in range(1000, 20_000))


def everything(metrics: Metrics, name: str) -> None:
    """All that can be told, with this name wherever a client or a provider could put one."""
    if name == "known":
        metrics.observe(admitted(), closed(attempt(first_byte_ms=1), first_byte_ms=1))
        return
    made_up = attempt(
        deployment=name,
        provider=name,
        model_called=name,
        model_answered=name,
        failure=name,
        usage_source=name,
        first_byte_ms=1,
    )
    metrics.observe(
        admitted(model=name, team=name, rule=name, tier=name, task_kind=name, stream=True),
        closed(
            made_up,
            made_up,
            status=len(name) * 1000,
            state=name,  # type: ignore[arg-type]
            error=name,
            first_byte_ms=1,
            baseline=(name, 1),
        ),
    )
    metrics.decided(task_kind=name, rule=name, seconds=0.1)
    metrics.refused(name, name)
    metrics.alert(name, name)
    metrics.accounting_failed(name)


def test_every_name_ends_in_its_unit_and_is_in_one_list() -> None:
    for name in COUNTERS:
        assert name.endswith("_total")
    for name in HISTOGRAMS:
        assert name.endswith("_seconds")
    shown = {family.name for family in text_string_to_metric_families(Metrics(NAMES).render().decode())}
    assert shown == {name.removesuffix("_total") for name in COUNTERS} | {*HISTOGRAMS, *GAUGES}


def test_requests_that_are_alike_are_counted_by_the_names_in_force() -> None:
    # given
    metrics = Metrics(NAMES)
    one = (admitted(rule="new rule"), closed(attempt(model_called="new model")))
    metrics.observe(*one)
    metrics.decided(task_kind="chat", rule="new rule", seconds=0.001)
    # when
    metrics.configure(
        Names(
            rules=frozenset({"new rule"}),
            tiers=NAMES.tiers,
            teams=NAMES.teams,
            providers=NAMES.providers,
            models=frozenset({"new model"}),
        )
    )
    metrics.observe(*one)
    metrics.decided(task_kind="chat", rule="new rule", seconds=0.001)
    # then
    found = samples(metrics)
    for rule in ("other", "new rule"):
        assert found["faregate_requests_total", labels(rule, "fast", "chat", "2xx", "answered")] == 1
    assert found["faregate_route_decisions_total", labels("chat", "other", "other")] == 1
    assert found["faregate_route_decisions_total", labels("chat", "new rule", "rule")] == 1
    assert found["faregate_usage_source_total", labels("other", "provider")] == 1
    assert found["faregate_usage_source_total", labels("new model", "provider")] == 1


def test_names_that_others_make_up_do_not_fill_the_memory() -> None:
    metrics = Metrics(NAMES)
    for number in range(11_000):
        metrics.observe(admitted(model=f"m{number}"), closed(attempt(model_answered=f"a{number}")))
    assert metrics.remembered <= 5000
    found = samples(metrics)
    assert (
        found["faregate_requests_total", labels("interactive chat", "fast", "chat", "2xx", "answered")]
        == 11_000
    )


COST_CLASSES = ("input_uncached", "input_cached", "cache_write", "output", "fees")


def test_every_label_has_the_word_that_belongs_to_it() -> None:
    # given a request of which no two words are the same
    metrics = Metrics(NAMES)
    answer = attempt(
        1,
        "luna",
        model_answered="gpt-5.6-terra",
        status=503,
        usage_source="mixed",
        first_byte_ms=20,
        duration_ms=60,
        cost_pico_usd=1,
        **{bucket: 1 + place for place, bucket in enumerate(BUCKETS)},
        **{f"cost_{name}_pico_usd": (1 + place) * 10**12 for place, name in enumerate(COST_CLASSES)},
    )
    # when
    metrics.observe(
        admitted(task_kind="code", tier="standard"),
        closed(
            answer,
            status=502,
            state="failed",
            error="upstream_error",
            first_byte_ms=40,
            duration_ms=80,
            baseline=("luna", 2 * 10**12),
        ),
    )
    # then
    lines = metrics.render().decode().splitlines()
    call = 'gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt-5.6-luna",'
    call += 'gen_ai_response_model="gpt-5.6-terra"'
    request = call.replace("gpt-5.6-luna", "fast")
    where = 'model="gpt-5.6-luna",provider="openai",route="interactive chat"'
    for line in (
        f'gen_ai_client_inference_usage_input_tokens_total{{{call},gen_ai_token_modality="text"}} 10.0',
        f'gen_ai_client_inference_usage_output_tokens_total{{{call},gen_ai_token_modality="image"}} 11.0',
        'faregate_requests_total{outcome="failed",route="interactive chat",status_class="5xx",'
        'task_kind="code",tier="standard"} 1.0',
        *(
            f'faregate_tokens_total{{{where},token_class="{bucket}"}} {1.0 + place}'
            for place, bucket in enumerate(BUCKETS)
        ),
        *(
            f'faregate_cost_usd_total{{{where},team="search",tier="standard",token_class="{name}"}} {1.0 + place}'
            for place, name in enumerate(COST_CLASSES)
        ),
        'faregate_usage_source_total{model="gpt-5.6-luna",source="mixed"} 1.0',
        'faregate_counterfactual_cost_usd_total{baseline="luna",method="same_tokens"} 2.0',
        f'gen_ai_client_operation_duration_seconds_sum{{error_type="503",{call}}} 0.06',
        f'gen_ai_client_operation_time_to_first_chunk_seconds_sum{{error_type="503",{call}}} 0.02',
        f'gen_ai_server_request_duration_seconds_sum{{error_type="upstream_error",{request}}} 0.08',
        f'gen_ai_server_time_to_first_token_seconds_sum{{error_type="upstream_error",{request}}} 0.04',
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("duration_ms", "first_bucket"),
    [(0, "0.01"), (10, "0.01"), (11, "0.02"), (81_919, "81.92"), (81_920, "81.92"), (81_921, "+Inf")],
)
def test_a_time_is_in_the_first_bucket_that_is_not_shorter(duration_ms: int, first_bucket: str) -> None:
    metrics = Metrics(NAMES)

    for _ in range(3):
        metrics.observe(admitted(), closed(attempt(), duration_ms=duration_ms))

    name, found = "gen_ai_server_request_duration_seconds_bucket", samples(metrics)
    where = ("chat", "openai", "fast", "gpt-5.6-luna")
    bounds = [*(repr(bound) for bound in SECONDS), "+Inf"]
    counts = [found[name, labels(*where, bound)] for bound in bounds]
    place = bounds.index(first_bucket)
    assert counts == [0] * place + [3] * (len(bounds) - place)


@pytest.mark.parametrize("number", [1, 127, 128, 129, 700])
def test_it_does_not_matter_when_requests_are_added_up(number: int) -> None:
    # given
    chance = random.Random(number)
    requests = [any_request(chance) for _ in range(number)]
    at_once, one_by_one = Metrics(NAMES), Metrics(NAMES)
    # when
    for who, end in requests:
        at_once.observe(who, end)
        one_by_one.observe(who, end)
        at_once.decided(task_kind=who.task_kind, rule=who.rule, seconds=0.0078125)
        one_by_one.decided(task_kind=who.task_kind, rule=who.rule, seconds=0.0078125)
        one_by_one.render()
    # then
    assert samples(at_once) == pytest.approx(samples(one_by_one), rel=1e-12)


def any_request(chance: random.Random) -> tuple[Admitted, Closed]:
    """One of few kinds, with numbers of its own; some of them are not told, some calls were not the first."""
    maybe = chance.choice
    attempts = [
        attempt(
            n,
            maybe(["luna", "terra"]),
            status=maybe([200, 503]),
            output_text=chance.randrange(3) * 7,
            cost_pico_usd=maybe([None, 9]),
            cost_output_pico_usd=maybe([0, chance.randrange(10**14)]),
            first_byte_ms=maybe([None, chance.randrange(9_000)]),
            duration_ms=chance.randrange(99_000),
        )
        for n in range(1, maybe([0, 1, 1, 1, 3]) + 1)
    ]
    return admitted(stream=maybe([True, False])), closed(
        *attempts,
        first_byte_ms=maybe([None, chance.randrange(9_000)]),
        duration_ms=chance.randrange(99_000),
        baseline=maybe([None, ("terra", chance.randrange(10**14))]),
    )


def test_every_request_is_counted_once_however_many_calls_it_made() -> None:
    metrics = Metrics(NAMES)
    calls = [attempt(1, status=503), attempt(2, status=503), attempt(3)]
    for number in range(4):
        metrics.observe(admitted(), closed(*calls[:number], baseline=("terra", 10**12)))

    found = samples(metrics)
    how = labels("interactive chat", "fast", "chat", "2xx", "answered")
    assert found["faregate_requests_total", how] == 4
    assert found["faregate_counterfactual_cost_usd_total", labels("terra", "same_tokens")] == 4
    assert found["faregate_usage_source_total", labels("gpt-5.6-luna", "provider")] == 6
    assert found["faregate_retries_total", labels("luna", "503")] == 3
    name = "gen_ai_server_request_duration_seconds_count"
    assert found[name, labels("chat", "other", "fast")] == 1
    assert found[name, labels("chat", "openai", "fast", "gpt-5.6-luna")] == 3


def test_what_waits_to_be_added_up_is_bounded() -> None:
    metrics, most = Metrics(NAMES), 0
    for number in range(20_000):
        metrics.observe(admitted(model=f"m{number % 300 if number % 2 else number}"), closed(attempt()))
        metrics.decided(task_kind="chat", rule=f"r{number % 50}", seconds=0.001)
        if number % 100 == 0:
            most = max(most, metrics.remembered)
    assert most <= 250 * 128

    alike = Metrics(NAMES)
    for _ in range(1_000):
        alike.observe(admitted(), closed(attempt()))
        alike.decided(task_kind="chat", rule="pinned", seconds=0.001)
        assert alike.remembered < 2 * 128

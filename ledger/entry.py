"""What the gateway hands to the ledger: `Admitted` when a request is let in, `Closed` when its books close.

Both are values of numbers and short names; no prompt, answer or secret is in them. They travel through
the spool as JSON, so every field is a plain type and every new field has a default. What has its default is
left out there: a default, once released, never changes.
Moments are milliseconds since 1970-01-01 UTC (`_at_ms`), durations `_ms`, money pico-dollars (`_pico_usd`).
"""

from typing import Literal

import msgspec

RequestState = Literal["answered", "failed", "cancelled"]
AttemptState = Literal["settled", "estimated", "unbilled"]


class Admitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A request that was let in: who, what (no text), and what was decided."""

    id: str  # unique over all processes and starts
    admitted_at_ms: int
    key_id: str
    team: str
    application: str | None = None
    feature: str | None = None
    customer: str | None = None
    session: str = ""
    task: str | None = None
    user: str | None = None
    endpoint: str = "chat"
    model_asked: str = ""
    stream: bool = False
    input_bytes: int = 0
    input_tokens_estimate: int = 0
    max_output_tokens: int | None = None
    choices: int = 1
    messages: int = 0
    turn: int = 1
    has_tools: bool = False
    has_images: bool = False
    json_output: bool = False
    task_kind: str = ""
    confidence: float = 0.0
    classified_because: tuple[str, ...] = ()
    rule: str = ""  # name of the rule, or how the choice was made: "asked for by name", "default", "pinned"
    tier: str = ""  # served tier; empty: pinned to a deployment
    deployments: tuple[str, ...] = ()  # the order planned
    decided_because: tuple[str, ...] = ()
    arm: str | None = None
    propensity: float = 1.0
    config_digest: str = ""
    held_pico_usd: int = 0
    # what a crash would leave unknown: the first attempt's input at its price
    interrupted_deployment: str = ""
    interrupted_provider: str = ""
    interrupted_model: str = ""
    interrupted_price_id: str | None = None
    interrupted_pico_usd: int | None = None  # None: unpriced


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One upstream call, as it ended."""

    n: int  # 1 for the first of a request
    deployment: str
    provider: str
    model_called: str
    model_answered: str | None = None
    answer_id: str | None = None  # the id the answer gave itself
    started_at_ms: int
    status: int | None = None  # the provider's HTTP status; None: it sent none
    state: AttemptState
    failure: str | None = None  # a word of gateway.upstream.FailureKind or a code of gateway.errors
    input_uncached: int = 0
    input_cached: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    input_audio: int = 0
    input_audio_cached: int = 0
    input_image: int = 0
    output_text: int = 0
    output_reasoning: int = 0
    output_audio: int = 0
    output_image: int = 0
    tools: dict[str, int] = {}
    extra: dict[str, int] = {}
    usage_source: str = "none"
    service_tier: str | None = None
    price_id: str | None = None
    priced_as: str | None = None
    rate_set: str | None = None
    cost_pico_usd: int | None = None  # None: unpriced
    cost_input_uncached_pico_usd: int = 0  # the cost by token class; they add up to cost_pico_usd
    cost_input_cached_pico_usd: int = 0
    cost_cache_write_pico_usd: int = 0
    cost_output_pico_usd: int = 0
    cost_fees_pico_usd: int = 0
    provider_cost_usd: str | None = None
    output_low: int | None = None  # range of an estimated output, in tokens
    output_high: int | None = None
    flags: tuple[str, ...] = ()  # sorted
    first_byte_ms: int | None = None
    duration_ms: int = 0


class Closed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The end of a request: what the client got, and every attempt that was made for it."""

    id: str
    closed_at_ms: int
    state: RequestState
    status: int  # the HTTP status the client got; 499: it left before it got one
    error: str | None = None  # a code of gateway.errors
    attempts: tuple[Attempt, ...] = ()
    cost_pico_usd: int | None = None  # sum over attempts; None: one of them is unpriced
    baseline_deployment: str | None = None
    baseline_pico_usd: int | None = None  # the same tokens at the baseline's price; None: unknown
    first_byte_ms: int | None = None  # until the client got its first byte
    duration_ms: int = 0

"""What one answer used: token counts in buckets that do not overlap.

Every token is in exactly one bucket, so a cost is a plain sum of count x rate and no token can be
billed twice. The buckets are those of the metering cases; nothing else in the program has others.
"""

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Literal

import msgspec

UsageSource = Literal["provider", "provider_partial", "mixed", "estimated", "none"]
"""Who counted: the provider; a provider's running count of a stream that ended early; both; we; nobody."""

OnWire = Literal["inside", "beside", "none"]
"""Whether a part (cached, reasoning) was counted inside its total on the wire, beside it, or not at all."""

End = Literal["complete", "client_abort", "upstream_cut"]
"""How an answer ended: whole; our client left and we stopped reading; the provider's connection broke."""

_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_WORDS: Mapping[str, str] = MappingProxyType({})

INPUT_BUCKETS = (
    "input_uncached",
    "input_cached",
    "cache_write_5m",
    "cache_write_1h",
    "input_audio",
    "input_audio_cached",
    "input_image",
)
OUTPUT_BUCKETS = ("output_text", "output_reasoning", "output_audio", "output_image")
BUCKETS = INPUT_BUCKETS + OUTPUT_BUCKETS
SIMPLE_BUCKETS = ("input_uncached", "input_cached", "output_text", "output_reasoning")


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Token counts of one answer. All counts are whole tokens, zero or more."""

    input_uncached: int = 0  # plain text input that no cache served
    input_cached: int = 0
    cache_write_5m: int = 0  # also a write whose lifetime nobody told us
    cache_write_1h: int = 0
    input_audio: int = 0  # not from the cache
    input_audio_cached: int = 0
    input_image: int = 0
    output_text: int = 0  # all output without a kind of its own
    output_reasoning: int = 0
    output_audio: int = 0
    output_image: int = 0
    tools: Mapping[str, int] = _NOTHING  # billable tool units, by tool
    extra: Mapping[str, int] = _NOTHING  # one provider's own; in neither total

    @property
    def is_simple(self) -> bool:
        """True if there is nothing beyond the `SIMPLE_BUCKETS`, as in most answers."""
        return not (
            self.cache_write_5m
            or self.cache_write_1h
            or self.input_audio
            or self.input_audio_cached
            or self.input_image
            or self.output_audio
            or self.output_image
            or self.tools
            or self.extra
        )

    @property
    def input_total(self) -> int:
        """All input tokens of every kind."""
        return (
            self.input_uncached
            + self.input_cached
            + self.cache_write_5m
            + self.cache_write_1h
            + self.input_audio
            + self.input_audio_cached
            + self.input_image
        )

    @property
    def output_total(self) -> int:
        """All output tokens of every kind."""
        return self.output_text + self.output_reasoning + self.output_audio + self.output_image


assert set(Usage.__struct_fields__) == {*BUCKETS, "tools", "extra"}


class Reading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a meter read from one answer: the counts, where they came from, and what pricing needs to know."""

    usage: Usage
    source: UsageSource
    flags: frozenset[str] = frozenset()
    cached_on_wire: OnWire = "none"
    reasoning_on_wire: OnWire = "none"
    model: str | None = None  # the name the answer gives; None: it names none
    answer_id: str | None = None  # the id the answer gives itself, on wires where somebody asks for it later
    service_tier: str | None = None  # the tier the answer names
    inference_geo: str | None = None  # the place the answer says it ran
    provider_cost_usd: Decimal | None = None  # the provider's own figure, exact
    fee_keys: Mapping[str, str] = _NO_WORDS
    """Scalar fields of the usage object, as text, for fees that depend on one (`per_request_by`)."""
    text_bytes: int = 0  # UTF-8 length of all text the model produced, as far as it was seen
    is_plain: bool = False
    """True only if `source` is "provider", `usage.is_simple` holds, and there is no flag, no place and no figure of
    the provider's. False says nothing."""

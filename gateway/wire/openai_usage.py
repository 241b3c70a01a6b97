"""Reads the usage objects of OpenAI-like answers: merges them, and sorts their counts into disjoint buckets.

All usage objects of one answer describe the same totals, so the larger number of each field counts and nothing is
added up. Providers disagree on whether cached and reasoning tokens are counted inside the prompt and completion
counts or beside them; the total shows which.
"""

from collections.abc import Mapping
from decimal import Context, Decimal, localcontext
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, cast

import msgspec

from gateway.wire.answer import Counted
from gateway.wire.counts import MAX_COUNT, count_in
from pricing.usage import OnWire, Usage

_PLAIN = frozenset({"prompt", "completion", "total", "cached", "written", "reasoning"})

_MOST_USD = 1_000_000  # a provider's own figure for one answer is never higher
_LEAST_EXPONENT = -40
_WIDE = Context(prec=100)
_MOST_SCALARS = 32
_LONGEST_SCALAR = 64
_TICKS_PER_USD = 10**10  # xAI: https://docs.x.ai, field cost_in_usd_ticks, read 2026-11-29

_TOP: Mapping[str, str] = MappingProxyType(
    {
        "prompt_tokens": "prompt",
        "input_tokens": "prompt",
        "completion_tokens": "completion",
        "output_tokens": "completion",
        "total_tokens": "total",
        "cached_tokens": "cached",  # Moonshot, Together
        "prompt_cache_hit_tokens": "cached",  # DeepSeek
        "cache_read_input_tokens": "cached",
        "cache_creation_input_tokens": "written",
        "reasoning_tokens": "reasoning_at_top",  # SGLang, Perplexity
        "num_sources_used": "source",  # xAI
        "num_search_queries": "search_query",  # Perplexity
        "citation_tokens": "citation",  # Perplexity
    }
)
_IN_INPUT_DETAILS: Mapping[str, str] = MappingProxyType(
    {
        "cached_tokens": "cached",
        "cache_tokens": "cached",  # Qianfan
        "cache_read_input_tokens": "cached",
        "cache_write_tokens": "written",
        "cache_creation_input_tokens": "written",  # Qwen
        "audio_tokens": "audio_in",
        "image_tokens": "image_in",
        "search_tokens": "search_tokens",  # Qianfan
    }
)
_IN_OUTPUT_DETAILS: Mapping[str, str] = MappingProxyType(
    {"reasoning_tokens": "reasoning", "audio_tokens": "audio_out", "image_tokens": "image_out"}
)
_IN_CACHED_DETAILS: Mapping[str, str] = MappingProxyType(
    {"audio_tokens": "cached_audio", "image_tokens": "cached_image"}
)
_IN_CACHE_CREATION: Mapping[str, str] = MappingProxyType(
    {"ephemeral_1h_input_tokens": "written_1h", "ephemeral_5m_input_tokens": "written_5m"}
)
_DETAILS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "prompt_tokens_details": _IN_INPUT_DETAILS,
        "input_tokens_details": _IN_INPUT_DETAILS,
        "completion_tokens_details": _IN_OUTPUT_DETAILS,
        "output_tokens_details": _IN_OUTPUT_DETAILS,
        "cached_tokens_details": _IN_CACHED_DETAILS,
        "cache_creation": _IN_CACHE_CREATION,
    }
)


_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class _PlainInput(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    cached_tokens: _Count | None = None
    audio_tokens: Literal[0] | None = None


class _PlainOutput(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    reasoning_tokens: _Count | None = None
    audio_tokens: Literal[0] | None = None
    accepted_prediction_tokens: _Count | None = None  # these are in the completion count already
    rejected_prediction_tokens: _Count | None = None


class PlainUsage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A usage object with OpenAI's own fields, all in order: of any other one `UsageMerge` makes the best."""

    prompt_tokens: _Count
    completion_tokens: _Count
    total_tokens: _Count
    prompt_tokens_details: _PlainInput | None = None
    completion_tokens_details: _PlainOutput | None = None


decode_plain_usage: Final = msgspec.json.Decoder(PlainUsage).decode
"""JSON -> PlainUsage. Raises msgspec.DecodeError where anything is unusual."""


class UsageMerge:
    """The usage objects of one answer, merged field by field. Its size does not grow with their number."""

    __slots__ = ("_costs", "_is_byok", "counts", "flags", "scalars")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.flags: set[str] = set()
        self.scalars: dict[str, str] = {}  # fields of the usage object that are words, not counts
        self._costs: dict[str, Decimal] = {}
        self._is_byok = False

    def take(self, usage: Mapping[str, Any]) -> bool:
        """Merge one more; True if it reports a prompt or a completion count."""
        counts = self.counts
        has_main = False
        for key, value in usage.items():
            name = _TOP.get(key)
            if name is not None:
                if type(value) is int and 0 <= value <= MAX_COUNT:
                    if value >= counts.get(name, 0):
                        counts[name] = value
                elif not self._count(name, value):
                    continue
                if name == "prompt" or name == "completion":
                    has_main = True
            elif type(value) is dict:
                self._nested(key, cast("Mapping[str, Any]", value))
            elif key == "cost" or key == "cost_in_usd_ticks":
                self._cost(key, value)
            elif isinstance(value, str):
                self._scalar(key, value)
            elif isinstance(value, bool):
                self._is_byok = self._is_byok or (value and key == "is_byok")
                self._scalar(key, "true" if value else "false")
        if "written_5m" in counts or "written_1h" in counts:
            split = counts.get("written_5m", 0) + counts.get("written_1h", 0)
            counts["written"] = max(counts.get("written", 0), split)
        return has_main

    def _nested(self, key: str, table: Mapping[str, Any]) -> None:
        names = _DETAILS.get(key)
        if names is not None:
            counts = self.counts
            for inner, value in table.items():
                name = names.get(inner)
                if name is not None:
                    if type(value) is int and 0 <= value <= MAX_COUNT:
                        # A zero says nothing here, but that reasoning is not to be looked for elsewhere.
                        if value > counts.get(name, -1 if name == "reasoning" else 0):
                            counts[name] = value
                    else:
                        self._count(name, value)
                elif isinstance(value, dict) and inner in ("cached_tokens_details", "cache_creation"):
                    self._nested(inner, cast("Mapping[str, Any]", value))
        elif key == "cost":
            self._cost("total_cost", table.get("total_cost"))
        elif key == "cost_details":
            self._cost("upstream_inference_cost", table.get("upstream_inference_cost"))

    def _count(self, name: str, value: object) -> bool:
        count = count_in(value, self.flags)
        if count is None:
            return False
        if count >= self.counts.get(name, 0):
            self.counts[name] = count
        return True

    def _cost(self, name: str, value: object) -> None:
        limit = _MOST_USD * (_TICKS_PER_USD if name == "cost_in_usd_ticks" else 1)
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            return
        if isinstance(value, Decimal):
            exponent = value.as_tuple().exponent
            if not isinstance(exponent, int) or exponent < _LEAST_EXPONENT:
                return
        if 0 <= value < limit:
            amount = Decimal(value)
            self._costs[name] = max(amount, self._costs.get(name, amount))

    def _scalar(self, key: str, text: str) -> None:
        is_short = len(key) <= _LONGEST_SCALAR and len(text) <= _LONGEST_SCALAR
        if is_short and (key in self.scalars or len(self.scalars) < _MOST_SCALARS):
            self.scalars[key] = text

    def provider_cost_usd(self, dialect: str) -> Decimal | None:
        """The provider's own figure in dollars; None: this dialect reports none, or this answer did not."""
        costs = self._costs
        if not costs:
            return None
        with localcontext(_WIDE):
            if dialect == "openrouter":
                cost = costs.get("cost")
                if cost is not None and self._is_byok:
                    cost += costs.get("upstream_inference_cost", Decimal(0))
                return cost
            if dialect == "xai":
                ticks = costs.get("cost_in_usd_ticks")
                return None if ticks is None else ticks / _TICKS_PER_USD
        return costs.get("total_cost") if dialect == "perplexity" else None

    def plainly(self, dialect: str) -> tuple[Usage, OnWire, OnWire] | None:
        """What `counted` says, quickly, of an answer that has nothing unusual; None: look more closely.

        The usage, then where cached and where reasoning tokens were on the wire. Plain is: both counts and their
        total, which is their sum, with no other parts than cached, written and reasoning tokens that fit.
        """
        counts = self.counts
        if self.flags or not _PLAIN.issuperset(counts) or dialect == "perplexity":
            return None
        get = counts.get
        prompt, completion = get("prompt", -1), get("completion", -1)
        cached, written, thought = get("cached", 0), get("written", 0), get("reasoning", 0)
        uncached, text = prompt - cached - written, completion - thought
        if uncached < 0 or text < 0 or get("total") != prompt + completion or completion < 0:
            return None
        usage = Usage(
            input_uncached=uncached,
            input_cached=cached,
            cache_write_5m=written,
            output_text=text,
            output_reasoning=thought,
        )
        return usage, "inside" if cached or written else "none", "inside" if thought else "none"

    def counted(self, dialect: str) -> Counted:
        """The merged counts in disjoint buckets."""
        counts = self.counts
        get = counts.get
        prompt, completion, total = get("prompt"), get("completion"), get("total")
        tools, extra = _tools(counts)
        flags: set[str] = set()
        cached, written = get("cached", 0), get("written", 0)
        thought = get("reasoning", get("reasoning_at_top", 0))

        cached_on_wire: OnWire = "none"
        given: dict[str, int] | None = None
        input_total = 0
        if prompt is not None:
            if cached or written:
                cached_on_wire = "inside"
                if total is not None and completion is not None:
                    plain = prompt + completion
                    beside = plain + cached + written
                    if total in (beside, beside + thought) and total not in (plain, plain + thought):
                        cached_on_wire = "beside"
            given, clamped = _input(counts, prompt, cached, written, beside=cached_on_wire == "beside")
            if clamped:
                flags.add("clamped")
            input_total = sum(given.values())

        reasoning_on_wire: OnWire = "none"
        made: dict[str, int] | None = None
        if completion is not None:
            known_input = None if prompt is None else input_total
            over = None if total is None or known_input is None else total - known_input - completion
            if dialect in GEMINI and over is not None and over > 0:
                thought = over
            if thought:
                reasoning_on_wire = _reasoning_place(
                    dialect, thought, completion, over, has_total=total is not None
                )
            made, clamped = _output(counts, completion, thought, beside=reasoning_on_wire == "beside")
            if clamped:
                flags.add("clamped")

        output_total = None if made is None else sum(made.values())
        is_checked = total is not None and dialect != "perplexity" and "clamped" not in flags
        if (
            is_checked
            and prompt is not None
            and output_total is not None
            and total != input_total + output_total
        ):
            flags.add("totals_mismatch")
        return Counted(
            input=given,
            output=made,
            cached_on_wire=cached_on_wire,
            reasoning_on_wire=reasoning_on_wire,
            tools=tools,
            extra=extra,
            flags=frozenset(flags),
        )


GEMINI = frozenset({"gemini", "gemini-openai"})
"""Names for Gemini's OpenAI endpoint, whose total may hold thinking that nothing names."""


def _tools(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    tools = {name: counts[name] for name in ("source", "search_query") if counts.get(name)}
    if counts.get("search_tokens"):
        tools["web_search"] = 1
    extra = {"citation": counts["citation"]} if counts.get("citation") else {}
    return tools, extra


def _input(
    counts: Mapping[str, int], prompt: int, cached: int, written: int, *, beside: bool
) -> tuple[dict[str, int], bool]:
    """The input buckets, and whether a part had to be cut to fit."""
    left, clamped = prompt, False

    def part(wanted: int) -> int:
        nonlocal left, clamped
        got = min(wanted, left)
        clamped = clamped or got < wanted
        left -= got
        return got

    if not beside:
        cached = part(cached)
        written = part(written)
    written_1h = min(counts.get("written_1h", 0), written)
    cached_audio = min(counts.get("cached_audio", 0), cached)
    audio = part(max(0, counts.get("audio_in", 0) - cached_audio))
    image = part(
        max(0, counts.get("image_in", 0) - min(counts.get("cached_image", 0), cached - cached_audio))
    )
    return {
        "input_uncached": left,
        "input_cached": cached - cached_audio,
        "cache_write_5m": written - written_1h,
        "cache_write_1h": written_1h,
        "input_audio": audio,
        "input_audio_cached": cached_audio,
        "input_image": image,
    }, clamped


def _reasoning_place(
    dialect: str, thought: int, completion: int, over: int | None, *, has_total: bool
) -> OnWire:
    """`over`: what the total has over input and completion; None: that is not known."""
    if dialect == "perplexity" or over == thought:
        return "beside"
    if over == 0:
        return "inside"
    if thought > completion or (dialect == "xai" and not has_total):
        return "beside"
    return "inside"


def _output(
    counts: Mapping[str, int], completion: int, thought: int, *, beside: bool
) -> tuple[dict[str, int], bool]:
    """The output buckets, and whether a part had to be cut to fit."""
    left, clamped = completion, False

    def part(wanted: int) -> int:
        nonlocal left, clamped
        got = min(wanted, left)
        clamped = clamped or got < wanted
        left -= got
        return got

    if not beside:
        thought = part(thought)
    audio = part(counts.get("audio_out", 0))
    image = part(counts.get("image_out", 0))
    return {
        "output_text": left,
        "output_reasoning": thought,
        "output_audio": audio,
        "output_image": image,
    }, clamped

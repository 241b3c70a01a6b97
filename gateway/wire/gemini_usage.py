"""Reads the usage objects of Gemini's answers: merges them, and sorts their counts into disjoint buckets.

`cachedContentTokenCount` is inside `promptTokenCount`, `toolUsePromptTokenCount` is input beside it, and the total is
the sum of prompt, tool prompt, candidates and thoughts
(https://docs.cloud.google.com/python/docs/reference/aiplatform/latest, UsageMetadata, read 2026-12-01). Older answers
counted the thoughts inside the candidates; their total shows it. Audio and images are told apart in lists of counts by
modality; video and documents have no price of their own and stay with the text.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from gateway.wire.answer import Counted
from gateway.wire.counts import MAX_COUNT, count_in
from gateway.wire.provider_words import table_in
from pricing.tokens import Counter
from pricing.usage import OnWire

_TOP: Final[Mapping[str, str]] = {
    "promptTokenCount": "prompt",
    "candidatesTokenCount": "candidates",
    "totalTokenCount": "total",
    "cachedContentTokenCount": "cached",
    "toolUsePromptTokenCount": "tool_prompt",
    "thoughtsTokenCount": "thoughts",
}
_MAIN: Final = frozenset({"prompt", "candidates", "thoughts"})
_DETAILS: Final[Mapping[str, str]] = {
    "promptTokensDetails": "prompt",
    "candidatesTokensDetails": "candidates",
    "cacheTokensDetails": "cached",
    "toolUsePromptTokensDetails": "tool_prompt",
}
_KINDS: Final[Mapping[object, str]] = {"AUDIO": "audio", "IMAGE": "image"}
_MOST_DETAILS = 64
_CACHE_IS_TOLD: Final = "cached_told"
# Vertex names the tier by the quota that a request used (same page, TrafficType).
_TIERS_OF_TRAFFIC: Final[Mapping[str, str]] = {
    "ON_DEMAND": "standard",
    "ON_DEMAND_FLEX": "flex",
    "ON_DEMAND_PRIORITY": "priority",
    "PROVISIONED_THROUGHPUT": "provisioned_throughput",
}
TIER_KEYS: Final = frozenset({"serviceTier", "trafficType"})
"""Members of a usage object that are no counts and do not change within an answer."""


class UsageMerge:
    """The usage objects of one answer, merged field by field. Its size does not grow with their number."""

    __slots__ = ("counts", "flags", "service_tier")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.flags: set[str] = set()
        self.service_tier: str | None = None

    def take(self, usage: Mapping[str, Any]) -> bool:
        """Merge one more; True if it reports a prompt, a candidates or a thoughts count."""
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
                if name in _MAIN:
                    has_main = True
            elif key in _DETAILS:
                if isinstance(value, list):
                    self._details(_DETAILS[key], cast("list[object]", value))
            elif key in TIER_KEYS:
                self._tier(usage)
        return has_main

    @property
    def has_main(self) -> bool:
        """One of the counts that everything else hangs on was reported."""
        return not _MAIN.isdisjoint(self.counts)

    def _details(self, of: str, details: list[object]) -> None:
        sums: dict[str, int] = {}
        for detail in details[:_MOST_DETAILS]:
            table = table_in(detail)
            modality = table.get("modality")
            kind = _KINDS.get(modality) if isinstance(modality, str) else None
            if kind is not None:
                count = count_in(table.get("tokenCount"), self.flags)
                if count is not None:
                    sums[kind] = sums.get(kind, 0) + count
        if of == "cached" and details:
            self.counts[_CACHE_IS_TOLD] = 1
        for kind, count in sums.items():
            name = f"{of}_{kind}"
            self.counts[name] = max(count, self.counts.get(name, 0))

    def _count(self, name: str, value: object) -> bool:
        count = count_in(value, self.flags)
        if count is None:
            return False
        self.counts[name] = max(count, self.counts.get(name, 0))
        return True

    def _tier(self, usage: Mapping[str, Any]) -> None:
        told, traffic = usage.get("serviceTier"), usage.get("trafficType")
        if isinstance(told, str):
            tier = told.lower().removeprefix("service_tier_")
            if tier and tier != "unspecified":
                self.service_tier = tier
        elif isinstance(traffic, str) and traffic in _TIERS_OF_TRAFFIC:
            self.service_tier = _TIERS_OF_TRAFFIC[traffic]

    def counted(
        self, *, answer_bytes: int, text_bytes: int, tools: Mapping[str, int], counter: Counter
    ) -> Counted:
        """The merged counts in disjoint buckets.

        `answer_bytes` is the length of the text without thoughts, `text_bytes` with them. Where the candidates are
        not counted and there is text that must have been some, only `counter` knows how many.
        """
        counts = self.counts
        get = counts.get
        prompt, candidates, total = get("prompt"), get("candidates"), get("total")
        tool_prompt, thoughts = get("tool_prompt", 0), get("thoughts", 0)
        flags: set[str] = set()

        given: dict[str, int] | None = None
        if prompt is not None:
            given, clamped = _input(counts, prompt, tool_prompt)
            if clamped:
                flags.add("clamped")

        # A count of zero is left out on this wire: a prompt that was blocked has no candidates to count, an answer
        # cut off while it thought has thoughts only.
        is_estimated = False
        if candidates is None:
            if not thoughts and not text_bytes and prompt is not None:
                candidates = 0
            elif "thoughts" in counts:
                candidates = counter(answer_bytes) if answer_bytes else 0
                is_estimated = answer_bytes > 0
                if is_estimated:
                    flags.add("estimated_output")

        reasoning_on_wire: OnWire = "none"
        made: dict[str, int] | None = None
        if candidates is not None:
            if thoughts:
                is_inside = (
                    prompt is not None
                    and "candidates" in counts
                    and total == prompt + tool_prompt + candidates
                )
                reasoning_on_wire = "inside" if is_inside else "beside"
            made, clamped = _output(counts, candidates, thoughts, beside=reasoning_on_wire == "beside")
            if clamped:
                flags.add("clamped")

        if (
            total is not None
            and given is not None
            and made is not None
            and not is_estimated
            and "clamped" not in flags
            and total != sum(given.values()) + sum(made.values())
        ):
            flags.add("totals_mismatch")
        return Counted(
            input=given,
            output=made,
            cached_on_wire="inside" if get("cached") and prompt is not None else "none",
            reasoning_on_wire=reasoning_on_wire,
            tools=tools,
            flags=frozenset(flags),
        )


def _input(counts: Mapping[str, int], prompt: int, tool_prompt: int) -> tuple[dict[str, int], bool]:
    """The input buckets, and whether a part had to be cut to fit."""
    get = counts.get
    left, clamped = 0, False

    def part(wanted: int) -> int:
        nonlocal left, clamped
        got = min(wanted, left)
        clamped = clamped or got < wanted
        left -= got
        return got

    left = prompt
    cached = part(get("cached", 0))
    fresh = left
    audio, image = get("prompt_audio", 0), get("prompt_image", 0)
    if _CACHE_IS_TOLD in counts:
        left = cached
        cached_audio = part(get("cached_audio", 0))
        cached_image = part(get("cached_image", 0))
    else:  # then at least what does not fit into the part that was not cached
        cached_audio = min(max(0, audio - fresh), cached)
        cached_image = min(max(0, image - max(0, fresh - audio)), cached - cached_audio)
    left = fresh
    fresh_audio = part(max(0, audio - cached_audio))
    fresh_image = part(max(0, image - cached_image))
    text = left
    left = tool_prompt
    tool_audio = part(get("tool_prompt_audio", 0))
    tool_image = part(get("tool_prompt_image", 0))
    return {
        "input_uncached": text + left,
        "input_cached": cached - cached_audio,
        "input_audio": fresh_audio + tool_audio,
        "input_audio_cached": cached_audio,
        "input_image": fresh_image + tool_image,
    }, clamped


def _output(
    counts: Mapping[str, int], candidates: int, thoughts: int, *, beside: bool
) -> tuple[dict[str, int], bool]:
    """The output buckets, and whether a part had to be cut to fit."""
    left, clamped = candidates, False

    def part(wanted: int) -> int:
        nonlocal left, clamped
        got = min(wanted, left)
        clamped = clamped or got < wanted
        left -= got
        return got

    if not beside:
        thoughts = part(thoughts)
    audio = part(counts.get("candidates_audio", 0))
    image = part(counts.get("candidates_image", 0))
    return {
        "output_text": left,
        "output_reasoning": thoughts,
        "output_audio": audio,
        "output_image": image,
    }, clamped

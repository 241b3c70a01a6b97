"""Gemini's counts in disjoint buckets."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.answer import Counted
from gateway.wire.gemini_usage import UsageMerge
from pricing.tokens import quarter_of_bytes

SHORT = {
    "prompt": "promptTokenCount",
    "candidates": "candidatesTokenCount",
    "total": "totalTokenCount",
    "cached": "cachedContentTokenCount",
    "tool": "toolUsePromptTokenCount",
    "thoughts": "thoughtsTokenCount",
    "in_": "promptTokensDetails",
    "of_cache": "cacheTokensDetails",
    "out": "candidatesTokensDetails",
    "of_tools": "toolUsePromptTokensDetails",
}


def usage(**counts: Any) -> dict[str, Any]:
    """A usage object; details are given as `{"AUDIO": 3}`."""
    return {
        SHORT[name]: [
            {"modality": kind, "tokenCount": count}
            for kind, count in cast("dict[str, object]", value).items()
        ]
        if isinstance(value, dict)
        else value
        for name, value in counts.items()
    }


def counted(*tables: dict[str, Any], answer: int = 0, thought: int = 0) -> Counted:
    merge = UsageMerge()
    for table in tables:
        merge.take(table)
    return merge.counted(answer_bytes=answer, text_bytes=answer + thought, tools={}, counter=quarter_of_bytes)


def buckets(side: Any) -> dict[str, int] | None:
    """Without the zeros."""
    return None if side is None else {name: count for name, count in side.items() if count}


NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("counts", "given", "made", "flags"),
    [
        # An implicit cache: nothing but the count of what came from it.
        (
            {"prompt": 3000, "candidates": 10, "cached": 2048, "total": 3010},
            {"input_uncached": 952, "input_cached": 2048},
            {"output_text": 10},
            NONE,
        ),
        # All that is in the prompt came from the cache, and tools brought more.
        (
            {"prompt": 60, "cached": 60, "tool": 40, "candidates": 5, "total": 105},
            {"input_uncached": 40, "input_cached": 60},
            {"output_text": 5},
            NONE,
        ),
        # Cached is inside the prompt and never inside what tools brought.
        (
            {"prompt": 60, "cached": 70, "tool": 40, "candidates": 5, "total": 105},
            {"input_uncached": 40, "input_cached": 60},
            {"output_text": 5},
            {"clamped"},
        ),
        # Every modality at once: video and documents stay with the text.
        (
            {
                "prompt": 1000,
                "candidates": 5,
                "total": 1005,
                "in_": {"TEXT": 100, "AUDIO": 200, "IMAGE": 300, "VIDEO": 250, "DOCUMENT": 150},
            },
            {"input_uncached": 500, "input_audio": 200, "input_image": 300},
            {"output_text": 5},
            NONE,
        ),
        (
            {
                "prompt": 1000,
                "cached": 400,
                "candidates": 5,
                "in_": {"TEXT": 100, "AUDIO": 300, "IMAGE": 300, "VIDEO": 300},
                "of_cache": {"AUDIO": 100, "IMAGE": 200, "VIDEO": 100},
            },
            {
                "input_uncached": 300,
                "input_cached": 300,
                "input_audio": 200,
                "input_audio_cached": 100,
                "input_image": 100,
            },
            {"output_text": 5},
            NONE,
        ),
        # What the cached part was is not told, and there is room for all the audio outside it.
        (
            {"prompt": 1000, "cached": 400, "candidates": 5, "in_": {"TEXT": 500, "AUDIO": 500}},
            {"input_uncached": 100, "input_cached": 400, "input_audio": 500},
            {"output_text": 5},
            NONE,
        ),
        # It is not told, and 300 of the audio can have been nowhere else.
        (
            {"prompt": 1000, "cached": 400, "candidates": 5, "in_": {"TEXT": 100, "AUDIO": 900}},
            {"input_cached": 100, "input_audio": 600, "input_audio_cached": 300},
            {"output_text": 5},
            NONE,
        ),
        (
            {"prompt": 1000, "cached": 400, "candidates": 5, "in_": {"TEXT": 100, "IMAGE": 900}},
            {"input_cached": 400, "input_image": 600},
            {"output_text": 5},
            NONE,
        ),
        # It is told, and cannot be.
        (
            {
                "prompt": 1000,
                "cached": 400,
                "candidates": 5,
                "in_": {"AUDIO": 900},
                "of_cache": {"AUDIO": 500},
            },
            {"input_uncached": 100, "input_audio": 500, "input_audio_cached": 400},
            {"output_text": 5},
            {"clamped"},
        ),
        (
            {"prompt": 100, "candidates": 5, "in_": {"AUDIO": 130}},
            {"input_audio": 100},
            {"output_text": 5},
            {"clamped"},
        ),
        # Audio and images that tools brought are input of their kind.
        (
            {"prompt": 10, "tool": 90, "candidates": 5, "of_tools": {"IMAGE": 60, "TEXT": 20, "AUDIO": 10}},
            {"input_uncached": 30, "input_audio": 10, "input_image": 60},
            {"output_text": 5},
            NONE,
        ),
        (
            {"prompt": 10, "candidates": 500, "total": 510, "out": {"AUDIO": 480}},
            {"input_uncached": 10},
            {"output_text": 20, "output_audio": 480},
            NONE,
        ),
        (
            {"prompt": 10, "candidates": 500, "out": {"IMAGE": 258, "VIDEO": 100, "TEXT": 142}},
            {"input_uncached": 10},
            {"output_text": 242, "output_image": 258},
            NONE,
        ),
        (
            {"prompt": 10, "candidates": 1000, "out": {"IMAGE": 1290}},
            {"input_uncached": 10},
            {"output_image": 1000},
            {"clamped"},
        ),
        # The thoughts beside images, and inside what was counted with them.
        (
            {"prompt": 10, "candidates": 1300, "thoughts": 99, "total": 1409, "out": {"IMAGE": 1290}},
            {"input_uncached": 10},
            {"output_text": 10, "output_image": 1290, "output_reasoning": 99},
            NONE,
        ),
        (
            {"prompt": 10, "candidates": 1399, "thoughts": 99, "total": 1409, "out": {"IMAGE": 1290}},
            {"input_uncached": 10},
            {"output_text": 10, "output_image": 1290, "output_reasoning": 99},
            NONE,
        ),
        # The total decides with what tools brought; without a total the thoughts are beside.
        (
            {"prompt": 10, "tool": 40, "candidates": 50, "thoughts": 20, "total": 100},
            {"input_uncached": 50},
            {"output_text": 30, "output_reasoning": 20},
            NONE,
        ),
        (
            {"prompt": 10, "candidates": 50, "thoughts": 20},
            {"input_uncached": 10},
            {"output_text": 50, "output_reasoning": 20},
            NONE,
        ),
        (
            {"prompt": 10, "candidates": 5, "thoughts": 20, "total": 15},
            {"input_uncached": 10},
            {"output_reasoning": 5},
            {"clamped"},
        ),
        # A total that nothing explains: the parts stand, and it is flagged, as on every wire.
        (
            {"prompt": 10, "candidates": 5, "total": 99},
            {"input_uncached": 10},
            {"output_text": 5},
            {"totals_mismatch"},
        ),
        (
            {"prompt": 10, "candidates": 5, "thoughts": 7, "total": 23},
            {"input_uncached": 10},
            {"output_text": 5, "output_reasoning": 7},
            {"totals_mismatch"},
        ),
        ({"prompt": 10, "candidates": 5}, {"input_uncached": 10}, {"output_text": 5}, NONE),
        ({"prompt": 10, "candidates": 5, "total": None}, {"input_uncached": 10}, {"output_text": 5}, NONE),
        # Zeros are left out on this wire.
        ({"prompt": 52, "total": 52}, {"input_uncached": 52}, dict[str, int](), NONE),
        ({"prompt": 52, "candidates": None, "total": 52}, {"input_uncached": 52}, dict[str, int](), NONE),
        (
            {"prompt": 78, "thoughts": 256, "total": 334},
            {"input_uncached": 78},
            {"output_reasoning": 256},
            NONE,
        ),
        ({"candidates": 5, "total": 15}, None, {"output_text": 5}, NONE),
        ({"total": 15}, None, None, NONE),
    ],
)
def test_every_token_is_in_one_bucket(
    counts: dict[str, Any], given: dict[str, int] | None, made: dict[str, int] | None, flags: set[str]
) -> None:
    got = counted(usage(**counts))
    assert (buckets(got.input), buckets(got.output), got.flags) == (given, made, flags)


@pytest.mark.parametrize(
    ("counts", "cached", "reasoning"),
    [
        ({"prompt": 10, "candidates": 5}, "none", "none"),
        ({"prompt": 10, "candidates": 5, "cached": 0, "thoughts": 0}, "none", "none"),
        ({"prompt": 10, "candidates": 5, "cached": 4, "thoughts": 3}, "inside", "beside"),
        ({"prompt": 10, "candidates": 5, "thoughts": 3, "total": 18}, "none", "beside"),
        ({"prompt": 10, "candidates": 5, "thoughts": 3, "total": 15}, "none", "inside"),
        ({"prompt": 10, "thoughts": 3, "total": 13}, "none", "beside"),
    ],
)
def test_where_a_part_was_counted_is_said(counts: dict[str, Any], cached: str, reasoning: str) -> None:
    got = counted(usage(**counts))
    assert (got.cached_on_wire, got.reasoning_on_wire) == (cached, reasoning)


def test_candidates_that_are_not_counted_are_no_zero_if_there_is_their_text() -> None:
    # Streams of older models say no candidates before the last chunk (google-gemini-php/client#72).
    got = counted(usage(prompt=2, total=2), answer=40)
    assert (buckets(got.input), got.output) == ({"input_uncached": 2}, None)
    # Thoughts that are counted stay what they are; only the text beside them is estimated.
    got = counted(usage(prompt=2, thoughts=30, total=32), answer=40, thought=400)
    assert buckets(got.output) == {"output_text": 10, "output_reasoning": 30}
    assert got.flags == {"estimated_output"}
    got = counted(usage(prompt=2, thoughts=30, total=32), thought=400)
    assert (buckets(got.output), got.flags) == ({"output_reasoning": 30}, frozenset())


def test_usage_objects_are_merged_field_by_field_and_never_added_up() -> None:
    got = counted(
        usage(prompt=10, candidates=1, thoughts=40, total=51, in_={"TEXT": 6, "AUDIO": 4}),
        usage(prompt=10, candidates=7, thoughts=40, total=57, in_={"TEXT": 6, "AUDIO": 4}),
        usage(prompt=0, candidates=0, thoughts=None, total=57),
    )
    assert buckets(got.input) == {"input_uncached": 6, "input_audio": 4}
    assert buckets(got.output) == {"output_text": 7, "output_reasoning": 40}
    assert got.flags == frozenset()


@pytest.mark.parametrize(
    ("count", "read_as", "flags"),
    [
        ("12", 12, {"coerced"}),
        (-5, None, {"invalid_count"}),
        ("many", None, {"invalid_count"}),
        (True, None, {"invalid_count"}),
        ([], None, {"invalid_count"}),
        (10**12, None, {"invalid_count"}),
        (None, None, NONE),
    ],
)
@pytest.mark.parametrize("name", ["prompt", "candidates", "cached", "total"])
def test_a_count_in_another_spelling_is_read_or_refused(
    name: str, count: object, read_as: int | None, flags: set[str]
) -> None:
    merge = UsageMerge()
    merge.take({SHORT[name]: count})
    assert (merge.counts.get(name), merge.flags) == (read_as, flags)


def test_counts_by_modality_in_another_spelling_are_read_or_refused() -> None:
    merge = UsageMerge()
    merge.take(usage(prompt=10, in_={"AUDIO": "4", "IMAGE": -1}))
    assert (merge.counts.get("prompt_audio"), merge.counts.get("prompt_image")) == (4, None)
    assert merge.flags == {"coerced", "invalid_count"}


@pytest.mark.parametrize(
    "details", [None, {}, "AUDIO", [None, 7, [], {"modality": []}, {"tokenCount": 4}], [{}]]
)
def test_details_of_another_form_say_nothing(details: object) -> None:
    merge = UsageMerge()
    merge.take({"promptTokenCount": 10, "promptTokensDetails": details})
    assert (merge.counts, merge.flags) == ({"prompt": 10}, set())


@pytest.mark.parametrize(
    ("table", "tier"),
    [
        ({"serviceTier": "standard"}, "standard"),
        ({"serviceTier": "priority"}, "priority"),
        ({"serviceTier": "SERVICE_TIER_FLEX"}, "flex"),
        ({"serviceTier": "unspecified"}, None),
        ({"serviceTier": None}, None),
        ({"trafficType": "ON_DEMAND"}, "standard"),
        ({"trafficType": "ON_DEMAND_PRIORITY"}, "priority"),
        ({"trafficType": "ON_DEMAND_FLEX"}, "flex"),
        ({"trafficType": "PROVISIONED_THROUGHPUT"}, "provisioned_throughput"),
        ({"trafficType": "TRAFFIC_TYPE_UNSPECIFIED"}, None),
        ({"trafficType": "ON_DEMAND", "serviceTier": "flex"}, "flex"),
        ({"trafficType": 7, "serviceTier": ["flex"]}, None),
    ],
)
def test_the_tier_is_the_one_that_the_answer_names(table: dict[str, Any], tier: str | None) -> None:
    merge = UsageMerge()
    assert not merge.take(table)
    assert merge.service_tier == tier


COUNT = st.one_of(st.none(), st.integers(0, 60))
KINDS = st.dictionaries(st.sampled_from(["TEXT", "AUDIO", "IMAGE", "VIDEO"]), st.integers(0, 60), max_size=3)


@given(
    st.fixed_dictionaries(
        {},
        optional={name: KINDS if name in ("in_", "of_cache", "out", "of_tools") else COUNT for name in SHORT},
    ),
    st.integers(0, 9),
)
def test_no_token_is_lost_or_counted_twice(counts: dict[str, Any], answer: int) -> None:
    got = counted(usage(**counts), answer=answer)
    if got.input is not None:
        assert min(got.input.values()) >= 0
        assert sum(got.input.values()) == counts["prompt"] + (counts.get("tool") or 0)
    if got.output is not None:
        assert min(got.output.values()) >= 0
        if counts.get("candidates") is not None:
            thoughts = (counts.get("thoughts") or 0) if got.reasoning_on_wire == "beside" else 0
            assert sum(got.output.values()) == counts["candidates"] + thoughts

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.answer import Counted
from gateway.wire.counts import MAX_COUNT
from gateway.wire.openai_usage import UsageMerge
from pricing.usage import INPUT_BUCKETS, OUTPUT_BUCKETS


def merged(*usages: dict[str, Any]) -> UsageMerge:
    merge = UsageMerge()
    for usage in usages:
        merge.take(usage)
    return merge


def counted(usage: dict[str, Any], dialect: str = "openai") -> Counted:
    return merged(usage).counted(dialect)


def used(result: Counted) -> dict[str, int]:
    return {name: count for name, count in {**(result.input or {}), **(result.output or {})}.items() if count}


def counts(
    prompt: int | None, completion: int | None, total: int | None = None, **more: Any
) -> dict[str, Any]:
    main = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return {**{key: value for key, value in main.items() if value is not None}, **more}


def cached(count: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": count}}


def reasoning(count: Any) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": count}}


@pytest.mark.parametrize(
    ("value", "count", "flags"),
    [
        (12, 12, set[str]()),
        (0, 0, set[str]()),
        ("12", 12, {"coerced"}),
        (Decimal("12.0"), 12, {"coerced"}),
        (Decimal("1.2E+1"), 12, {"coerced"}),
        (None, None, set[str]()),
        (-1, None, {"invalid_count"}),
        ("-1", None, {"invalid_count"}),
        (Decimal("12.5"), None, {"invalid_count"}),
        (Decimal("-12.0"), None, {"invalid_count"}),
        (Decimal("NaN"), None, {"invalid_count"}),
        (Decimal("1E+400"), None, {"invalid_count"}),
        (10**30, None, {"invalid_count"}),
        (str(10**30), None, {"invalid_count"}),
        (MAX_COUNT, MAX_COUNT, set[str]()),
        (MAX_COUNT + 1, None, {"invalid_count"}),
        (True, None, {"invalid_count"}),
        ("", None, {"invalid_count"}),
        ("twelve", None, {"invalid_count"}),
        ("١٢", None, {"invalid_count"}),
        ([12], None, {"invalid_count"}),
        ({"n": 12}, None, {"invalid_count"}),
    ],
)
def test_a_count_is_a_whole_number_of_at_least_0(value: Any, count: int | None, flags: set[str]) -> None:
    merge = merged({"prompt_tokens": value})
    assert merge.counts.get("prompt") == count
    assert merge.flags == flags
    nested = merged({"prompt_tokens_details": {"cached_tokens": value}})
    assert nested.counts.get("cached", 0) == (count or 0)
    assert nested.flags == flags


def test_a_field_that_is_no_count_is_not_flagged() -> None:
    assert (
        merged({"queue_time": Decimal("0.07"), "prompt_audio_seconds": "x", "prompt_tokens_details": 7}).flags
        == set()
    )


def test_usages_are_merged_field_by_field_and_the_larger_counts() -> None:
    merge = merged(counts(10, 0, 10, **cached(4)), counts(8, 5, 15), counts(0, 0, 0, **cached(0)))
    assert merge.counts == {"prompt": 10, "completion": 5, "total": 15, "cached": 4}


def test_memory_does_not_grow_with_strange_fields() -> None:
    merge = merged(*({f"field{number}": "x", "long": "y" * 1000} for number in range(1000)))
    assert len(merge.scalars) <= 32
    assert all(len(text) <= 64 for text in merge.scalars.values())


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 30}},
        {"input_tokens_details": {"cached_tokens": 30}},
        {"prompt_tokens_details": {"cache_tokens": 30}},
        {"prompt_cache_hit_tokens": 30},
        {"cached_tokens": 30},
        {"cache_read_input_tokens": 30},
        {"cached_tokens": 30, "prompt_cache_hit_tokens": 20, "prompt_tokens_details": {"cached_tokens": 0}},
    ],
)
def test_cached_tokens_have_many_names(usage: dict[str, Any]) -> None:
    result = counted(counts(100, 10, 110, **usage))
    assert used(result) == {"input_uncached": 70, "input_cached": 30, "output_text": 10}
    assert (result.cached_on_wire, result.flags) == ("inside", frozenset())


@pytest.mark.parametrize(
    ("usage", "five_minutes", "one_hour"),
    [
        ({"prompt_tokens_details": {"cache_write_tokens": 30}}, 30, 0),
        ({"prompt_tokens_details": {"cache_creation_input_tokens": 30}}, 30, 0),
        ({"cache_creation_input_tokens": 30}, 30, 0),
        (
            {
                "prompt_tokens_details": {
                    "cache_creation_input_tokens": 30,
                    "cache_creation": {"ephemeral_1h_input_tokens": 20},
                }
            },
            10,
            20,
        ),
        ({"cache_creation_input_tokens": 30, "cache_creation": {"ephemeral_1h_input_tokens": 30}}, 0, 30),
        ({"prompt_tokens_details": {"cache_creation": {"ephemeral_5m_input_tokens": 30}}}, 30, 0),
    ],
)
def test_written_tokens_have_many_names(usage: dict[str, Any], five_minutes: int, one_hour: int) -> None:
    result = counted(counts(100, 10, 110, **usage))
    assert result.input is not None
    assert (result.input["cache_write_5m"], result.input["cache_write_1h"]) == (five_minutes, one_hour)
    assert result.input["input_uncached"] == 70
    assert result.cached_on_wire == "inside"


@pytest.mark.parametrize(
    ("total", "place", "uncached", "flags"),
    [
        (None, "inside", 60, set[str]()),
        (110, "inside", 60, set[str]()),
        (150, "beside", 100, set[str]()),
        (160, "beside", 100, set[str]()),  # with reasoning beside too
        (120, "inside", 60, set[str]()),  # only reasoning is beside
        (999, "inside", 60, {"totals_mismatch"}),
    ],
)
def test_the_total_shows_where_cached_tokens_were(
    total: int | None, place: str, uncached: int, flags: set[str]
) -> None:
    result = counted(
        counts(100, 10, total, cached_tokens=30, cache_creation_input_tokens=10, **reasoning(10))
    )
    assert result.input is not None
    assert (result.cached_on_wire, result.input["input_uncached"], result.flags) == (place, uncached, flags)


@pytest.mark.parametrize(
    ("dialect", "completion", "total", "count", "place", "text"),
    [
        ("openai", 50, 150, 20, "inside", 30),
        ("openai", 50, 170, 20, "beside", 50),
        ("openai", 50, None, 20, "inside", 30),
        ("openai", 50, None, 60, "beside", 50),
        ("openai", 50, 999, 20, "inside", 30),
        ("openai", 50, 999, 60, "beside", 50),
        ("xai", 50, None, 20, "beside", 50),
        ("xai", 50, 150, 20, "inside", 30),
        ("xai", 50, 170, 20, "beside", 50),
        ("perplexity", 50, 150, 20, "beside", 50),
        ("perplexity", 50, None, 20, "beside", 50),
        ("gemini", 50, 150, 20, "inside", 30),
        ("gemini", 50, 170, 20, "beside", 50),
    ],
)
def test_the_total_shows_where_reasoning_was(
    dialect: str, completion: int, total: int | None, count: int, place: str, text: int
) -> None:
    result = counted(counts(100, completion, total, **reasoning(count)), dialect)
    assert result.output is not None
    assert (result.reasoning_on_wire, result.output["output_text"]) == (place, text)
    assert result.output["output_reasoning"] == count


def test_reasoning_at_the_top_counts_only_where_the_details_say_nothing() -> None:
    assert used(counted(counts(1, 50, 51, reasoning_tokens=20)))["output_reasoning"] == 20
    assert "output_reasoning" not in used(counted(counts(1, 50, 51, reasoning_tokens=20, **reasoning(0))))
    assert used(counted(counts(1, 50, 51, reasoning_tokens=20, **reasoning(7))))["output_reasoning"] == 7


@pytest.mark.parametrize("dialect", ["gemini", "gemini-openai"])
def test_what_geminis_total_has_over_is_reasoning(dialect: str) -> None:
    result = counted(counts(20, 151, 553), dialect)
    assert (used(result)["output_reasoning"], result.reasoning_on_wire, result.flags) == (
        382,
        "beside",
        frozenset(),
    )
    assert counted(counts(20, 151, 553)).flags == {"totals_mismatch"}


def test_parts_that_do_not_fit_are_cut_and_flagged() -> None:
    assert used(counted(counts(100, 10, 110, cached_tokens=120))) == {"input_cached": 100, "output_text": 10}
    both = counted(counts(100, 10, 110, cached_tokens=80, cache_creation_input_tokens=40))
    assert used(both) == {"input_cached": 80, "cache_write_5m": 20, "output_text": 10}
    thought = counted(counts(100, 10, 110, **reasoning(30)))
    assert used(thought) == {"input_uncached": 100, "output_reasoning": 10}
    assert (
        counted(counts(100, 10, 110, cached_tokens=120)).flags == both.flags == thought.flags == {"clamped"}
    )
    assert counted(counts(100, 10, 999, cached_tokens=120)).flags == {
        "clamped"
    }  # then the total says nothing


def test_audio_and_images_are_parts() -> None:
    result = counted(
        {
            **counts(3000, 600, 3600),
            "prompt_tokens_details": {
                "cached_tokens": 1500,
                "audio_tokens": 2200,
                "image_tokens": 100,
                "cached_tokens_details": {"audio_tokens": 1200},
            },
            "completion_tokens_details": {"audio_tokens": 500, "image_tokens": 50, "reasoning_tokens": 10},
        }
    )
    assert used(result) == {
        "input_uncached": 400,
        "input_cached": 300,
        "input_audio": 1000,
        "input_audio_cached": 1200,
        "input_image": 100,
        "output_text": 40,
        "output_reasoning": 10,
        "output_audio": 500,
        "output_image": 50,
    }


def test_a_side_whose_count_is_missing_stays_unknown() -> None:
    assert counted(counts(None, 5, 5)).input is None
    assert counted(counts(5, None, 5)).output is None
    assert counted(counts(None, 5, 99)).flags == frozenset()


def test_tools_and_further_counts_are_read() -> None:
    result = counted({**counts(1, 1), "num_sources_used": 4, "num_search_queries": 2, "citation_tokens": 9})
    assert (result.tools, result.extra) == ({"source": 4, "search_query": 2}, {"citation": 9})
    assert counted({**counts(1, 1), "prompt_tokens_details": {"search_tokens": 300}}).tools == {
        "web_search": 1
    }
    assert counted({**counts(1, 1), "num_sources_used": 0, "citation_tokens": 0}).tools == {}


@pytest.mark.parametrize(
    ("dialect", "usage", "usd"),
    [
        ("openrouter", {"cost": Decimal("0.00476245")}, "0.00476245"),
        ("openrouter", {"cost": Decimal("0.5"), "cost_details": {"upstream_inference_cost": 2}}, "0.5"),
        (
            "openrouter",
            {"cost": 1, "is_byok": True, "cost_details": {"upstream_inference_cost": Decimal("0.5")}},
            "1.5",
        ),
        ("openrouter", {"cost": 1, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, "1"),
        ("openai", {"cost": 1}, None),
        ("xai", {"cost_in_usd_ticks": 232856000}, "0.0232856"),
        ("xai", {"cost": 1}, None),
        ("perplexity", {"cost": {"total_cost": Decimal("0.008264")}}, "0.008264"),
        ("openrouter", {"cost": {"total_cost": Decimal("0.008264")}}, None),
        ("openrouter", {"cost": -1}, None),
        ("openrouter", {"cost": True}, None),
        ("openrouter", {"cost": "1"}, None),
        ("openrouter", {"cost": Decimal("NaN")}, None),
        ("openrouter", {"cost": Decimal("1E+400")}, None),
        ("openrouter", {"cost": Decimal("1E-400")}, None),
        ("openrouter", {"cost": 0}, "0"),
    ],
)
def test_a_providers_own_figure_is_read_where_its_dialect_has_one(
    dialect: str, usage: dict[str, Any], usd: str | None
) -> None:
    figure = merged(usage).provider_cost_usd(dialect)
    assert figure == (None if usd is None else Decimal(usd))


COUNT = st.one_of(st.none(), st.integers(0, 50))
USAGE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "total_tokens": st.one_of(st.none(), st.integers(0, 150)),
        "cached_tokens": COUNT,
        "cache_creation_input_tokens": COUNT,
        "reasoning_tokens": COUNT,
        "prompt_tokens_details": st.fixed_dictionaries(
            {}, optional={"audio_tokens": COUNT, "image_tokens": COUNT, "cached_tokens": COUNT}
        ),
        "completion_tokens_details": st.fixed_dictionaries(
            {}, optional={"audio_tokens": COUNT, "reasoning_tokens": COUNT}
        ),
    },
)


@given(
    usages=st.lists(USAGE, min_size=1, max_size=3),
    dialect=st.sampled_from(["openai", "xai", "gemini", "perplexity"]),
)
def test_no_token_is_lost_doubled_or_negative(usages: list[dict[str, Any]], dialect: str) -> None:
    merge = merged(*usages)
    result = merge.counted(dialect)
    prompt, completion = merge.counts.get("prompt"), merge.counts.get("completion")
    assert (result.input is None, result.output is None) == (prompt is None, completion is None)
    if result.input is not None and prompt is not None:
        assert set(result.input) == set(INPUT_BUCKETS)
        assert all(count >= 0 for count in result.input.values())
        beside = merge.counts.get("cached", 0) + merge.counts.get("written", 0)
        assert sum(result.input.values()) == prompt + (beside if result.cached_on_wire == "beside" else 0)
    if result.output is not None and completion is not None:
        assert set(result.output) == set(OUTPUT_BUCKETS)
        assert all(count >= 0 for count in result.output.values())
        beside = result.output["output_reasoning"] if result.reasoning_on_wire == "beside" else 0
        assert sum(result.output.values()) == completion + beside


def fitting(usage: dict[str, Any]) -> dict[str, Any]:
    return {
        **usage,
        "total_tokens": (usage.get("prompt_tokens") or 0) + (usage.get("completion_tokens") or 0),
    }


@given(
    usages=st.lists(USAGE.map(fitting), min_size=1, max_size=2),
    dialect=st.sampled_from(["openai", "xai", "gemini", "perplexity"]),
)
def test_the_quick_way_says_what_the_careful_one_says(usages: list[dict[str, Any]], dialect: str) -> None:
    merge = merged(*usages)
    quick = merge.plainly(dialect)
    if quick is None:
        return
    usage, cached_on_wire, reasoning_on_wire = quick
    careful = merge.counted(dialect)
    assert {name: getattr(usage, name) for name in (*INPUT_BUCKETS, *OUTPUT_BUCKETS)} == {
        **(careful.input or {}),
        **(careful.output or {}),
    }
    assert (cached_on_wire, reasoning_on_wire) == (careful.cached_on_wire, careful.reasoning_on_wire)
    assert (careful.flags, careful.tools, careful.extra) == (frozenset(), {}, {})


def test_the_quick_way_is_taken_by_a_plain_answer() -> None:
    assert merged(counts(10, 5, 15, **cached(4), **reasoning(2))).plainly("openai") is not None

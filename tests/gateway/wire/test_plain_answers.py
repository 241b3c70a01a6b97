"""Whole answers of the usual form: read in one look, and read the same."""

import json
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.wire.counts import MAX_COUNT
from gateway.wire.openai_chat_answer import ChatStream, read_whole
from pricing.usage import End, Reading, Usage

MESSAGE: dict[str, Any] = {"role": "assistant", "content": "An answer.", "refusal": None, "annotations": []}
USAGE: dict[str, Any] = {
    "prompt_tokens": 1000,
    "completion_tokens": 34,
    "total_tokens": 1034,
    "prompt_tokens_details": {"cached_tokens": 768, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 12,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


def answer(**fields: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
        **fields,
    }


def read(body: object, dialect: str = "openai", end: End = "complete") -> Reading:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_whole(encoded, status=200, dialect=dialect, end=end, input_tokens_estimate=33)


def read_closely(body: dict[str, Any], dialect: str = "openai", end: End = "complete") -> Reading:
    """The same, by way of a field that nobody knows: it says nothing, but then the answer is not of the usual form."""
    usage = body.get("usage")
    if isinstance(usage, dict):
        body = {**body, "usage": {**usage, "never_heard_of": None}}
    return read(body, dialect, end)


def keeps_its_promise(reading: Reading) -> bool:
    """What `Reading.is_plain` says."""
    return not reading.is_plain or (
        reading.source == "provider"
        and reading.usage.is_simple
        and not reading.flags
        and reading.inference_geo is None
        and reading.provider_cost_usd is None
    )


def test_an_answer_of_the_usual_form_is_plain() -> None:
    assert read(answer(service_tier="default")) == Reading(
        usage=Usage(input_uncached=232, input_cached=768, output_text=22, output_reasoning=12),
        source="provider",
        cached_on_wire="inside",
        reasoning_on_wire="inside",
        model="m",
        service_tier="default",
        text_bytes=10,
        is_plain=True,
    )


def test_a_stream_of_the_usual_form_is_plain_too() -> None:
    stream = ChatStream(dialect="openai", drop_usage=False)
    stream.feed(b"data: " + json.dumps(answer()).encode() + b"\n\n")
    assert stream.reading(status=200, end="complete", input_tokens_estimate=None) == read(answer())


COUNTS = st.one_of(
    st.integers(0, 60),
    st.sampled_from(
        [-1, MAX_COUNT, MAX_COUNT + 1, 2**70, 12.0, 1.5, 1e400, "12", "", "x", None, True, False]
    ),
    st.sampled_from([[], {}, {"cached_tokens": 1}, [3]]),
)
FEW = st.one_of(st.just(0), st.integers(0, 9), COUNTS)


def some_of(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


def rarely(odd: st.SearchStrategy[Any], usual: Any) -> st.SearchStrategy[Any]:
    return st.integers(0, 3).flatmap(lambda number: odd if number == 3 else st.just(usual))


GIVEN = some_of(
    {"cached_tokens": FEW, "audio_tokens": FEW}
    | {"image_tokens": FEW, "cache_write_tokens": FEW, "text_tokens": FEW}
    | {"cached_tokens_details": st.one_of(FEW, some_of({"audio_tokens": FEW}))}
)
MADE = some_of(dict.fromkeys(("reasoning_tokens", "audio_tokens", "accepted_prediction_tokens"), FEW))
ODD_USAGE = some_of(
    {"prompt_tokens": COUNTS, "completion_tokens": COUNTS, "total_tokens": COUNTS}
    | {"prompt_tokens_details": st.one_of(GIVEN, FEW), "completion_tokens_details": st.one_of(MADE, FEW)}
    | {"cached_tokens": FEW, "reasoning_tokens": FEW, "cost": FEW, "num_sources_used": FEW}
    | {"service_tier": FEW, "inference_geo": FEW, "is_byok": FEW, "input_tokens": FEW, "cache_creation": FEW}
)


@st.composite
def usual_usages(draw: st.DrawFn) -> dict[str, Any]:
    """Nearly always a usage object with counts that add up, or nearly so."""
    prompt, completion = draw(st.integers(0, 20)), draw(st.integers(0, 20))
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion + draw(rarely(st.integers(-3, 9), 0)),
    }
    given_kinds = {"cached_tokens": st.integers(0, 20), "audio_tokens": rarely(FEW, 0)}
    made_kinds = {"reasoning_tokens": st.integers(0, 20), "audio_tokens": rarely(FEW, 0)}
    made_kinds |= {"accepted_prediction_tokens": FEW, "rejected_prediction_tokens": FEW}
    if draw(st.booleans()):
        usage["prompt_tokens_details"] = draw(st.one_of(st.none(), some_of(given_kinds)))
    if draw(st.booleans()):
        usage["completion_tokens_details"] = draw(st.one_of(st.none(), some_of(made_kinds)))
    return usage | draw(rarely(ODD_USAGE, {}))


CONTENTS = rarely(st.sampled_from(["", None, "\u00e9", "\ud83d\ude00", 3, [{"text": "part"}], {}]), "text")
FUNCTION = st.sampled_from([None, {"name": "f", "arguments": "{}"}, {}, []])
MESSAGES = st.fixed_dictionaries(
    {"content": CONTENTS},
    optional={
        "tool_calls": st.sampled_from([None, [], [{"function": {"name": "f", "arguments": "{}"}}], "x"]),
        "refusal": st.sampled_from([None, "no", ""]),
        "reasoning_content": st.sampled_from([None, "thought", ""]),
        "function_call": FUNCTION,
        "audio": st.sampled_from([None, {"transcript": "said"}]),
        "made_up": st.just("x"),
    },
)
CHOICES = st.fixed_dictionaries(
    {"message": rarely(st.one_of(MESSAGES, st.none(), st.just("x")), MESSAGE)},
    optional={
        "finish_reason": st.sampled_from([None, "stop", 3]),
        "delta": rarely(MESSAGES, None),
        "usage": rarely(st.one_of(usual_usages(), FEW), None),
        "error": rarely(st.sampled_from([{"message": "broken"}, "x", ""]), None),
    },
)
ODD_FIELDS = some_of(
    {"error": st.sampled_from([None, "x", {}, {"message": "broken"}]), "object": st.just("error")}
    | {"x_groq": st.sampled_from([None, {}, {"usage": USAGE}, {"error": "x"}, 3])}
)


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    choices = st.lists(CHOICES, min_size=1, max_size=1)
    return {
        "choices": draw(st.one_of(choices, rarely(st.one_of(st.none(), st.lists(CHOICES, max_size=2)), []))),
        "usage": draw(st.one_of(usual_usages(), rarely(st.one_of(ODD_USAGE, FEW), USAGE))),
        "model": draw(rarely(st.sampled_from([None, "", 3, "n"]), "m")),
        "service_tier": draw(st.one_of(st.none(), rarely(st.sampled_from(["", 3, {}]), "default"))),
        **draw(rarely(ODD_FIELDS, {})),
    }


@settings(max_examples=600, deadline=None)
@given(
    body=answers(),
    dialect=st.sampled_from(["openai", "gemini", "xai", "openrouter", "perplexity", "deepseek", "made up"]),
    end=rarely(st.sampled_from(["client_abort", "upstream_cut"]), "complete"),
)
@example(body=answer(), dialect="openai", end="complete")
@example(body=answer(usage={**USAGE, "total_tokens": 1046}), dialect="gemini", end="complete")
def test_an_answer_is_read_the_same_in_one_look_and_closely(
    body: dict[str, Any], dialect: str, end: End
) -> None:
    reading = read(body, dialect, end)
    assert reading == read_closely(body, dialect, end)
    assert keeps_its_promise(reading)


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Pieces of an answer; usage comes with some of them."""
    usages = st.one_of(st.none(), usual_usages(), rarely(st.one_of(ODD_USAGE, FEW), USAGE))
    pieces: list[Any] = [[], [{"delta": {"content": "text"}}], [{"delta": {}, "finish_reason": "stop"}]]
    one = st.fixed_dictionaries({"choices": st.sampled_from(pieces), "usage": usages, "model": st.just("m")})
    return [event | draw(rarely(ODD_FIELDS, {})) for event in draw(st.lists(one, max_size=4))]


@settings(max_examples=300, deadline=None)
@given(
    pieces=events(),
    dialect=st.sampled_from(["openai", "gemini", "openrouter", "perplexity"]),
    end=rarely(st.sampled_from(["client_abort", "upstream_cut"]), "complete"),
    status=rarely(st.just(400), 200),
)
@example(
    pieces=[answer(), answer(usage={"completion_tokens": 40})], dialect="openai", end="complete", status=200
)
def test_a_stream_is_read_the_same_in_one_look_and_closely(
    pieces: list[dict[str, Any]], dialect: str, end: End, status: int
) -> None:
    quick, close = (ChatStream(dialect=dialect, drop_usage=True) for _ in range(2))
    for piece in pieces:
        for stream, more in ((quick, dict[str, Any]()), (close, {"never_heard_of": None})):
            usage: Any = piece["usage"]
            if isinstance(usage, dict):
                usage = cast("dict[str, Any]", usage) | more
            stream.feed(b"data: " + json.dumps({**piece, "usage": usage}).encode() + b"\n\n")
    assert quick.usage_seen == close.usage_seen
    readings = [
        stream.reading(status=status, end=end, input_tokens_estimate=33) for stream in (quick, close, quick)
    ]
    assert readings[0] == readings[1] == readings[2]
    assert keeps_its_promise(readings[0])


CALL = {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("content", ""),
        ("content", "\u00e9\u20ac"),
        ("content", [{"type": "text", "text": "a part"}]),
        ("tool_calls", [{"function": CALL}]),
        ("function_call", CALL),
        ("refusal", "No."),
        ("reasoning", "A thought."),
        ("reasoning_content", "A thought."),
        ("thinking", "A thought."),
        ("reasoning_details", [{"text": "A thought."}]),
        ("audio", {"transcript": "Said."}),
    ],
)
def test_all_that_the_model_produced_is_its_text(key: str, value: object) -> None:
    body = answer(choices=[{"message": {**MESSAGE, key: value}, "finish_reason": "stop"}])
    reading = read(body)
    assert reading == read_closely(body)
    assert reading.text_bytes != read(answer()).text_bytes


@pytest.mark.parametrize(
    "fields",
    [
        {"error": {"message": "broken"}},
        {"x_groq": {"usage": {"prompt_tokens": 2000}}},
        {"x_groq": {"error": "broken"}},
        {"choices": [{"message": MESSAGE, "error": {"message": "broken"}}]},
        {"choices": [{"message": MESSAGE, "usage": {"prompt_tokens": 2000}}]},
        {"choices": [{"message": MESSAGE}, {"message": MESSAGE}]},
        {"choices": []},
        {"choices": None},
        {"model": 3},
        {"service_tier": "flex"},
        {"usage": {**USAGE, "prompt_tokens_details": {"image_tokens": 5}}},
        {"usage": {**USAGE, "prompt_tokens_details": {"cache_write_tokens": 5}}},
        {"usage": {**USAGE, "completion_tokens_details": {"image_tokens": 5}}},
        {"usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 1001}}},
        {"usage": {**USAGE, "prompt_tokens": MAX_COUNT + 1, "total_tokens": MAX_COUNT + 35}},
        {"usage": {**USAGE, "prompt_tokens": MAX_COUNT, "total_tokens": MAX_COUNT + 34}},
    ],
    ids=str,
)
def test_one_thing_out_of_the_usual_is_noticed_as_ever(fields: dict[str, Any]) -> None:
    body = answer(**fields)
    reading = read(body)
    assert reading == read_closely(body)
    assert reading != read(answer())


ODD_COUNTS: list[Any] = [-1, MAX_COUNT + 1, 34.0, 34.5, "34", None, True, [], {}, 2**80]


@pytest.mark.parametrize("odd", ODD_COUNTS, ids=repr)
@pytest.mark.parametrize("key", USAGE)
def test_one_odd_count_is_noticed_as_ever(key: str, odd: object) -> None:
    body = answer(usage={**USAGE, key: odd})
    assert read(body) == read_closely(body)


@pytest.mark.parametrize("odd", ODD_COUNTS, ids=repr)
@pytest.mark.parametrize(
    ("table", "key"),
    [
        (table, key)
        for table in ("prompt_tokens_details", "completion_tokens_details")
        for key in USAGE[table]
    ],
)
def test_one_odd_part_is_noticed_as_ever(table: str, key: str, odd: object) -> None:
    body = answer(usage={**USAGE, table: {**USAGE[table], key: odd}})
    assert read(body) == read_closely(body)


@pytest.mark.parametrize(
    ("usage", "flags"),
    [
        ({**USAGE, "prompt_tokens": 1000.0}, {"coerced"}),
        ({**USAGE, "total_tokens": 1035}, {"totals_mismatch"}),
        ({**USAGE, "completion_tokens": -34}, {"invalid_count", "estimated_output"}),
        ({**USAGE, "completion_tokens_details": {"reasoning_tokens": 35}}, {"clamped"}),
    ],
)
def test_what_does_not_fit_is_flagged(usage: dict[str, Any], flags: set[str]) -> None:
    reading = read(answer(usage=usage))
    assert reading.flags == flags
    assert not reading.is_plain


def test_a_word_in_the_usage_object_is_a_fee_key_and_a_place_is_the_place() -> None:
    reading = read(answer(usage={**USAGE, "search_context_size": "high", "inference_geo": "us"}))
    assert reading.fee_keys["search_context_size"] == "high"
    assert reading.inference_geo == "us"
    assert not reading.is_plain


def test_of_two_usage_objects_in_one_body_the_last_counts() -> None:
    twice = json.dumps(answer()).encode()[:-1] + b', "usage": {"prompt_tokens": 1, "completion_tokens": 2,'
    twice += b' "total_tokens": 7, "total_tokens": 3}}'
    assert read(twice).usage == Usage(input_uncached=1, output_text=2)


@pytest.mark.parametrize("word", [b'"\xff"', b'{"\xff": 1}', b'["\xff"]'])
def test_bad_utf8_in_the_usage_object_hides_no_count(word: bytes) -> None:
    body = json.dumps(answer(usage={**USAGE, "word": "here"})).encode().replace(b'"here"', word)
    assert read(body).usage == read(answer()).usage


def test_numbers_of_money_in_a_whole_answer_stay_exact() -> None:
    body = json.dumps(answer(usage={**USAGE, "cost": 1})).replace(
        '"cost": 1', '"cost": 0.1234567890123456789'
    )
    assert str(read(body.encode(), "openrouter").provider_cost_usd) == "0.1234567890123456789"
